package profile_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/profile"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
	"airlift/scripts/oracle"

	_ "airlift/scripts/fixtures/seed"
)

// hardened returns a completed configuration with the profile.
func hardened(t *testing.T, version string) *config.Config {
	t.Helper()
	c := testhost.Config(func(c *config.Config) { c.KubernetesVersion = version })
	if kept, err := profile.Apply(profile.Hardened, c); err != nil || len(kept) > 0 {
		t.Fatal(kept, err)
	}
	return c
}

// flags returns the flags of a static pod. A flag that is given twice fails the test.
func flags(t *testing.T, pod *corev1.Pod) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, arg := range pod.Spec.Containers[0].Command[1:] {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if _, twice := list[name]; twice {
			t.Errorf("%s has --%s twice", pod.Name, name)
		}
		list[name] = value
	}
	return list
}

// TestBenchmark: the flags and fields that the benchmark's automated checks read, by check, for each minor version.
func TestBenchmark(t *testing.T) {
	for _, minor := range release.Known() {
		c := hardened(t, release.NewestOf(minor))
		if err := c.ValidateInit(); err != nil {
			t.Errorf("%s: %v", minor, err)
		}
		pods, err := render.ControlPlane(c, os.DirFS(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		for check, want := range map[string]struct{ pod, flag, value string }{
			"1.2.3":  {"kube-apiserver", "enable-admission-plugins", "DenyServiceExternalIPs"},
			"1.2.5":  {"kube-apiserver", "kubelet-certificate-authority", "/etc/kubernetes/pki/ca.crt"},
			"1.2.9":  {"kube-apiserver", "enable-admission-plugins", "EventRateLimit"},
			"1.2.14": {"kube-apiserver", "enable-admission-plugins", "NodeRestriction"},
			"1.2.15": {"kube-apiserver", "profiling", "false"},
			"1.2.16": {"kube-apiserver", "audit-log-path", "/var/log/kubernetes/audit/audit.log"},
			"1.2.17": {"kube-apiserver", "audit-log-maxage", "30"},
			"1.2.18": {"kube-apiserver", "audit-log-maxbackup", "10"},
			"1.2.19": {"kube-apiserver", "audit-log-maxsize", "100"},
			"1.2.20": {"kube-apiserver", "request-timeout", "300s"},
			"1.2.29": {"kube-apiserver", "tls-cipher-suites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"},
			"1.2.30": {"kube-apiserver", "service-account-extend-token-expiration", "false"},
			"1.3.1":  {"kube-controller-manager", "terminated-pod-gc-threshold", "1000"},
			"1.3.2":  {"kube-controller-manager", "profiling", "false"},
			"1.4.1":  {"kube-scheduler", "profiling", "false"},
			"3.2.1":  {"kube-apiserver", "audit-policy-file", "/etc/kubernetes/hardened/audit-policy.yaml"},
		} {
			if got := strings.Split(flags(t, pods[want.pod])[want.flag], ","); !slices.Contains(got, want.value) {
				t.Errorf("%s: check %s: --%s of %s is %q, want %s", minor, check, want.flag, want.pod, got, want.value)
			}
		}
		data, err := render.KubeletConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		var kubelet map[string]any
		if err := yaml.Unmarshal(data, &kubelet); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]any{
			"eventRecordQPS": 50.0, "makeIPTablesUtilChains": true, "podPidsLimit": 4096.0, "protectKernelDefaults": true, "seccompDefault": true,
			"streamingConnectionIdleTimeout": "5m0s", "readOnlyPort": nil, "rotateCertificates": true, "serverTLSBootstrap": true,
		} {
			if kubelet[name] != want {
				t.Errorf("%s: %s is %v, want %v", minor, name, kubelet[name], want)
			}
		}
		if !profile.Used(&c.Cluster) || !profile.SignsServing(&c.Cluster) {
			t.Errorf("%s: not recognized", minor)
		}
	}
}

// TestFilesAreMounted: each file is in a volume of the API server, so backups, joins and reconfigurations find it.
func TestFilesAreMounted(t *testing.T) {
	c := hardened(t, oracle.Newest)
	files := profile.Files(&c.Cluster)
	if len(files) != 2 {
		t.Fatalf("%d files", len(files))
	}
	for _, f := range files {
		if got := reconfiguration.UsersOf(&c.Cluster, f.Path); !slices.Equal(got, []string{"kube-apiserver"}) {
			t.Errorf("%s is read by %q", f.Path, got)
		}
		if !slices.ContainsFunc(reconfiguration.Uses(&c.Cluster), func(u reconfiguration.Use) bool { return u.Path == f.Path && reconfiguration.MustExist(u.Flag) }) {
			t.Errorf("no flag that needs its file names %s", f.Path)
		}
	}
	if text := string(files[0].Data); !strings.Contains(text, "enforce-version: v1.37\n") {
		t.Errorf("the version is not pinned:\n%s", text)
	}
	if got := reconfiguration.FileOf(&c.Cluster, "kube-apiserver", "audit-log-path"); got != profile.AuditDir+"/audit.log" {
		t.Errorf("the audit log is %q", got)
	}
}

// TestUserWins: the profile adds to what the user gives, changes nothing of it, and names each collision.
func TestUserWins(t *testing.T) {
	bare := testhost.Config(nil)
	if _, err := profile.Apply(profile.Hardened, bare); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, arg := range bare.APIServer.ExtraArgs {
		names = append(names, arg.Name)
	}
	names = append(names, "disable-admission-plugins", "v")
	rapid.Check(t, func(t *rapid.T) {
		var user config.Args
		overlap := 0
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "names") {
			value := rapid.SampledFrom([]string{"x", "EventRateLimit", "NodeRestriction,EventRateLimit", "/etc/site/file.yaml", ""}).Draw(t, "value")
			if name == "kubelet-certificate-authority" && value == "" { // to the API server it is no flag
				value = "x"
			}
			if rapid.Bool().Draw(t, "underscores") {
				name = strings.ReplaceAll(name, "-", "_")
			}
			user = append(user, config.Arg{Name: name, Value: value})
		}
		c := testhost.Config(func(c *config.Config) { c.APIServer.ExtraArgs = slices.Clone(user) })
		kept, err := profile.Apply(profile.Hardened, c)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.APIServer.ExtraArgs[:len(user)]; !slices.Equal(got, user) {
			t.Fatalf("the user's flags %v became %v", user, got)
		}
		all := map[string]string{}
		for _, arg := range c.APIServer.ExtraArgs {
			name := strings.ReplaceAll(arg.Name, "_", "-")
			if _, twice := all[name]; twice {
				t.Fatalf("--%s is given twice: %v", name, c.APIServer.ExtraArgs)
			}
			all[name] = arg.Value
		}
		for _, arg := range user {
			name := strings.ReplaceAll(arg.Name, "_", "-")
			if name == "v" || name == "disable-admission-plugins" {
				continue
			}
			overlap++
			if want := fmt.Sprintf("ClusterConfiguration.apiServer.extraArgs: %s=%s", name, arg.Value); !slices.Contains(kept, want) {
				t.Fatalf("%q is not in %q", want, kept)
			}
		}
		if len(kept) != overlap {
			t.Fatalf("%q, want %d", kept, overlap)
		}
		given := func(name string) bool {
			return slices.ContainsFunc(user, func(a config.Arg) bool { return strings.ReplaceAll(a.Name, "_", "-") == name })
		}
		if given("enable-admission-plugins") {
			return
		}
		// The API server does not start with a plugin that is enabled and disabled, nor with EventRateLimit without its file.
		for _, plugin := range strings.Split(all["enable-admission-plugins"], ",") {
			if slices.Contains(strings.Split(all["disable-admission-plugins"], ","), plugin) || plugin == "EventRateLimit" && given("admission-control-config-file") {
				t.Fatalf("%s is enabled: %v", plugin, all)
			}
		}
		for _, f := range profile.Files(&c.Cluster) {
			if !slices.Contains(slices.Collect(maps.Values(all)), f.Path) {
				t.Fatalf("no flag names %s", f.Path)
			}
		}
	})
}

// TestKubeletFieldsOfTheUserStay, also those with the value that Go gives to a field that is not set.
func TestKubeletFieldsOfTheUserStay(t *testing.T) {
	file := []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nprotectKernelDefaults: false\npodPidsLimit: 99\nmaxPods: 7\n")
	c, _, err := config.ParseInit("kubeadm.yaml", file)
	if err != nil {
		t.Fatal(err)
	}
	c.KubernetesVersion = oracle.Newest
	kept, err := profile.Apply(profile.Hardened, c)
	if err != nil || !slices.Equal(kept, []string{"KubeletConfiguration.podPidsLimit", "KubeletConfiguration.protectKernelDefaults"}) {
		t.Fatal(kept, err)
	}
	if k := c.Kubelet; k.ProtectKernelDefaults || *k.PodPidsLimit != 99 || k.MaxPods != 7 || !*k.SeccompDefault {
		t.Errorf("%+v", k)
	}
}

// TestServingIsWhole: API servers verify kubelets only if the cluster signs their certificates, and the other way round.
func TestServingIsWhole(t *testing.T) {
	const begin = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n---\n"
	const clusters = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
	const kubelets = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for user, want := range map[string]struct{ verifies, signs, used bool }{
		clusters: {true, true, true},
		clusters + "certificatesDir: /etc/kubernetes/own\n": {true, true, true},
		kubelets + "serverTLSBootstrap: false\n":            {false, false, false},
		kubelets + "serverTLSBootstrap: true\n":             {false, true, false},
		clusters + "apiServer: {extraArgs: [{name: kubelet-certificate-authority, value: /etc/kubernetes/pki/site.crt}]}\n": {true, false, false},
	} {
		c, _, err := config.ParseInit("kubeadm.yaml", []byte(begin+user))
		if err != nil {
			t.Fatal(err)
		}
		c.KubernetesVersion = oracle.Newest
		c.LocalAPIEndpoint.AdvertiseAddress = "192.0.2.10"
		c.CompleteInit()
		if _, err := profile.Apply(profile.Hardened, c); err != nil {
			t.Fatal(err)
		}
		verifies := slices.ContainsFunc(c.APIServer.ExtraArgs, func(a config.Arg) bool { return a.Name == "kubelet-certificate-authority" })
		if verifies != want.verifies || c.Kubelet.ServerTLSBootstrap != want.signs || profile.SignsServing(&c.Cluster) != want.used {
			t.Errorf("%s: verifies %t, signs %t, used %t, want %+v", user, verifies, c.Kubelet.ServerTLSBootstrap, profile.SignsServing(&c.Cluster), want)
		}
	}
}

// TestJoinsKnow: a node that joins finds in the cluster whether it signs the serving certificates of kubelets. A plain cluster does not,
// also with the flag, because its users may have an approver of their own.
func TestJoinsKnow(t *testing.T) {
	flag := config.Args{{Name: "kubelet-certificate-authority", Value: "/etc/kubernetes/pki/ca.crt"}}
	for name, c := range map[string]struct {
		config *config.Config
		want   bool
	}{
		"plain":               {testhost.Config(nil), false},
		"plain with the flag": {testhost.Config(func(c *config.Config) { c.APIServer.ExtraArgs = flag }), false},
		"hardened":            {hardened(t, oracle.Newest), true},
	} {
		stored, err := render.ClusterConfiguration(c.config)
		if err != nil {
			t.Fatal(err)
		}
		cluster, _, err := config.DecodeClusterConfiguration(stored)
		if err != nil {
			t.Fatal(err)
		}
		joining := config.Config{}
		joining.KubernetesVersion = c.config.KubernetesVersion
		if err := joining.UseCluster(cluster); err != nil {
			t.Fatal(err)
		}
		if got := profile.SignsServing(&joining.Cluster); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"the name of a volume": func(c *config.Config) {
			c.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "audit-log", HostPath: "/a", MountPath: "/a"}}
		},
		"the path of a volume": func(c *config.Config) {
			c.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "a", HostPath: "/a", MountPath: profile.Dir}}
		},
	} {
		if _, err := profile.Apply(profile.Hardened, testhost.Config(change)); fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := profile.Apply("cis", testhost.Config(nil)); fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), profile.Hardened) {
		t.Errorf("%v", err)
	}
	plain, same := testhost.Config(nil), testhost.Config(nil)
	if _, err := profile.Apply("", plain); err != nil || !cmp.Equal(plain.Cluster, same.Cluster) || profile.Used(&plain.Cluster) || len(profile.Files(&plain.Cluster)) > 0 {
		t.Error("without a profile, the configuration changes", err)
	}
}

// TestKubeadm: real kubeadm accepts the configuration that the cluster stores, and makes the same flags and volumes of it.
func TestKubeadm(t *testing.T) {
	for _, version := range oracle.Versions {
		c := oracle.Cases(version)[0]
		own := *c.Config
		if _, err := profile.Apply(profile.Hardened, &own); err != nil {
			t.Fatal(err)
		}
		stored, err := render.ClusterConfiguration(&own)
		if err != nil {
			t.Fatal(err)
		}
		kubelet, err := render.KubeletConfig(&own)
		if err != nil {
			t.Fatal(err)
		}
		oracle.Migrate(t, version, slices.Concat(stored, []byte("---\n"), kubelet))

		body := map[string]any{"networking": map[string]any{"podSubnet": own.Networking.PodSubnet.String()}}
		for field, component := range map[string]config.Component{"apiServer": own.APIServer.Component, "controllerManager": own.ControllerManager, "scheduler": own.Scheduler} {
			args := map[string]string{}
			for _, arg := range component.ExtraArgs {
				args[arg.Name] = arg.Value
			}
			body[field] = map[string]any{"extraArgs": args, "extraVolumes": component.ExtraVolumes}
		}
		text, err := yaml.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		c.Config, c.Cluster, c.Components = &own, string(text), string(kubelet)
		want := oracle.Expect(t, c)
		pods, err := render.ControlPlane(&own, os.DirFS(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		for name, pod := range pods {
			if diff := cmp.Diff(flags(t, want.Pods[name]), flags(t, pod)); diff != "" {
				t.Errorf("%s: %s (-kubeadm +Airlift)\n%s", version, name, diff)
			}
			if diff := cmp.Diff(want.Pods[name].Spec.Volumes, pod.Spec.Volumes); diff != "" {
				t.Errorf("%s: %s (-kubeadm +Airlift)\n%s", version, name, diff)
			}
		}
		if k := want.Kubelet; !k.ProtectKernelDefaults || !*k.SeccompDefault || !slices.Equal(k.TLSCipherSuites, profile.Ciphers) {
			t.Errorf("%s: kubeadm's kubelet: %+v", version, k)
		}
	}
}

package render_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
	"airlift/scripts/oracle/upstream/components"
)

// TestKubeadmReadsOurs passes kubeadm the configuration that Airlift stores in
// the cluster. kubeadm must know every field and write the same configuration.
func TestKubeadmReadsOurs(t *testing.T) {
	for _, c := range allCases() {
		t.Run(c.Config.KubernetesVersion+" "+c.Name, func(t *testing.T) {
			t.Parallel()
			cfg := c.Config
			cluster, err := render.ClusterConfiguration(cfg)
			if err != nil {
				t.Fatal(err)
			}
			shared, err := render.KubeletConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			kubelet, err := render.NodeKubeletConfig(cfg, shared)
			if err != nil {
				t.Fatal(err)
			}
			proxy := []byte(find[*corev1.ConfigMap](t, must(render.KubeProxy(cfg)), "kube-proxy").Data["config.conf"])
			docs := bytes.Join([][]byte{[]byte(c.InitDocument()), cluster, kubelet, proxy}, []byte("\n---\n"))

			out := oracle.Migrate(t, cfg.KubernetesVersion, docs)
			var want, got map[string]any
			oracle.Decode(t, cluster, &got)
			for doc := range strings.SplitSeq(string(out), "---\n") {
				if strings.Contains(doc, "kind: ClusterConfiguration") {
					oracle.Decode(t, []byte(doc), &want)
				}
			}
			// kubeadm v1.29 adds this default flag when it creates the
			// manifests.
			if api := want["apiServer"].(map[string]any); api["extraArgs"] == nil && cfg.Minor() == 29 {
				api["extraArgs"] = map[string]any{"authorization-mode": "Node,RBAC"}
			}
			// kubeadm v1.30 stores this field, but config migrate writes v1beta4's place
			// for it (defaultMigrateMutators).
			if cfg.Minor() == 30 {
				delete(got["apiServer"].(map[string]any), "timeoutForControlPlane")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("ClusterConfiguration (-as kubeadm writes it again +ours):\n%s", diff)
			}
		})
	}
}

// TestContainerdUnderstands loads the file with the real containerd. Only the
// intended values may differ from containerd's defaults.
func TestContainerdUnderstands(t *testing.T) {
	containerd := rig.Component(t, oracle.Version, "containerd")
	dump := func(args ...string) []string { return strings.Split(string(output(t, containerd, args...)), "\n") }
	defaults := dump("config", "default")
	for _, test := range []struct {
		name    string
		facts   config.Facts
		changed []string
	}{
		{"modern host", config.Facts{CgroupDriver: "systemd"}, []string{
			"SystemdCgroup = true", "config_path = '/etc/containerd/certs.d'", "discard_unpacked_layers = true", "sandbox = 'registry.k8s.io/pause:3.9'", "stats_collect_period = '10s'"}},
		{"poor host", config.Facts{CgroupDriver: "cgroupfs", RestrictOOMScoreAdj: true}, []string{
			"config_path = '/etc/containerd/certs.d'", "discard_unpacked_layers = true", "restrict_oom_score_adj = true", "sandbox = 'registry.k8s.io/pause:3.9'", "stats_collect_period = '10s'"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := oracle.Plain(oracle.Version)
			cfg.Facts = test.facts
			data, err := render.ContainerdConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			loaded := dump("--config", file, "config", "dump")
			if len(loaded) != len(defaults) {
				t.Fatalf("%d settings, by default there are %d", len(loaded), len(defaults))
			}
			var changed []string
			for i := range loaded {
				if loaded[i] != defaults[i] {
					changed = append(changed, strings.TrimSpace(loaded[i]))
				}
			}
			slices.Sort(changed)
			if diff := cmp.Diff(test.changed, changed); diff != "" {
				t.Errorf("changed settings (-want +got):\n%s", diff)
			}
		})
	}
}

func output(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, stderr.String())
	}
	return out
}

// The user's files: what a GPU's toolkit writes, a snapshotter, a registry's
// configuration elsewhere, in the formats of containerd 1 and 2.
var userFiles = map[string]string{
	"10-gpu.toml": `version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/nvidia-container-runtime"
    SystemdCgroup = true
`,
	"20-old.toml": `version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata]
  runtime_type = "io.containerd.kata.v2"
`,
	"30-proxy.toml": `[proxy_plugins.stargz]
  type = "snapshot"
  address = "/run/stargz/stargz.sock"
`,
	"40-registry.toml": `version = 3
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "/site/certs.d"
`,
	"not.read": `version = 99`,
}

// TestContainerdMergesTheUsersFiles lets the real containerd merge the file with the
// user's. Airlift's values stay, unless the user overrides them.
func TestContainerdMergesTheUsersFiles(t *testing.T) {
	containerd := rig.Component(t, oracle.Version, "containerd")
	cfg := oracle.Plain(oracle.Version)
	cfg.Facts = config.Facts{CgroupDriver: "systemd", RestrictOOMScoreAdj: true}
	data, err := render.ContainerdConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	here := bytes.ReplaceAll(data, []byte(filepath.Dir(render.ContainerdImports)), []byte(dir+"/conf.d"))
	if bytes.Equal(here, data) {
		t.Fatalf("no imports:\n%s", data)
	}
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, here, 0o600); err != nil {
		t.Fatal(err)
	}
	type runtimeConfig struct {
		Type    string `toml:"runtime_type"`
		Options map[string]any
	}
	type merged struct {
		ProxyPlugins map[string]struct{ Type, Address string } `toml:"proxy_plugins"`
		Plugins      struct {
			Images struct {
				Registry struct {
					ConfigPath string `toml:"config_path"`
				}
				Discard bool              `toml:"discard_unpacked_layers"`
				Pinned  map[string]string `toml:"pinned_images"`
			} `toml:"io.containerd.cri.v1.images"`
			Runtime struct {
				Restrict   bool `toml:"restrict_oom_score_adj"`
				Containerd struct {
					Default  string `toml:"default_runtime_name"`
					Runtimes map[string]runtimeConfig
				}
			} `toml:"io.containerd.cri.v1.runtime"`
		}
	}
	dump := func() (m merged) {
		t.Helper()
		if err := toml.Unmarshal(output(t, containerd, "--config", file, "config", "dump"), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	check := func(what string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	own := func(m merged) {
		t.Helper()
		check("discard_unpacked_layers", m.Plugins.Images.Discard, true)
		check("pinned images", m.Plugins.Images.Pinned, map[string]string{"sandbox": cfg.Images["pause"]})
		check("restrict_oom_score_adj", m.Plugins.Runtime.Restrict, true)
		runc := m.Plugins.Runtime.Containerd.Runtimes["runc"]
		check("runc", []any{runc.Type, runc.Options["SystemdCgroup"]}, []any{"io.containerd.runc.v2", true})
	}

	alone := dump() // without the directory
	own(alone)
	check("default runtime", alone.Plugins.Runtime.Containerd.Default, "runc")
	check("config_path", alone.Plugins.Images.Registry.ConfigPath, render.RegistriesDir)

	for name, text := range userFiles {
		if err := os.MkdirAll(filepath.Join(dir, "conf.d"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "conf.d", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := dump()
	own(m)
	check("default runtime", m.Plugins.Runtime.Containerd.Default, "nvidia")
	gpu := m.Plugins.Runtime.Containerd.Runtimes["nvidia"]
	check("GPU", []any{gpu.Type, gpu.Options["BinaryName"], gpu.Options["SystemdCgroup"]}, []any{"io.containerd.runc.v2", "/usr/bin/nvidia-container-runtime", true})
	check("kata", m.Plugins.Runtime.Containerd.Runtimes["kata"].Type, "io.containerd.kata.v2")
	check("config_path", m.Plugins.Images.Registry.ConfigPath, "/site/certs.d")
	check("proxy plugin", m.ProxyPlugins["stargz"], struct{ Type, Address string }{"snapshot", "/run/stargz/stargz.sock"})
}

// TestFlannelEqualsUpstream compares with the manifest in flannel's repository.
// The code below applies every intended difference.
func TestFlannelEqualsUpstream(t *testing.T) {
	module := "github.com/flannel-io/flannel@" + components.Flannel
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err != nil {
		t.Fatalf("downloading %s: %v\n%s", module, err, out)
	}
	var download struct{ Dir string }
	if err := json.Unmarshal(out, &download); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(download.Dir, "Documentation", "kube-flannel.yml"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]runtime.Object{}
	for doc := range strings.SplitSeq(string(manifest), "---\n") {
		if strings.TrimSpace(doc) != "" {
			obj := oracle.Object(t, []byte(doc))
			want[oracle.Key(t, obj)] = obj
		}
	}

	// The installer writes the CNI configuration, so no init container copies
	// it.
	settings := want["ConfigMap kube-flannel/kube-flannel-cfg"].(*corev1.ConfigMap)
	delete(settings.Data, "cni-conf.json")
	pod := &want["DaemonSet kube-flannel/kube-flannel-ds"].(*appsv1.DaemonSet).Spec.Template.Spec
	pod.InitContainers = nil
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "cni-plugin" })
	// flannel finds the interface by the node's address, and the API server
	// without kube-proxy.
	flanneld := &pod.Containers[0]
	flanneld.Args = append(flanneld.Args, "--iface=$(NODE_IP)")
	flanneld.Env = slices.Insert(flanneld.Env, 2,
		corev1.EnvVar{Name: "NODE_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}},
		corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "10.0.0.11"},
		corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: "6443"})

	// The hook of TestFlannelHook needs a directory that upstream mounts only
	// in its init containers.
	flanneld.VolumeMounts = append(flanneld.VolumeMounts, corev1.VolumeMount{Name: "cni", MountPath: "/etc/cni/net.d"})

	// No pod uses the default account, so it has no token.
	want["ServiceAccount kube-flannel/default"] = &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-flannel", Name: "default"}, AutomountServiceAccountToken: new(false)}

	got := must(render.Flannel(oracle.Plain(oracle.Version)))
	flanneld.Lifecycle = find[*appsv1.DaemonSet](t, got, "kube-flannel-ds").Spec.Template.Spec.Containers[0].Lifecycle
	for _, obj := range got {
		if m, ok := obj.(*corev1.ConfigMap); ok {
			var a, b any
			oracle.Decode(t, []byte(settings.Data["net-conf.json"]), &a)
			oracle.Decode(t, []byte(m.Data["net-conf.json"]), &b)
			compare(t, "net-conf.json", a, b)
			m.Data["net-conf.json"] = settings.Data["net-conf.json"]
		}
		compare(t, oracle.Key(t, obj), want[oracle.Key(t, obj)], oracle.Object(t, encode(t, obj)))
	}
	if len(got) != len(want) {
		t.Errorf("%d objects, upstream has %d", len(got), len(want))
	}
}

func TestFlannelNetwork(t *testing.T) {
	for subnet, want := range map[string]string{
		"10.244.0.0/16":                  `{"Network":"10.244.0.0/16","EnableNFTables":false,"Backend":{"Type":"vxlan"}}`,
		"10.244.0.0/16,fd00:10:244::/56": `{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:10:244::/56","EnableNFTables":false,"Backend":{"Type":"vxlan"}}`,
		"fd00:10:244::/56":               `{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:10:244::/56","EnableNFTables":false,"Backend":{"Type":"vxlan"}}`,
	} {
		cfg := oracle.Plain(oracle.Version)
		cfg.Networking.PodSubnet = config.ParseCIDRs(subnet)
		m := find[*corev1.ConfigMap](t, must(render.Flannel(cfg)), "kube-flannel-cfg")
		var got, expected any
		oracle.Decode(t, []byte(m.Data["net-conf.json"]), &got)
		oracle.Decode(t, []byte(want), &expected)
		compare(t, subnet, expected, got)
	}
}

func TestCNIConflist(t *testing.T) {
	cfg := oracle.Plain(oracle.Version)
	for _, test := range []struct {
		mtu      int
		podCIDRs []string
		want     string
	}{
		{1500, []string{"10.244.3.0/24"}, `{"type":"bridge","bridge":"cni0","mtu":1450,"hairpinMode":true,"isDefaultGateway":true,"ipMasq":false,
			"ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.3.0/24"}]]}}`},
		{9000, []string{"10.244.3.0/24", "fd00:10:244:3::/64"}, `{"type":"bridge","bridge":"cni0","mtu":8930,"hairpinMode":true,"isDefaultGateway":true,"ipMasq":false,
			"ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.3.0/24"}],[{"subnet":"fd00:10:244:3::/64"}]]}}`},
	} {
		cfg.Facts.MTU = test.mtu
		data, err := render.CNIConflist(cfg, test.podCIDRs)
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		oracle.Decode(t, data, &got)
		oracle.Decode(t, []byte(`{"cniVersion":"1.0.0","name":"cbr0","plugins":[`+test.want+`,{"type":"portmap","capabilities":{"portMappings":true}}]}`), &want)
		compare(t, "conflist", want, got)
	}
	for _, bad := range [][]string{nil, {"10.244.3.0"}} {
		if data, err := render.CNIConflist(cfg, bad); err == nil {
			t.Errorf("pod CIDRs %v gave %s", bad, data)
		}
	}
	cfg.Facts.MTU = 0
	if data, err := render.CNIConflist(cfg, []string{"10.244.3.0/24"}); err == nil {
		t.Errorf("an MTU of 0 gave %s", data)
	}
}

// A joining node uses the cluster's document, with fields of a newer Kubernetes
// too. It adds only the values that depend on its host.
func TestNodeKubeletConfig(t *testing.T) {
	cluster := []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\nfromTheFuture: {a: 1}\nmaxPods: 17\n")
	for _, test := range []struct {
		name    string
		version string
		facts   config.Facts
		added   map[string]any
	}{
		{"as expected", "v1.37.1", config.Facts{CgroupVersion: 2, CgroupDriver: "systemd", ResolvConf: "/etc/resolv.conf"},
			map[string]any{"cgroupDriver": "systemd", "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock"}},
		{"cgroup v1, old kubelet", "v1.33.13", config.Facts{CgroupVersion: 1, CgroupDriver: "cgroupfs", ResolvConf: "/etc/resolv.conf"},
			map[string]any{"cgroupDriver": "cgroupfs"}},
		{"cgroup v1, kubelet that refuses it", "v1.35.6", config.Facts{CgroupVersion: 1, CgroupDriver: "cgroupfs", ResolvConf: "/etc/resolv.conf"},
			map[string]any{"cgroupDriver": "cgroupfs", "failCgroupV1": false, "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock"}},
		{"no resolver", "v1.29.15", config.Facts{CgroupVersion: 2, CgroupDriver: "systemd", SwapOn: true},
			map[string]any{"cgroupDriver": "systemd", "resolvConf": "", "failSwapOn": false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := &config.Config{Facts: test.facts}
			cfg.KubernetesVersion = test.version
			cfg.NodeRegistration.CRISocket = "unix:///run/containerd/containerd.sock"
			data, err := render.NodeKubeletConfig(cfg, cluster)
			if err != nil {
				t.Fatal(err)
			}
			var got, want map[string]any
			oracle.Decode(t, data, &got)
			oracle.Decode(t, cluster, &want)
			for key, value := range test.added {
				want[key] = value
			}
			compare(t, "KubeletConfiguration", want, got)
		})
	}
}

// A second document or a repeated field in the ConfigMap would be lost.
func TestNodeKubeletConfigIgnoresNothing(t *testing.T) {
	for text, want := range map[string]string{
		"maxPods: 17\nmaxPods: 18\n":         "line 2: maxPods is written twice",
		"maxPods: 17\n---\nmaxPods: 18\n":    "line 3: there is a second document",
		"maxPods: 17\n...\npodsPerCore: 1\n": "line 3: a second document",
	} {
		_, err := render.NodeKubeletConfig(&config.Config{}, []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(fault.Hint(err), "kubelet-config") {
			t.Errorf("%q: %v (%s), want %s", text, err, fault.Hint(err), want)
		}
	}
}

func TestKubeletFlags(t *testing.T) {
	base := oracle.Plain(oracle.Version)
	for _, test := range []struct {
		name   string
		worker bool
		change func(*config.Config)
		want   string
	}{
		{"worker with taints", true, func(c *config.Config) {
			c.NodeRegistration.Name = c.Facts.Hostname
			c.NodeRegistration.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}, {Key: "x", Effect: "NoExecute"}}
		}, `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --pod-infra-container-image=registry.k8s.io/pause:3.9 --register-with-taints=gpu=yes:NoSchedule,x:NoExecute"`},
		{"the user's node IP wins", false, func(c *config.Config) {
			c.NodeRegistration.Name = c.Facts.Hostname
			c.Facts.DefaultRoute = false
			c.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "node-ip", Value: "192.0.2.9"}}
		}, `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=192.0.2.9 --pod-infra-container-image=registry.k8s.io/pause:3.9"`},
		{"the address of join --node-ip, also with a default route", false, func(c *config.Config) {
			c.NodeRegistration.Name = c.Facts.Hostname
			c.Facts.NodeIP, c.Facts.NodeIPGiven, c.Facts.DefaultRoute = "192.0.2.9", true, true
		}, `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=192.0.2.9 --pod-infra-container-image=registry.k8s.io/pause:3.9"`},
		{"both addresses in a dual-stack cluster", false, func(c *config.Config) {
			c.NodeRegistration.Name = c.Facts.Hostname
			c.Facts.OtherIP = "fd77::11"
			c.Networking.ServiceSubnet = config.ParseCIDRs("10.96.0.0/12,fd00:10:96::/112")
		}, `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=10.0.0.11,fd77::11 --pod-infra-container-image=registry.k8s.io/pause:3.9"`},
		{"an IPv6 address, because the kubelet prefers IPv4", false, func(c *config.Config) {
			c.NodeRegistration.Name = c.Facts.Hostname
			c.Facts.NodeIP, c.Facts.OtherIP = "fd77::11", "10.0.0.11"
			c.Networking = config.Networking{ServiceSubnet: config.ParseCIDRs("fd00:10:96::/112"), PodSubnet: config.ParseCIDRs("fd00:10:244::/56")}
		}, `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=fd77::11 --pod-infra-container-image=registry.k8s.io/pause:3.9"`},
		{"no pause flag for a kubelet that has lost it", false, func(c *config.Config) {
			c.KubernetesVersion = "v1.35.6"
			c.NodeRegistration.Name = c.Facts.Hostname
			c.FeatureGates = map[string]bool{"NodeLocalCRISocket": false}
		}, `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock"`},
		{"no flag at all", false, func(c *config.Config) {
			c.KubernetesVersion = "v1.36.3"
			c.NodeRegistration.Name = c.Facts.Hostname
		}, `KUBELET_KUBEADM_ARGS=""`},
	} {
		cfg := *base
		test.change(&cfg)
		got, err := render.KubeletFlags(&cfg, test.worker)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, test.name, test.want+"\n", string(got))
	}
}

// A new etcd joins with the names of all members, including itself.
func TestEtcdJoins(t *testing.T) {
	pod, err := render.Etcd(oracle.Plain(oracle.Version),
		render.EtcdMember{Name: "n0", PeerURL: "https://10.0.0.10:2380"}, render.EtcdMember{Name: "n1", PeerURL: "https://10.0.0.11:2380"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--initial-cluster=n0=https://10.0.0.10:2380,n1=https://10.0.0.11:2380", "--initial-cluster-state=existing"} {
		if !slices.Contains(pod.Spec.Containers[0].Command, want) {
			t.Errorf("%q is missing in %q", want, pod.Spec.Containers[0].Command)
		}
	}
}

// Without the CA's key, the controller manager must not try to sign.
func TestExternalCA(t *testing.T) {
	cfg := oracle.Plain(oracle.Version)
	for _, test := range []struct {
		files []string
		want  string
	}{
		{nil, "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key"},
		{[]string{"ca.crt", "ca.key"}, "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key"},
		{[]string{"ca.crt"}, "--cluster-signing-key-file="},
	} {
		root := hostWith(t, []string{"/etc/kubernetes/pki"})
		for _, file := range test.files {
			if err := os.WriteFile(filepath.Join(root, "/etc/kubernetes/pki", file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		pods, err := render.ControlPlane(cfg, os.DirFS(root))
		if err != nil {
			t.Fatal(err)
		}
		if got := pods["kube-controller-manager"].Spec.Containers[0].Command; !slices.Contains(got, test.want) {
			t.Errorf("with %v: %q is missing in %q", test.files, test.want, got)
		}
	}
}

func TestMissingImageIsNamed(t *testing.T) {
	cfg := oracle.Plain(oracle.Version)
	delete(cfg.Images, "coredns")
	if _, err := render.CoreDNS(cfg); err == nil || !strings.Contains(err.Error(), "no image for coredns") {
		t.Errorf("the error is %v", err)
	}
}

// The same input gives the same bytes.
func TestDeterministic(t *testing.T) {
	everything := func() string {
		cfg := namedCase(t, oracle.Version, "extra args and volumes").Config
		var all bytes.Buffer
		for _, obj := range append(objects(t, cfg, []byte("CA")), must(render.Flannel(cfg))...) {
			all.Write(encode(t, obj))
		}
		pods, err := render.ControlPlane(cfg, os.DirFS(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		data, err := yaml.Marshal(pods)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
		return all.String()
	}
	first := everything()
	for range 20 {
		if diff := cmp.Diff(first, everything()); diff != "" {
			t.Fatalf("differs from run to run:\n%s", diff)
		}
	}
}

func must(objects []runtime.Object, err error) []runtime.Object {
	if err != nil {
		panic(err)
	}
	return objects
}

func find[T runtime.Object](t *testing.T, objects []runtime.Object, name string) T {
	t.Helper()
	for _, obj := range objects {
		if o, ok := obj.(T); ok && strings.HasSuffix(oracle.Key(t, obj), "/"+name) {
			return o
		}
	}
	t.Fatalf("no object named %s", name)
	panic("unreachable")
}

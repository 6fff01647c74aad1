package reconfiguration

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/internal/fault"
	"airlift/scripts/oracle"
)

const version = "v1.37.1"

// before is the configuration of a cluster and of its first node.
func before(t *testing.T) (config.Cluster, Node) {
	t.Helper()
	c := oracle.Plain(version)
	text, err := render.ClusterConfiguration(c)
	if err != nil {
		t.Fatal(err)
	}
	stored, _, err := config.DecodeClusterConfiguration(text)
	if err != nil {
		t.Fatal(err)
	}
	return stored, Node{Name: "n1", CRISocket: c.NodeRegistration.CRISocket, Endpoint: c.LocalAPIEndpoint, CgroupDriver: "systemd"}
}

func given(t *testing.T, text string) *config.Given {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g, _, err := config.ReadReconfigure(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return g
}

// TestRefused: each change that a running cluster cannot make is refused with its line, the reason and what would be needed. The
// rest stays what it is.
func TestRefused(t *testing.T) {
	stored, n := before(t)
	for _, one := range oracle.Refused {
		c := oracle.Change{Name: one.Name, Cluster: one.Cluster, Components: one.Components}.Case(version)
		documents := c.Documents()
		if one.Init != "" {
			c.Init = one.Init
			documents = c.InitDocument()
		}
		if strings.HasPrefix(one.Cluster, "kubernetesVersion") { // the case has the version itself
			documents = strings.Replace(documents, "kubernetesVersion: "+version+"\n", "", 1)
		}
		g := given(t, documents)
		merged, refused := Merge(stored, g, n)
		if len(refused) != 1 {
			t.Errorf("%s: %v", one.Name, refused)
			continue
		}
		r := refused[0]
		if !strings.HasSuffix(r.Field, one.Field) || !strings.Contains(r.Field, "kubeadm.yaml:") || r.Reason == "" || r.Needed == "" || r.From == r.To {
			t.Errorf("%s: %+v", one.Name, r)
		}
		merged.Kubelet, merged.KubeProxy = nil, nil
		merged.APIServer, merged.ControllerManager, merged.Etcd.Local.ExtraArgs, merged.EncryptionAlgorithm = stored.APIServer, stored.ControllerManager, nil, stored.EncryptionAlgorithm
		merged.CertificateValidityPeriod, merged.CACertificateValidityPeriod, merged.ImageRepository, merged.FeatureGates = stored.CertificateValidityPeriod, stored.CACertificateValidityPeriod, stored.ImageRepository, stored.FeatureGates
		if !reflect.DeepEqual(merged.Networking, stored.Networking) || !reflect.DeepEqual(merged.Etcd, stored.Etcd) || merged.ClusterName != stored.ClusterName || merged.KubernetesVersion != version ||
			merged.CertificatesDir != stored.CertificatesDir || merged.ControlPlaneEndpoint != stored.ControlPlaneEndpoint {
			t.Errorf("%s: it is merged in spite of that: %+v", one.Name, merged)
		}
	}
}

// TestStoredDocumentsChangeNothing: what the cluster stores, given back, changes nothing, also for each of the changes. A document
// that is not given leaves all as it is.
func TestStoredDocumentsChangeNothing(t *testing.T) {
	stored, n := before(t)
	for _, change := range oracle.Changes(version) {
		c := oracle.Plain(version)
		var refused []Refusal
		c.Cluster, refused = Merge(stored, given(t, change.Case(version).Documents()), n)
		if len(refused) > 0 {
			t.Fatal(change.Name, refused)
		}
		c.CompleteUpgrade(true)
		text, err := render.ClusterConfiguration(c)
		if err != nil {
			t.Fatal(err)
		}
		now, _, err := config.DecodeClusterConfiguration(text)
		if err != nil {
			t.Fatal(err)
		}
		again := oracle.Plain(version)
		if again.Cluster, refused = Merge(now, given(t, string(text)), n); len(refused) > 0 {
			t.Errorf("%s: %v", change.Name, refused)
		}
		again.CompleteUpgrade(true)
		if same, err := render.ClusterConfiguration(again); err != nil || string(same) != string(text) {
			t.Errorf("%s: %v\n%s\nand again:\n%s", change.Name, err, text, same)
		}
		// The documents that were given, again: a cluster.yaml that has them since init.
		unchanged := oracle.Plain(version)
		if unchanged.Cluster, refused = Merge(now, given(t, change.Case(version).Documents()), n); len(refused) > 0 {
			t.Errorf("%s: %v", change.Name, refused)
		}
		unchanged.CompleteUpgrade(true)
		if same, err := render.ClusterConfiguration(unchanged); err != nil || string(same) != string(text) {
			t.Errorf("%s: %v\n%s\nand the same documents again:\n%s", change.Name, err, text, same)
		}
		kept, refused := Merge(now, given(t, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n"), n)
		if len(refused) > 0 || kept.Kubelet == nil || kept.Kubelet.MaxPods != 7 {
			t.Errorf("%s: %v", change.Name, refused)
		}
		if kept.Kubelet = nil; !reflect.DeepEqual(kept, now) {
			t.Errorf("%s: a KubeletConfiguration changes the ClusterConfiguration: %+v", change.Name, kept)
		}
	}
}

// TestNamesOfTheEndpointStay: init and "endpoint apply" store the names of the endpoint in certSANs, where no document of the user
// has them.
func TestNamesOfTheEndpointStay(t *testing.T) {
	const documents = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nencryptionAlgorithm: RSA-2048\napiServer: {certSANs: [api.site.example]}\n"
	c := oracle.Plain(version)
	c.APIServer.CertSANs = []string{"api.site.example"}
	c.Endpoint = config.Endpoint{VIPs: []string{"10.1.2.100"}, Balancer: true}
	c.CompleteInit()
	text, err := render.ClusterConfiguration(c)
	if err != nil || !strings.Contains(string(text), "- 10.1.2.100") {
		t.Fatalf("%v\n%s", err, text)
	}
	again := oracle.Plain(version)
	again.Cluster, _ = Merge(c.Cluster, given(t, documents), Node{})
	again.CompleteUpgrade(true)
	if same, err := render.ClusterConfiguration(again); err != nil || string(same) != string(text) {
		t.Errorf("%v\n%s\nand again:\n%s", err, text, same)
	}
}

// TestStrict: each byte of the file is used, or is an error or a warning.
func TestStrict(t *testing.T) {
	const cluster = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
	for text, want := range map[string]string{
		cluster + "apiServers: {}\n": "apiServers is not known",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: /a}}\n": "JoinConfiguration does not apply to reconfigure",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: UpgradeConfiguration\n":                                       "UpgradeConfiguration does not apply",
		"apiVersion: v1\nkind: ConfigMap\n":                                                                      "this document must have an apiVersion and a kind",
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPod: 7\n":                     "maxPod is not known",
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: [a]\n":                "mode",
		cluster + "---\n" + cluster: "occurs twice",
		"":                          "no document",
	} {
		file := filepath.Join(t.TempDir(), "kubeadm.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if g, _, err := config.ReadReconfigure(file); err == nil || g != nil || fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	file := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nbootstrapTokens: [{}]\nskipPhases: [addon]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, warnings, err := config.ReadReconfigure(file); err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], "effect only in init") {
		t.Error(warnings, err)
	}
	if _, _, err := config.ReadReconfigureNode(file); err != nil {
		t.Error(err)
	}
}

// TestUses: the files of components, and which of them reads one.
func TestUses(t *testing.T) {
	c := &config.Cluster{}
	c.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "a", HostPath: "/etc/audit", MountPath: "/audit"}, {Name: "f", HostPath: "/etc/one.yaml", MountPath: "/one.yaml"}}
	c.APIServer.ExtraArgs = []config.Arg{{Name: "audit-policy-file", Value: "/audit/p.yaml"}, {Name: "tracing-config-file", Value: "/one.yaml"}, {Name: "encryption-provider-config", Value: "/etc/kubernetes/pki/keys.yaml"}}
	c.Scheduler.ExtraVolumes = []config.HostPathMount{{Name: "a", HostPath: "/etc/audit", MountPath: "/audit"}}
	for file, want := range map[string][]string{
		"/etc/audit/p.yaml": {"kube-apiserver"}, "/etc/audit/other": {"kube-apiserver", "kube-scheduler"}, "/etc/one.yaml": {"kube-apiserver"},
		"/etc/kubernetes/pki/keys.yaml": {"kube-apiserver"}, "/etc/kubernetes/pki/other": {"kube-apiserver", "kube-controller-manager"}, "/etc/auditor": nil, "/etc": nil,
	} {
		if got := UsersOf(c, file); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
	}
	for flag, want := range map[string]string{"audit-policy-file": "/etc/audit/p.yaml", "tracing-config-file": "/etc/one.yaml", "encryption-provider-config": "/etc/kubernetes/pki/keys.yaml", "v": ""} {
		if got := FileOf(c, "kube-apiserver", flag); got != want {
			t.Errorf("%s: %s, want %s", flag, got, want)
		}
	}
}

// TestStoredCgroupDriver: kubeadm stores a driver that nodes with another one do not have. What 'reconfigure print' prints is no change.
func TestStoredCgroupDriver(t *testing.T) {
	stored, node := before(t)
	node.CgroupDriver, node.StoredKubelet = "cgroupfs", []byte("cgroupDriver: systemd\n")
	for driver, refusals := range map[string]int{"systemd": 0, "cgroupfs": 0, "": 0, "other": 1} {
		text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 100\n"
		if driver != "" {
			text += "cgroupDriver: " + driver + "\n"
		}
		if _, refused := Merge(stored, given(t, text), node); len(refused) != refusals {
			t.Errorf("%q: refused %+v", driver, refused)
		}
	}
}

// TestAddOns: an add-on is disabled only if the cluster does not have it, and enabled only if the cluster has it.
func TestAddOns(t *testing.T) {
	const head = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
	for name, field := range map[string]string{CoreDNS: "dns", KubeProxy: "proxy"} {
		for i := range 8 {
			was, is, has := i&1 > 0, i&2 > 0, i&4 > 0
			stored, n := before(t)
			if stored.DNS.Disabled = was && field == "dns"; has {
				n.AddOns = []string{name}
			}
			stored.Proxy.Disabled = was && field == "proxy"
			merged, refused := Merge(stored, given(t, fmt.Sprintf("%s%s: {disabled: %t}\n", head, field, is)), n)
			wrong := was != is && is == has
			if wrong != (len(refused) == 1) || len(refused) > 1 {
				t.Errorf("%s was disabled %t, is to be %t, exists %t: %+v", name, was, is, has, refused)
			}
			for _, r := range refused {
				if !strings.HasSuffix(r.Field, field+".disabled") || !strings.Contains(r.Needed, name) {
					t.Errorf("%+v", r)
				}
			}
			if !wrong && (merged.DNS.Disabled || merged.Proxy.Disabled) != is {
				t.Errorf("%s: %t is not in %+v", name, is, merged)
			}
		}
	}
}

// TestOtherFieldsStay: a ClusterConfiguration replaces no field that it cannot have: what the cluster stores elsewhere.
func TestOtherFieldsStay(t *testing.T) {
	stored, n := before(t)
	of := reflect.ValueOf(&stored).Elem()
	for i := range of.NumField() {
		if of.Type().Field(i).Tag.Get("json") == "-" {
			fill(of.Field(i))
		}
	}
	merged, _ := Merge(stored, given(t, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nimageRepository: site.example\n"), n)
	for i := range of.NumField() {
		field := of.Type().Field(i)
		if was, is := of.Field(i), reflect.ValueOf(merged).Field(i); field.Tag.Get("json") == "-" && (was.IsZero() || !reflect.DeepEqual(was.Interface(), is.Interface())) {
			t.Errorf("%s: %+v becomes %+v", field.Name, was, is)
		}
	}
}

// fill sets numbers, texts and lists of texts in a value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	}
}

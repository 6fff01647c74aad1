package render_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/installer/config"
	"airlift/installer/patches"
	"airlift/installer/render"
	"airlift/scripts/oracle"
)

// TestEqualsKubeadm compares all results of the package with the results of real kubeadm, in the
// oldest and the newest version, for every case.
func TestEqualsKubeadm(t *testing.T) {
	cases := allCases()
	var mu sync.Mutex
	ran, showed := 0, map[string][]string{} // versions by difference
	t.Cleanup(func() {
		if ran < len(cases) {
			return // -run selected only some cases
		}
		for _, d := range oracle.Differences {
			if d.Apply == nil {
				continue
			}
			want := slices.DeleteFunc(slices.Sorted(slices.Values(oracle.Versions)), func(version string) bool { return !d.Have(version) })
			if got := slices.Compact(slices.Sorted(slices.Values(showed[d.What]))); !slices.Equal(got, want) {
				t.Errorf("the listed difference %q shows with %q, not with %q", d.What, got, want)
			}
		}
	})
	for _, c := range cases {
		t.Run(c.Config.KubernetesVersion+" "+c.Name, func(t *testing.T) {
			t.Parallel()
			want := oracle.Expect(t, c)
			cfg := c.Config
			mu.Lock()
			ran++
			for _, what := range want.Applied {
				showed[what] = append(showed[what], cfg.KubernetesVersion)
			}
			mu.Unlock()
			host := os.DirFS(hostWith(t, c.HostDirs))
			set := patchSet(t, c)

			compareRendered(t, cfg, host, set, want)
		})
	}
}

// compareRendered compares what a configuration gives with what kubeadm makes.
func compareRendered(t *testing.T, cfg *config.Config, host fs.FS, set *patches.Set, want oracle.Want) {
	t.Helper()
	pods, err := render.ControlPlane(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Etcd.External == nil {
		if pods["etcd"], err = render.Etcd(cfg); err != nil {
			t.Fatal(err)
		}
	}
	for name, pod := range pods {
		if pod, _, err = set.Pod(pod); err != nil {
			t.Fatal(err)
		}
		got := &corev1.Pod{} // as the kubelet reads it
		oracle.Decode(t, encode(t, pod), got)
		compare(t, "static pod "+name, want.Pods[name], got)
	}
	if len(pods) != len(want.Pods) {
		t.Errorf("%d static pods, kubeadm makes %d", len(pods), len(want.Pods))
	}

	cluster, err := render.KubeletConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	node, err := render.NodeKubeletConfig(cfg, cluster)
	if err != nil {
		t.Fatal(err)
	}
	if node, _, err = set.Apply(patches.KubeletConfiguration, node); err != nil {
		t.Fatal(err)
	}
	var got kubeletv1.KubeletConfiguration
	oracle.Decode(t, node, &got)
	compare(t, "the node's KubeletConfiguration", want.Kubelet, got)
	compare(t, "instance-config.yaml", want.InstanceConfig, string(render.KubeletInstanceConfig(cfg)))
	flags, err := render.KubeletFlags(cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "kubeadm-flags.env", want.KubeletFlags, string(flags))

	applied, _, err := set.AddOn(objects(t, cfg, want.Output.Read(t, "ca.crt")))
	if err != nil {
		t.Fatal(err)
	}
	compareObjects(t, want.Objects, applied)
}

// allCases returns the cases of every version.
func allCases() []oracle.Case {
	var list []oracle.Case
	for _, version := range oracle.Versions {
		list = append(list, oracle.Cases(version)...)
		list = append(list, oracle.PoorHosts(version)...)
	}
	return list
}

func namedCase(t *testing.T, version, name string) oracle.Case {
	t.Helper()
	for _, c := range oracle.Cases(version) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no case %q for %s", name, version)
	return oracle.Case{}
}

// patchSet reads the case's patches as the installer does. Only the three files
// that kubeadm ignores may cause a warning.
func patchSet(t *testing.T, c oracle.Case) *patches.Set {
	t.Helper()
	if len(c.Patches) == 0 {
		return nil
	}
	dir := t.TempDir()
	for name, text := range c.Patches {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, warnings, err := patches.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "files passed over", 3, len(warnings))
	return set
}

// objects returns all objects that init applies, except objects that a dry run does not show: the
// bootstrap token and the administrators' binding.
func objects(t *testing.T, cfg *config.Config, caPEM []byte) []runtime.Object {
	t.Helper()
	all := append(render.BootstrapRBAC(cfg), render.ClusterInfo(cfg, caPEM)...)
	if cfg.UploadCerts {
		all = append(all, render.UploadCertsRBAC()...)
	}
	builders := []func(*config.Config) ([]runtime.Object, error){render.UploadClusterConfig, render.UploadKubeletConfig}
	if !cfg.DNS.Disabled {
		builders = append(builders, render.CoreDNS)
	}
	if !cfg.Proxy.Disabled {
		builders = append(builders, render.KubeProxy)
	}
	for _, build := range builders {
		list, err := build(cfg)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list...)
	}
	return all
}

func compareObjects(t *testing.T, want map[string]runtime.Object, got []runtime.Object) {
	t.Helper()
	seen := map[string]bool{}
	for _, obj := range got {
		key := oracle.Key(t, obj)
		if seen[key] {
			t.Errorf("%s is made twice", key)
		}
		seen[key] = true
		if want[key] == nil {
			t.Errorf("%s is made, but not by kubeadm", key)
			continue
		}
		decoded := oracle.Object(t, encode(t, obj)) // with its kind, as the client sends it
		if m, ok := decoded.(*corev1.ConfigMap); ok {
			compareConfigMaps(t, key, want[key].(*corev1.ConfigMap), m)
			continue
		}
		compare(t, key, want[key], decoded)
	}
	for key := range want {
		if !seen[key] {
			t.Errorf("%s is made by kubeadm, but not here", key)
		}
	}
}

// compareConfigMaps compares the content of documents, not their formatting.
// The checksum of the formatting must exist in both, or in neither.
func compareConfigMaps(t *testing.T, key string, want, got *corev1.ConfigMap) {
	t.Helper()
	if w, g := oracle.SignedDefaults(t, want), oracle.SignedDefaults(t, got); w != g {
		t.Errorf("%s: signed as defaults: %v, kubeadm's: %v", key, g, w)
	}
	compare(t, key+" keys", slices.Sorted(maps.Keys(want.Data)), slices.Sorted(maps.Keys(got.Data)))
	for name := range got.Data {
		w, g := documentType(name), documentType(name)
		decodeDocument(t, want.Data[name], w)
		decodeDocument(t, got.Data[name], g)
		compare(t, key+" "+name, w, g)
	}
	want, got = want.DeepCopy(), got.DeepCopy()
	want.Data, got.Data, want.Annotations, got.Annotations = nil, nil, nil, nil
	compare(t, key, want, got)
}

func documentType(key string) any {
	switch key {
	case "config.conf":
		return &kubeproxyv1.KubeProxyConfiguration{}
	case "kubelet":
		return &kubeletv1.KubeletConfiguration{}
	case "kubeconfig":
		return &clientcmdv1.Config{}
	case "Corefile":
		return new(string)
	}
	return &map[string]any{}
}

func decodeDocument(t *testing.T, text string, into any) {
	t.Helper()
	if s, ok := into.(*string); ok {
		*s = text
		return
	}
	oracle.Decode(t, []byte(text), into)
}

func compare(t *testing.T, what string, want, got any) {
	t.Helper()
	byName := cmpopts.SortSlices(func(a, b corev1.VolumeMount) bool { return a.Name < b.Name })
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), byName); diff != "" {
		t.Errorf("%s differs (-kubeadm +ours):\n%s", what, diff)
	}
}

func encode(t *testing.T, obj any) []byte {
	t.Helper()
	data, err := render.YAML(obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func hostWith(t *testing.T, dirs []string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

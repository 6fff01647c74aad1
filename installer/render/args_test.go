package render_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/scripts/oracle"
)

// kubeadm reads mergeMethod only in kubeadm.k8s.io/v1, which kubeadm init does
// not accept yet. The expected values follow its util/arguments.go.
func TestMergeMethod(t *testing.T) {
	cfg := oracle.Plain(oracle.Newest)
	cfg.APIServer.ExtraArgs = []config.Arg{
		{Name: "enable-admission-plugins", Value: ",AlwaysPullImages", MergeMethod: "append"},
		{Name: "authorization-mode", Value: "Webhook,", MergeMethod: "prepend"},
		{Name: "secure-port", Value: "7443"},
		// kubeadm does not set this flag: see oracle.Differences.
		{Name: "audit-log-path", Value: "/var/log/audit.log", MergeMethod: "append"},
	}
	cfg.Etcd.Local.ExtraArgs = []config.Arg{{Name: "advertise-client-urls", Value: ",https://etcd.example.com:2379", MergeMethod: "append"}}
	cfg.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "hostname-override", Value: ".example.com", MergeMethod: "append"}}

	pods, err := render.ControlPlane(cfg, os.DirFS(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := render.Etcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		pod  *corev1.Pod
		flag string
	}{
		{pods["kube-apiserver"], "--enable-admission-plugins=NodeRestriction,AlwaysPullImages"},
		{pods["kube-apiserver"], "--authorization-mode=Webhook,Node,RBAC"},
		{pods["kube-apiserver"], "--secure-port=7443"},
		{pods["kube-apiserver"], "--audit-log-path=/var/log/audit.log"},
		{pods["kube-apiserver"], "--etcd-servers=https://127.0.0.1:2379,https://etcd.example.com:2379"},
		{etcd, "--advertise-client-urls=https://10.0.0.11:2379,https://etcd.example.com:2379"},
	} {
		name, _, _ := strings.Cut(test.flag, "=")
		var got []string
		for _, arg := range test.pod.Spec.Containers[0].Command {
			if strings.HasPrefix(arg, name+"=") {
				got = append(got, arg)
			}
		}
		if !slices.Equal(got, []string{test.flag}) {
			t.Errorf("%s has %q, want %q", test.pod.Name, got, test.flag)
		}
	}
	flags, err := render.KubeletFlags(cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "kubelet flags", "KUBELET_KUBEADM_ARGS=\"--hostname-override=n1.example.com\"\n", string(flags))

	// The stored configuration has no field for it, as in kubeadm.
	stored, err := render.ClusterConfiguration(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(stored), "mergeMethod") {
		t.Errorf("v1beta4 has no mergeMethod:\n%s", stored)
	}
}

// A repeated flag keeps the user's order, except with v1.31, whose kubeadm sorts
// the values. Before, kubeadm knew no repeated flags.
func TestRepeatedFlags(t *testing.T) {
	const a, b = "--service-account-issuer=https://a", "--service-account-issuer=https://b"
	for version, want := range map[string][]string{"v1.29.15": {b, a}, "v1.31.14": {a, b}, "v1.32.13": {b, a}, "v1.37.1": {b, a}} {
		cfg := oracle.Plain(oracle.Version)
		cfg.KubernetesVersion = version
		cfg.APIServer.ExtraArgs = []config.Arg{{Name: "service-account-issuer", Value: "https://b"}, {Name: "service-account-issuer", Value: "https://a"}}
		pods, err := render.ControlPlane(cfg, os.DirFS(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(pods["kube-apiserver"].Spec.Containers[0].Command,
			func(arg string) bool { return !strings.HasPrefix(arg, "--service-account-issuer") })
		compare(t, version, want, got)
	}
}

// kube-proxy may have a separate address for the API server.
func TestProxyServer(t *testing.T) {
	cfg := oracle.Plain(oracle.Newest)
	cfg.ControlPlaneEndpoint = "k8s.example.com"
	cfg.ProxyServer = "https://10.0.0.99:8443"
	settings := find[*corev1.ConfigMap](t, must(render.KubeProxy(cfg)), "kube-proxy").Data
	if !strings.Contains(settings["kubeconfig.conf"], "server: https://10.0.0.99:8443\n") {
		t.Errorf("kube-proxy's kubeconfig:\n%s", settings["kubeconfig.conf"])
	}
}

// etcd 3.6 has other flags. The image tag determines the version of etcd.
func TestEtcdFlagsFollowTheImage(t *testing.T) {
	const old, new = "--experimental-watch-progress-notify-interval=5s", "--watch-progress-notify-interval=5s"
	for _, test := range []struct{ version, image, want string }{
		{"v1.33.13", "registry.k8s.io/etcd:3.6.5-0", old},
		{"v1.34.9", "registry.example.com:5000/etcd:3.5.24-0", old},
		{"v1.34.9", "registry.k8s.io/etcd:3.6.0-0", old},
		{"v1.34.9", "registry.k8s.io/etcd:3.6.5-0", new},
		{"v1.35.6", "registry.k8s.io/etcd:3.6.6-0@sha256:" + strings.Repeat("0", 64), new},
		{"v1.36.3", "registry.example.com/etcd:mine", new},
	} {
		cfg := oracle.Plain(oracle.Version)
		cfg.KubernetesVersion, cfg.Images["etcd"] = test.version, test.image
		pod, err := render.Etcd(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := pod.Spec.Containers[0].Command; !slices.Contains(got, test.want) {
			t.Errorf("%s with %s: %q is missing in %q", test.version, test.image, test.want, got)
		}
	}
}

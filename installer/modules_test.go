package installer

import (
	"os"
	"slices"
	"strings"
	"testing"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/config"
	"airlift/installer/preflight"
)

// init knows kube-proxy's mode from the user, join from the cluster.
func TestKernelModulesForKubeProxy(t *testing.T) {
	ipvs := &kubeproxyv1.KubeProxyConfiguration{Mode: "ipvs", IPVS: kubeproxyv1.KubeProxyIPVSConfiguration{Scheduler: "wlc"}}
	for name, c := range map[string]struct {
		node Node
		want bool
	}{
		"init":                       {Node{role: preflight.Init, Config: &config.Config{Cluster: config.Cluster{KubeProxy: ipvs}}}, true},
		"init, nothing said":         {Node{role: preflight.Init, Config: &config.Config{}}, false},
		"init without kube-proxy":    {Node{role: preflight.Init, Config: &config.Config{Cluster: config.Cluster{KubeProxy: ipvs}, SkipPhases: []string{"addon/kube-proxy"}}}, false},
		"join":                       {Node{role: preflight.Join, Config: &config.Config{}, kubeProxy: ipvs}, true},
		"join, a control plane":      {Node{role: preflight.JoinControlPlane, Config: &config.Config{}, kubeProxy: ipvs}, true},
		"join, another mode":         {Node{role: preflight.Join, Config: &config.Config{}, kubeProxy: &kubeproxyv1.KubeProxyConfiguration{Mode: "iptables"}}, false},
		"join, without a kube-proxy": {Node{role: preflight.Join, Config: &config.Config{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			modules := c.node.kernelModules()
			if got := slices.Contains(modules, "ip_vs") && slices.Contains(modules, "ip_vs_wlc"); got != c.want || !slices.Contains(modules, "overlay") {
				t.Errorf("modules: %s", strings.Join(modules, " "))
			}
		})
	}
}

// The kubelet's directory for certificates goes with reset where it was made for
// it, and stays where it was there before.
func TestKubeletCertDirIsRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		dir    string
		exists bool
		want   bool
	}{
		"the default":    {"", false, false},
		"another":        {"/data/kubelet-pki", false, true},
		"an existing":    {"/data/kubelet-pki", true, false},
		"below the root": {"/var/lib/kubelet/certs", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			root, _ := aHost(t)
			n := nodeOn(t, root, nil)
			n.Config = &config.Config{}
			n.Config.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "cert-dir", Value: c.dir}}
			if c.exists {
				if err := os.MkdirAll(n.Host.Path(c.dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.ownKubeletCertDir(); err != nil {
				t.Fatal(err)
			}
			if got := c.dir != "" && n.Host.Claimed("the kubelet's certificates") == c.dir; got != c.want {
				t.Errorf("recorded: %v, want %v", got, c.want)
			}
		})
	}
}

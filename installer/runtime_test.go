package installer

import (
	"os"
	"slices"
	"strings"
	"testing"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/config"
)

// init takes kube-proxy's mode from the user's configuration, join from the
// cluster.
func TestKernelModulesForKubeProxy(t *testing.T) {
	ipvs := &kubeproxyv1.KubeProxyConfiguration{Mode: "ipvs", IPVS: kubeproxyv1.KubeProxyIPVSConfiguration{Scheduler: "wlc"}}
	init := func(c config.Config) *kubeproxyv1.KubeProxyConfiguration {
		return newInit(&Plan{role: firstControlPlane, bundle: new(Bundle), config: &c}, InitOptions{}, nil).proxyConfig()
	}
	for name, c := range map[string]struct {
		proxy *kubeproxyv1.KubeProxyConfiguration
		want  bool
	}{
		"init":                       {init(config.Config{Cluster: config.Cluster{KubeProxy: ipvs}}), true},
		"init, nothing said":         {init(config.Config{}), false},
		"init, disabled":             {init(config.Config{Cluster: config.Cluster{KubeProxy: ipvs, Proxy: config.Proxy{Disabled: true}}}), false},
		"init without kube-proxy":    {init(config.Config{Cluster: config.Cluster{KubeProxy: ipvs}, SkipPhases: []string{"addon/kube-proxy"}}), false},
		"join":                       {ipvs, true},
		"join, another mode":         {&kubeproxyv1.KubeProxyConfiguration{Mode: "iptables"}, false},
		"join, without a kube-proxy": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			modules := kernelModules(c.proxy)
			if got := slices.Contains(modules, "ip_vs") && slices.Contains(modules, "ip_vs_wlc"); got != c.want || !slices.Contains(modules, "overlay") {
				t.Errorf("modules: %s", strings.Join(modules, " "))
			}
		})
	}
}

// Reset removes the kubelet's certificate directory only if Airlift created it.
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
			cfg := &config.Config{}
			n := newNode(&Plan{role: firstControlPlane, bundle: new(Bundle), config: cfg}, newMachine(hostOn(t, root), nil))
			cfg.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "cert-dir", Value: c.dir}}
			if c.exists {
				if err := os.MkdirAll(n.host.Path(c.dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.claimKubeletCertDir(); err != nil {
				t.Fatal(err)
			}
			if got := c.dir != "" && n.host.Claimed("the kubelet's certificates") == c.dir; got != c.want {
				t.Errorf("recorded: %v, want %v", got, c.want)
			}
		})
	}
}

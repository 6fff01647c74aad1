package initcluster

import (
	"testing"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/config"
	"airlift/installer/payload"
	"airlift/installer/phases"
)

// init takes kube-proxy's mode, and so the kernel modules, from the user's configuration, unless it installs
// no kube-proxy.
func TestConfigurationOfKubeProxy(t *testing.T) {
	ipvs := &kubeproxyv1.KubeProxyConfiguration{Mode: "ipvs", IPVS: kubeproxyv1.KubeProxyIPVSConfiguration{Scheduler: "wlc"}}
	for name, c := range map[string]struct {
		config config.Config
		want   bool
	}{
		"configured":         {config.Config{Cluster: config.Cluster{KubeProxy: ipvs}}, true},
		"nothing said":       {config.Config{}, false},
		"disabled":           {config.Config{Cluster: config.Cluster{KubeProxy: ipvs, Proxy: config.Proxy{Disabled: true}}}, false},
		"without kube-proxy": {config.Config{Cluster: config.Cluster{KubeProxy: ipvs}, SkipPhases: []string{"addon/kube-proxy"}}, false},
	} {
		i := newInit(&phases.Plan{Role: phases.FirstControlPlane, Bundle: new(payload.Bundle), Config: &c.config}, phases.InitOptions{}, nil)
		proxy := i.proxyConfig()
		if got := proxy != nil && proxy.Mode == "ipvs" && proxy.IPVS.Scheduler == "wlc"; got != c.want {
			t.Errorf("%s: %v", name, proxy)
		}
	}
}

package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

// WithServer returns a kubeconfig that reaches the cluster of its current context at another URL, or all its clusters if it has
// no such context, as in cluster-info. A user may have added other clusters.
func WithServer(kubeconfig []byte, server string) ([]byte, error) {
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	now := cfg.Contexts[cfg.CurrentContext]
	for name, c := range cfg.Clusters {
		if now == nil || now.Cluster == name {
			c.Server = server
		}
	}
	return clientcmd.Write(*cfg)
}

// ServerOf returns the URL of the API server of a kubeconfig's current context; "" if it has none.
func ServerOf(kubeconfig []byte) (string, error) {
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return "", fmt.Errorf("reading kubeconfig: %w", err)
	}
	if now := cfg.Contexts[cfg.CurrentContext]; now != nil && cfg.Clusters[now.Cluster] != nil {
		return cfg.Clusters[now.Cluster].Server, nil
	}
	return "", nil
}

// WithServersOf returns a kubeconfig that reaches its clusters at the URLs that another one has for them.
func WithServersOf(kubeconfig, other []byte) ([]byte, error) {
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	from, err := clientcmd.Load(other)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	for name, c := range cfg.Clusters {
		if o := from.Clusters[name]; o != nil {
			c.Server = o.Server
		}
	}
	return clientcmd.Write(*cfg)
}

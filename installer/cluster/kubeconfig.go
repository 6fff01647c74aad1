package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

// WithServer returns a kubeconfig that reaches its clusters at another URL.
func WithServer(kubeconfig []byte, server string) ([]byte, error) {
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	for _, c := range cfg.Clusters {
		c.Server = server
	}
	return clientcmd.Write(*cfg)
}

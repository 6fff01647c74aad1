package cluster

import (
	"crypto/tls"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Credentials returns what the current context of a kubeconfig uses for connections: the trusted CA and the client
// certificate, and the bearer token, or "".
func Credentials(kubeconfig []byte) (*tls.Config, string, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, "", fmt.Errorf("reading kubeconfig: %w", err)
	}
	trust, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("reading kubeconfig: %w", err)
	}
	if trust == nil { // only the host's own CAs
		trust = &tls.Config{}
	}
	return trust, cfg.BearerToken, nil
}

package cluster

import (
	"crypto/tls"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/cluster/health"
)

// Credentials returns what the current context of a kubeconfig uses for connections to services that have the certificate of
// an API server: the trusted CA, the name and the client certificate, and the bearer token, or "".
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
	trust.ServerName = health.ServerName
	return trust, cfg.BearerToken, nil
}

package service

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"sync"

	"airlift/installer/cluster"
)

// A reader is who sent a request.
type reader int

const (
	nobody  reader = iota
	joining        // a host with a bootstrap token: it reads bundles
	member         // a node of the cluster: it reads bundles and images
)

// The identity of kubelets in their client certificate.
const (
	nodesGroup     = "system:nodes"
	nodeUserPrefix = "system:node:"
)

// An access decides who may read.
type access struct {
	api     api
	answers *answers

	mu    sync.Mutex
	known bool // whether names was ever known
	names map[string]bool
}

// use makes names the nodes of the cluster.
func (a *access) use(names []string) {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known, a.names = true, set
}

// who returns who sent a request. The error is that the API does not answer, and nobody else knows.
func (a *access) who(r *http.Request) (reader, error) {
	if r.TLS != nil {
		if name := nodeName(*r.TLS); name != "" {
			if is, err := a.isNode(r.Context(), name); is || err != nil {
				return member, err
			}
		}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || !cluster.IsBootstrapToken(token) {
		return nobody, nil
	}
	sum := sha256.Sum256([]byte(token))
	is, err := a.answers.get(r.Context(), askerOf(r), "token "+string(sum[:]), func(ctx context.Context) (bool, error) {
		return a.api.ReviewToken(ctx, token)
	})
	if is && err == nil {
		return joining, nil
	}
	return nobody, err
}

// nodeName returns the name in the client certificate of a kubelet, "" if there is none. The TLS handshake has verified
// that the cluster's CA signed it, for clients.
func nodeName(state tls.ConnectionState) string {
	if len(state.VerifiedChains) == 0 {
		return ""
	}
	cert := state.PeerCertificates[0]
	name, ok := strings.CutPrefix(cert.Subject.CommonName, nodeUserPrefix)
	if !ok || !slices.Contains(cert.Subject.Organization, nodesGroup) || !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		return ""
	}
	return name
}

// isNode reports whether there is a Node. One that the list does not have may be new, so the API is asked. While it does
// not answer, the last list decides.
func (a *access) isNode(ctx context.Context, name string) (bool, error) {
	a.mu.Lock()
	listed, known := a.names[name], a.known
	a.mu.Unlock()
	if listed {
		return true, nil
	}
	is, err := a.answers.get(ctx, asker{name: nodeUserPrefix + name}, "node "+name, func(ctx context.Context) (bool, error) { return a.api.NodeExists(ctx, name) })
	if err != nil && known {
		return false, nil
	}
	return is, err
}

// askerOf returns the client of a request.
func askerOf(r *http.Request) asker {
	address, network := addressOf(r.RemoteAddr)
	return asker{address, network}
}

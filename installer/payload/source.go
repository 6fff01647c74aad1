package payload

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"airlift/bundle/remote"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Thin reports whether the file is thin, so that a cluster's control planes must have the rest.
func (b *Bundle) Thin() bool { return b.File != nil && b.File.Thin() }

// NeedsSource returns an error if the file is thin and no source has been attached.
func (b *Bundle) NeedsSource() error {
	if b.Thin() && b.source == nil {
		return b.File.NeedsWhole()
	}
	return nil
}

// AttachNode is Attach with the credentials of this host's kubelet.
func (b *Bundle) AttachNode(ctx context.Context, h *host.Host, c *workflow.Console) error {
	if b.NeedsSource() == nil {
		return nil
	}
	if !node.FileExists(h, node.KubeletConf) {
		return fault.New(fault.Preflight, "this host is not a node of a cluster, and %s is a thin file", b.File.Path()).Hint("use the whole file, or first join this host to a cluster")
	}
	kubeconfig, err := cluster.ReadCredentials(h.Path(node.KubeletConf))
	if err != nil {
		return err
	}
	return b.Attach(ctx, kubeconfig, c)
}

// Attach makes a thin file read what it does not have from the control planes of a cluster, with the CA and the
// credentials of a kubeconfig. It fails if none of them has the bundle. It does nothing for a whole file, or if
// it has been called before. Close ends the connections.
func (b *Bundle) Attach(ctx context.Context, kubeconfig []byte, c *workflow.Console) error {
	if b.NeedsSource() == nil {
		return nil
	}
	client, err := cluster.New(kubeconfig, "")
	if err != nil {
		return err
	}
	trust, token, err := cluster.Credentials(kubeconfig)
	if err != nil {
		return err
	}
	servers := registryAddresses(ctx, client)
	source, err := remote.Open(ctx, remote.Options{
		ID: b.File.ID(), Size: b.File.WholeSize(), Servers: func() []string { return servers }, TLS: trust, Token: token,
		Wrap:   func(t http.RoundTripper) http.RoundTripper { return cluster.Logged{RoundTripper: t} },
		Report: func(line string) { c.Note("the rest of this file: %s", line) },
	})
	if err != nil {
		return err
	}
	if err := source.Probe(ctx); err != nil {
		_ = source.Close()
		return fault.Wrap(err, fault.Preflight, fault.Hint(err))
	}
	b.ReadFrom(source)
	return nil
}

// A Source has the bytes of the whole bundle.
type Source interface {
	io.ReaderAt
	io.Closer
}

// ReadFrom makes a thin file read what it does not have from source, which Close closes. It closes the source before.
func (b *Bundle) ReadFrom(source Source) {
	if b.source != nil {
		_ = b.source.Close()
	}
	b.source = source
	b.File.Attach(source)
}

// listTimeout limits the wait for the list of API servers. Their services may answer while no API server does.
const listTimeout = 10 * time.Second

// registryAddresses returns the addresses at which control planes may serve their bundles: the control planes that the cluster lists, in
// random order, because many hosts may read at once, then the one that client uses.
func registryAddresses(ctx context.Context, client *cluster.Client) (servers []string) {
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listed, _ := client.APIServers(limited) // a user without the permission only has the one that it uses
	for _, a := range listed {
		servers = append(servers, RegistryAddress(a.Addr().String()))
	}
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	u, err := url.Parse(client.Server)
	if err != nil {
		return servers
	}
	own := RegistryAddress(u.Hostname())
	ip, _ := netip.ParseAddr(u.Hostname())
	if slices.Contains(servers, own) || ip.IsLoopback() && len(servers) > 0 { // the balancer of this node
		return servers
	}
	return append(servers, own)
}

// RegistryAddress returns the address at which a control plane serves its bundles, HOST:PORT.
func RegistryAddress(host string) string {
	return net.JoinHostPort(host, strconv.Itoa(config.RegistryPort))
}

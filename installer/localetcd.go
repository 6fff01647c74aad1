package installer

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/render"
)

// A localEtcd describes this host's own etcd, as its static pods configure it.
type localEtcd struct {
	peerURL, clientURL string
	dataDir            string
	certificates       string // the directory above etcd/ca.crt
}

// findEtcd returns this host's own etcd. It returns nil on a worker and with an
// external etcd. If etcd's static pod does not exist, join may have stopped
// after it wrote the API server's. In that case the ledger has a claim on
// etcd's data directory. The addresses in the API server's flags prove nothing:
// an external etcd may also run on this host.
func findEtcd(h *host.Host) (*localEtcd, error) {
	flags, volumes, err := readStaticPod(h, "etcd")
	if err != nil {
		return nil, err
	}
	if flags != nil {
		first := func(name string) string { u, _, _ := strings.Cut(flags[name], ","); return u }
		e := &localEtcd{
			peerURL: first("initial-advertise-peer-urls"), clientURL: first("advertise-client-urls"),
			dataDir: volumes["etcd-data"], certificates: path.Dir(path.Dir(flags["trusted-ca-file"])),
		}
		if e.peerURL == "" || e.clientURL == "" || e.dataDir == "" {
			return nil, fmt.Errorf("reading %s: it has no etcd with peer and client URLs and the volume etcd-data", etcdManifest)
		}
		return e, nil
	}
	if flags, _, err = readStaticPod(h, "kube-apiserver"); err != nil || flags == nil {
		return nil, err
	}
	dataDir := h.Claimed(host.EtcdData)
	if dataDir == "" {
		return nil, nil
	}
	self := config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: flags["advertise-address"]}}
	return &localEtcd{
		peerURL: render.EtcdPeerURL(&self), clientURL: render.EtcdClientURL(&self),
		dataDir: dataDir, certificates: path.Dir(path.Dir(flags["etcd-cafile"])),
	}, nil
}

// connectEtcd connects with the client certificate that kubeadm creates for
// etcd health checks.
func connectEtcd(ctx context.Context, m *machine, endpoints []string, certificates string, timeout time.Duration) (*etcd.Client, error) {
	file := func(name string) string { return m.host.Path(path.Join(certificates, "etcd", name)) }
	tls, err := etcd.TLS(file("ca.crt"), file("healthcheck-client.crt"), file("healthcheck-client.key"))
	if err != nil {
		return nil, err
	}
	c, err := etcd.Connect(ctx, endpoints, tls, m.report)
	if err != nil {
		return nil, err
	}
	c.Timeout = timeout
	return c, nil
}

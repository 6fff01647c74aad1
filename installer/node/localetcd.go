package node

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// A LocalEtcd describes this host's own etcd, as its static pods configure it.
type LocalEtcd struct {
	PeerURL, ClientURL string
	DataDir            string
	Certificates       string // the directory above etcd/ca.crt
}

// FindEtcd returns this host's own etcd. It returns nil on a worker and with an
// external etcd. If etcd's static pod does not exist, join may have stopped
// after it wrote the API server's. In that case the ledger has a claim on
// etcd's data directory. The addresses in the API server's flags prove nothing:
// an external etcd may also run on this host.
func FindEtcd(h *host.Host) (*LocalEtcd, error) {
	flags, volumes, err := ReadStaticPod(h, "etcd")
	if err != nil {
		return nil, err
	}
	if flags != nil {
		first := func(name string) string { u, _, _ := strings.Cut(flags[name], ","); return u }
		e := &LocalEtcd{
			PeerURL: first("initial-advertise-peer-urls"), ClientURL: first("advertise-client-urls"),
			DataDir: volumes["etcd-data"], Certificates: path.Dir(path.Dir(flags["trusted-ca-file"])),
		}
		if e.PeerURL == "" || e.ClientURL == "" || e.DataDir == "" {
			return nil, fmt.Errorf("reading %s: it has no etcd with peer and client URLs and the volume etcd-data", EtcdManifest)
		}
		return e, nil
	}
	if flags, _, err = ReadStaticPod(h, "kube-apiserver"); err != nil || flags == nil {
		return nil, err
	}
	dataDir := h.Records().Claimed(ledger.EtcdData)
	if dataDir == "" {
		return nil, nil
	}
	self := config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: flags["advertise-address"]}}
	return &LocalEtcd{
		PeerURL: render.EtcdPeerURL(&self), ClientURL: render.EtcdClientURL(&self),
		DataDir: dataDir, Certificates: path.Dir(path.Dir(flags["etcd-cafile"])),
	}, nil
}

// ConnectEtcd connects with the client certificate that kubeadm creates for
// etcd health checks. report may be nil.
func ConnectEtcd(ctx context.Context, h *host.Host, report etcd.Report, endpoints []string, certificates string, timeout time.Duration) (*etcd.Client, error) {
	file := func(name string) string { return h.Path(path.Join(certificates, "etcd", name)) }
	tls, err := etcd.TLS(file("ca.crt"), file("healthcheck-client.crt"), file("healthcheck-client.key"))
	if err != nil {
		return nil, err
	}
	c, err := etcd.Connect(ctx, endpoints, tls, report)
	if err != nil {
		return nil, err
	}
	c.Timeout = timeout
	return c, nil
}

// ProbeTimeout limits requests to a control plane that may not answer. If none
// runs, the host refuses the connection at once; one on a slow host needs
// seconds.
const ProbeTimeout = 30 * time.Second

// LocalEtcdClient connects to this host's etcd.
func LocalEtcdClient(ctx context.Context, m *Machine) (*etcd.Client, *LocalEtcd, error) {
	e, err := OwnEtcd(m.Host)
	if err != nil {
		return nil, nil, err
	}
	c, err := ConnectEtcd(ctx, m.Host, m.Report, []string{e.ClientURL}, e.Certificates, etcd.DefaultTimeout)
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Failure, EtcdHint)
	}
	return c, e, nil
}

// EtcdMembers returns the state of the members that this host's etcd knows.
func EtcdMembers(ctx context.Context, h *host.Host, timeout time.Duration) ([]etcd.Status, error) {
	e, err := OwnEtcd(h)
	if err != nil {
		return nil, err
	}
	c, err := ConnectEtcd(ctx, h, nil, []string{e.ClientURL}, e.Certificates, timeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	members, _, err := c.Status(ctx)
	return members, err
}

// OwnEtcd is FindEtcd for commands that need a control plane with its own etcd.
func OwnEtcd(h *host.Host) (*LocalEtcd, error) {
	e, err := FindEtcd(h)
	if err == nil && e == nil {
		err = fault.New(fault.Failure, "this host has no etcd: %s does not exist", EtcdManifest).Hint("run it as root on a control plane; an external etcd has its own tools")
	}
	return e, err
}

// EtcdHint is for an etcd of this host that does not answer.
const EtcdHint = "see the kubelet's log: journalctl -u kubelet -e; and etcd's log below /var/log/pods"

// WrittenMembers returns the members that the existing static pod names, or nil
// if there is none, or none that can be read.
func WrittenMembers(h *host.Host) (all []render.EtcdMember) {
	flags, _, err := ReadStaticPod(h, "etcd")
	if err != nil || flags["initial-cluster"] == "" {
		return nil
	}
	for member := range strings.SplitSeq(flags["initial-cluster"], ",") {
		name, url, _ := strings.Cut(member, "=")
		all = append(all, render.EtcdMember{Name: name, PeerURL: url})
	}
	return all
}

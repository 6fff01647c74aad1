package installer

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// The steps of join that only a control plane has.

var (
	etcdManifest      = path.Join(config.ManifestsDir, "etcd.yaml")
	apiServerManifest = path.Join(config.ManifestsDir, "kube-apiserver.yaml")
)

// downloadCerts fetches what all control planes share, unless it is here.
func (n *Node) downloadCerts(ctx context.Context) error {
	if n.Config.CertificateKey == "" {
		n.Console.Note("without --certificate-key the certificates that were put here by hand are used")
		return nil
	}
	if err := pki.CheckShared(n.Config, n.root(), time.Now()); err == nil {
		return nil
	}
	client, err := cluster.New(n.found.Kubeconfig, "")
	if err != nil {
		return err
	}
	files, err := client.DownloadCerts(ctx, n.Config, n.Config.CertificateKey)
	if err != nil {
		return err
	}
	if ca := files[n.caFile()]; ca != nil {
		if err := n.checkCAData(ca, n.found.CA); err != nil {
			return err
		}
	}
	var list []pki.File
	for name, data := range files {
		mode := os.FileMode(0o600)
		if strings.HasSuffix(name, ".crt") {
			mode = 0o644
		}
		list = append(list, pki.File{Path: name, Data: data, Mode: mode})
	}
	slices.SortFunc(list, func(a, b pki.File) int { return cmp.Compare(a.Path, b.Path) })
	return n.write(list...)
}

// joinCerts makes what is this node's own.
func (n *Node) joinCerts(ctx context.Context) error {
	if err := n.checkCA(n.found.CA); err != nil {
		return err
	}
	return n.certs()(ctx)
}

// checkEtcd refuses to add a member to a cluster that is not well: the more
// members there are, the more must be well to agree.
func (n *Node) checkEtcd(ctx context.Context) error {
	if n.Config.Etcd.External != nil {
		return nil
	}
	c, err := n.etcdCluster(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.CheckHealthy(ctx, render.EtcdPeerURL(n.Config))
}

// etcdCluster finds the cluster's etcd.
func (n *Node) etcdCluster(ctx context.Context) (*etcd.Client, error) {
	if n.client == nil {
		return nil, fault.New(fault.Failure, "run the phase control-plane-prepare/kubeconfig first", "there is no %s to ask the cluster with", adminConf)
	}
	endpoints, err := n.client.EtcdEndpoints(ctx, n.report)
	if err != nil {
		return nil, err
	}
	return n.connectEtcd(ctx, endpoints, n.Config.CertificatesDir)
}

// connectEtcd goes by the certificate that kubeadm makes for health checks.
func (n *Node) connectEtcd(ctx context.Context, endpoints []string, certificates string) (*etcd.Client, error) {
	file := func(name string) string { return n.Host.Path(path.Join(certificates, "etcd", name)) }
	tls, err := etcd.TLS(file("ca.crt"), file("healthcheck-client.crt"), file("healthcheck-client.key"))
	if err != nil {
		return nil, err
	}
	c, err := etcd.Connect(ctx, endpoints, tls, n.report)
	if err != nil {
		return nil, err
	}
	c.Timeout = cmp.Or(n.Config.Timeouts.EtcdAPICall, etcd.DefaultTimeout)
	return c, nil
}

// joinEtcd makes this host's etcd a member: it is announced as a learner, which
// the others do not need to agree, started, and given a vote when it has caught
// up. A run that was stopped in between goes on where that one was.
func (n *Node) joinEtcd(ctx context.Context) error {
	if n.Config.Etcd.External != nil {
		n.Console.Debug(1, "the cluster's etcd is external")
		return nil
	}
	if n.skipsEtcd() {
		return nil
	}
	c, err := n.etcdCluster(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	members, written, err := n.announce(ctx, c)
	if err != nil {
		return err
	}
	if !written {
		if err := n.writeEtcd(members); err != nil {
			return err
		}
	}
	promoted, err := c.Promote(ctx, render.EtcdPeerURL(n.Config))
	n.changed(promoted)
	if err != nil {
		return fault.Wrap(err, fault.Failure, "see what it says: crictl ps -a --name etcd, crictl logs ID; run join again to go on")
	}
	return nil
}

// skipsEtcd says whether the user left it out, under either version's name.
// Where it is a phase of its own, control-plane-join is without it.
func (n *Node) skipsEtcd() bool {
	if n.Single {
		return false
	}
	skip := n.Config.SkipPhases
	return slices.Contains(skip, "etcd-join") || slices.Contains(skip, "control-plane-join/etcd") ||
		!n.localBootstrap() && slices.Contains(skip, "control-plane-join")
}

// announce makes this host known to the cluster as a learner. written says that
// the static pod is there for this very membership.
func (n *Node) announce(ctx context.Context, c *etcd.Client) (members []etcd.Member, written bool, err error) {
	peer := render.EtcdPeerURL(n.Config)
	if members, err = c.Members(ctx); err != nil {
		return nil, false, err
	}
	own, known := etcd.Find(members, peer)
	data := n.exists(path.Join(n.Config.Etcd.Local.DataDir, "member"))
	switch {
	case known && data:
		return members, n.exists(etcdManifest), nil
	case data:
		return nil, false, fault.New(fault.Failure, "./install reset --force removes it, then join again",
			"%s holds the data of a member that the cluster does not know", n.Config.Etcd.Local.DataDir)
	case known && own.Name != "" && !own.Learner:
		return nil, false, fault.New(fault.Failure, "remove that member on another control plane, then join again: etcdctl member remove "+fmt.Sprintf("%x", own.ID),
			"etcd still has the member %s from an earlier life of this host, whose data is gone", own)
	case known && own.Name != "":
		// It never had a vote, so nobody misses it.
		if _, err := c.Remove(ctx, own); err != nil {
			return nil, false, err
		}
	}
	members, added, err := c.AddLearner(ctx, peer)
	n.changed(added)
	return members, !added && n.exists(etcdManifest), err
}

// writeEtcd writes the static pod of a member among others.
func (n *Node) writeEtcd(members []etcd.Member) error {
	if err := n.claimEtcd(); err != nil {
		return err
	}
	if err := n.Host.MkdirAll(n.Config.Etcd.Local.DataDir, 0o700); err != nil {
		return err
	}
	peer := render.EtcdPeerURL(n.Config)
	var all []render.EtcdMember
	for _, m := range members {
		name := cmp.Or(m.Name, fmt.Sprintf("%x", m.ID)) // one that has not started has no name
		if m.PeerURL == peer {
			name = n.Config.NodeRegistration.Name
		}
		all = append(all, render.EtcdMember{Name: name, PeerURL: m.PeerURL})
	}
	pod, err := render.Etcd(n.Config, all...)
	if err != nil {
		return err
	}
	return n.writeManifest(pod)
}

// markJoined labels and taints the node.
func (n *Node) markJoined(ctx context.Context) error {
	node := n.Config.NodeRegistration
	changed, err := n.client.MarkControlPlane(ctx, node.Name, node.Taints)
	n.changed(changed)
	return err
}

// waitJoinedControlPlane waits for the API server on this host.
func (n *Node) waitJoinedControlPlane(ctx context.Context) error {
	local, err := n.loadClient(adminConf, n.Config.LocalURL())
	if err != nil {
		return err
	}
	return local.WaitForAPI(ctx, n.Config.APIServer.TimeoutForControlPlane, n.report)
}

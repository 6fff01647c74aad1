package reset

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path"
	"slices"
	"time"

	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// resetEtcdTimeout limits reset's calls to etcd. Reset must end even if the
// rest of the cluster is broken.
const resetEtcdTimeout = 30 * time.Second

// etcdReset removes this host's member from the etcd cluster.
type etcdReset struct {
	*node.Machine
	force      bool
	kubeconfig string        // used if this host's etcd does not answer
	timeout    time.Duration // of a request to the API server
	last       bool          // this host has the cluster's last member
}

// reachEtcd connects to this host's etcd. If this etcd does not answer, it connects to the other
// members, which it finds through the API server.
func (r *etcdReset) reachEtcd(ctx context.Context, e *node.LocalEtcd) (*etcd.Client, error) {
	c, err := node.ConnectEtcd(ctx, r.Host, r.Report, []string{e.ClientURL}, e.Certificates, resetEtcdTimeout)
	if err != nil && ctx.Err() == nil {
		if others := r.otherEtcds(ctx, e); len(others) > 0 {
			var more error
			if c, more = node.ConnectEtcd(ctx, r.Host, r.Report, others, e.Certificates, resetEtcdTimeout); more != nil {
				err = fmt.Errorf("%w; and connecting to the other members: %w", err, more)
			} else {
				err = nil
			}
		}
	}
	return c, err
}

// adminKubeconfig is the kubeconfig with which reset reaches the cluster.
func (r *etcdReset) adminKubeconfig() string { return cmp.Or(r.kubeconfig, node.AdminConf) }

// otherEtcds returns the client URLs of the other members. It asks the API server, because another
// host may still serve the API. If none answers, it reads this host's static pod, which names the
// members at the time when this host joined.
func (r *etcdReset) otherEtcds(ctx context.Context, e *node.LocalEtcd) []string {
	urls, err := r.servedEtcds(ctx)
	if err != nil {
		for _, m := range node.WrittenMembers(r.Host) {
			if peer, err := url.Parse(m.PeerURL); err == nil {
				other := config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: peer.Hostname()}}
				urls = append(urls, render.EtcdClientURL(&other))
			}
		}
	}
	return slices.DeleteFunc(urls, func(u string) bool { return u == e.ClientURL })
}

// servedEtcds asks the API server for the client URLs of etcd's members.
func (r *etcdReset) servedEtcds(ctx context.Context) ([]string, error) {
	api, err := node.LoadClient(r.Host, r.adminKubeconfig(), "", r.timeout)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
	defer cancel()
	return api.EtcdEndpoints(ctx, r.Report)
}

// check refuses a reset that would leave the remaining etcd members without
// a quorum.
func (r *etcdReset) check(ctx context.Context) error {
	_, _, err := r.ownMember(ctx, func(c *etcd.Client, m etcd.Member) error { return c.CheckRemove(ctx, m) })
	if err == nil || ctx.Err() != nil {
		return err
	}
	hint := fault.Hint(err)
	if hint == "" {
		hint = "start etcd (systemctl start kubelet); or skip this check with --force, and remove the member on another control plane: " + r.removeCommand()
	}
	return fault.Wrap(fmt.Errorf("checking how the reset of this host affects etcd: %w", err), fault.Preflight, hint)
}

// ownMember finds this host's etcd member and calls do with it, unless it is
// the last voting member. found is false if the host has no etcd, if the cluster
// does not know the member, or if an earlier reset has stopped etcd. alone reports whether it is the
// last voting member.
func (r *etcdReset) ownMember(ctx context.Context, do func(*etcd.Client, etcd.Member) error) (found, alone bool, err error) {
	e, err := node.FindEtcd(r.Host)
	if err != nil || e == nil {
		return false, false, err
	}
	if !r.Exists(path.Join(e.Certificates, "etcd", "ca.crt")) {
		return false, false, nil // an earlier run stopped before it joined etcd
	}
	c, err := r.reachEtcd(ctx, e)
	if err != nil && ctx.Err() == nil && r.Host.Records().ResetBegan() {
		r.Console.Note("etcd does not answer: an earlier reset has stopped it")
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	defer c.Close()
	members, err := c.Members(ctx)
	if err != nil {
		return false, false, err
	}
	m, found := etcd.Find(members, e.PeerURL)
	others := func(o etcd.Member) bool { return o.ID != m.ID && !o.Learner }
	if !found || !m.Learner && !slices.ContainsFunc(members, others) {
		return found, found, nil
	}
	return true, false, do(c, m)
}

// removeCommand is the command that removes this host's member on another control plane.
func (r *etcdReset) removeCommand() string {
	return "./install etcd member remove " + cmp.Or(pki.NodeName(r.Files()), "NAME")
}

// remove removes this host's member from the etcd cluster, unless it
// is the last one. A forced reset continues if that fails.
func (r *etcdReset) remove(ctx context.Context) error {
	_, alone, err := r.ownMember(ctx, func(c *etcd.Client, m etcd.Member) error {
		if err := c.CheckRemove(ctx, m); err != nil {
			return err
		}
		_, err := c.Remove(ctx, m)
		if err == nil {
			r.Console.Note("removed member %s from the etcd cluster", m)
		}
		return err
	})
	switch {
	case alone:
		r.last = true
		r.Console.Note("this is the cluster's last etcd member: reset deletes the cluster")
	case err != nil && ctx.Err() == nil && r.force:
		r.Console.Warn("it is not known whether this host still has a member in the etcd cluster: %s; see on another control plane: ./install etcd status; if it lists the member: %s", err, r.removeCommand())
		return nil
	}
	return err
}

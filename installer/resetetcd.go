package installer

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"airlift/fault"
	"airlift/installer/etcd"
	"airlift/installer/pki"
)

// resetEtcdTimeout bounds what reset asks of etcd: it is to end even when the
// rest of the cluster is in a bad way.
const resetEtcdTimeout = 30 * time.Second

// reachEtcd connects to this host's etcd or, where that does not answer, to
// those that the API server tells of.
func (r *Reset) reachEtcd(ctx context.Context, e *localEtcd) (*etcd.Client, error) {
	c, err := connectEtcd(ctx, r.machine, []string{e.clientURL}, e.certificates, resetEtcdTimeout)
	if err != nil && ctx.Err() == nil {
		if others := r.otherEtcds(ctx, e); len(others) > 0 {
			var more error
			if c, more = connectEtcd(ctx, r.machine, others, e.certificates, resetEtcdTimeout); more != nil {
				err = fmt.Errorf("%w; nor through the API: %w", err, more)
			} else {
				err = nil
			}
		}
	}
	return c, err
}

// otherEtcds asks the API, which another host may still serve.
func (r *Reset) otherEtcds(ctx context.Context, e *localEtcd) []string {
	api, err := loadClient(r.host, cmp.Or(r.kubeconfig, adminConf), "", r.config.Timeouts.KubernetesAPICall)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	urls, err := api.EtcdEndpoints(ctx, r.report)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(urls, func(u string) bool { return u == e.clientURL })
}

// checkEtcd refuses a reset that the other control planes would not
// survive.
func (r *Reset) checkEtcd(ctx context.Context) error {
	_, _, err := r.ownMember(ctx, func(c *etcd.Client, m etcd.Member) error { return c.CheckRemove(ctx, m) })
	if err == nil || ctx.Err() != nil {
		return err
	}
	hint := fault.Hint(err)
	if hint == "" {
		hint = "bring it back (systemctl start kubelet), or go on without asking it: --force; then remove the member on another control plane, etcdctl member remove"
	}
	return fault.Wrap(fmt.Errorf("checking what the reset of this host does to etcd: %w", err), fault.Preflight, hint)
}

// ownMember finds this host's member and does something with it. found is false
// where the host has no etcd or the cluster does not know its member; alone
// says that there is no other.
func (r *Reset) ownMember(ctx context.Context, do func(*etcd.Client, etcd.Member) error) (found, alone bool, err error) {
	e, err := findEtcd(r.host)
	if err != nil || e == nil {
		return false, false, err
	}
	if !r.exists(path.Join(e.certificates, "etcd", "ca.crt")) {
		return false, false, nil // a run that stopped before anything was announced
	}
	c, err := r.reachEtcd(ctx, e)
	if err != nil {
		return false, false, err
	}
	defer c.Close()
	members, err := c.Members(ctx)
	if err != nil {
		return false, false, err
	}
	m, found := etcd.Find(members, e.peerURL)
	if !found || len(members) == 1 {
		return found, found, nil
	}
	return true, false, do(c, m)
}

// removeEtcdMember takes this host's member out of the cluster. The last one
// has nobody to tell. A forced reset goes on without what cannot be had.
func (r *Reset) removeEtcdMember(ctx context.Context) error {
	_, alone, err := r.ownMember(ctx, func(c *etcd.Client, m etcd.Member) error {
		if err := c.CheckRemove(ctx, m); err != nil {
			return err
		}
		_, err := c.Remove(ctx, m)
		if err == nil {
			r.console.Note("etcd goes on without %s", m)
		}
		return err
	})
	switch {
	case alone:
		r.lastControlPlane = true
		r.console.Note("this is the cluster's last etcd member: the cluster ends with it")
	case err != nil && ctx.Err() == nil && r.config.Force:
		r.console.Warn("etcd's member stays in the cluster, remove it there (etcdctl member remove): %s", err)
		return nil
	}
	return err
}

// nodeName is the name under which this host is known to its cluster, "" where
// it is not.
func (r *Reset) nodeName() string { return pki.NodeName(r.files()) }

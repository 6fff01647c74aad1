package installer

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	"airlift/fault"
	"airlift/installer/etcd"
	"airlift/installer/render"
)

// checkEtcd refuses to add a member to an unhealthy etcd cluster. Each
// additional member can increase the number of members that etcd needs for a
// quorum.
func (j *controlPlaneJoin) checkEtcd(ctx context.Context) error {
	if j.config.Etcd.External != nil {
		return nil
	}
	c, err := j.etcdCluster(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.CheckHealthy(ctx, render.EtcdPeerURL(j.config))
}

// etcdCluster connects to the cluster's etcd.
func (j *controlPlaneJoin) etcdCluster(ctx context.Context) (*etcd.Client, error) {
	if j.client == nil {
		return nil, fault.New(fault.Failure, "run the phase control-plane-prepare/kubeconfig first", "there is no %s to ask the cluster with", adminConf)
	}
	endpoints, err := j.client.EtcdEndpoints(ctx, j.report)
	if err != nil {
		return nil, err
	}
	return connectEtcd(ctx, j.machine, endpoints, j.config.CertificatesDir, cmp.Or(j.config.Timeouts.EtcdAPICall, etcd.DefaultTimeout))
}

// joinEtcd makes this host's etcd a member of the cluster. It adds the member
// as a learner, which does not count for the quorum, starts it, and promotes it
// when it has caught up. If an earlier run was interrupted, joinEtcd continues
// it.
func (j *controlPlaneJoin) joinEtcd(ctx context.Context) error {
	if j.config.Etcd.External != nil {
		j.console.Debug(1, "the cluster's etcd is external")
		return nil
	}
	if j.skipsEtcd() {
		return nil
	}
	c, err := j.etcdCluster(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	members, written, err := j.announce(ctx, c)
	if err != nil {
		return err
	}
	if !written {
		if err := j.writeEtcd(members); err != nil {
			return err
		}
	}
	err = j.watched(ctx, dependency{components: apiComponents[:1]}, func(ctx context.Context) error {
		promoted, err := c.Promote(ctx, render.EtcdPeerURL(j.config))
		j.changed(promoted)
		return fault.Wrap(err, fault.Failure, "see etcd's log, below /var/log/pods; then run join again to continue")
	})
	return err
}

// skipsEtcd reports whether the user skips this phase, by the name in any
// version of kubeadm. Where etcd-join is a separate phase, skipping
// control-plane-join does not skip it.
func (j *controlPlaneJoin) skipsEtcd() bool {
	if j.plan.onePhase {
		return false
	}
	skip := j.plan.config.SkipPhases
	return slices.Contains(skip, "etcd-join") || slices.Contains(skip, "control-plane-join/etcd") ||
		j.bootstrapServer() == "" && slices.Contains(skip, "control-plane-join")
}

// announce adds this host to the etcd cluster as a learner. written reports
// whether the static pod for this membership exists already.
func (j *controlPlaneJoin) announce(ctx context.Context, c *etcd.Client) (members []etcd.Member, written bool, err error) {
	peer := render.EtcdPeerURL(j.config)
	if members, err = c.Members(ctx); err != nil {
		return nil, false, err
	}
	own, known := etcd.Find(members, peer)
	data := j.exists(path.Join(j.config.Etcd.Local.DataDir, "member"))
	switch {
	case known && data:
		return members, j.exists(etcdManifest), nil
	case data:
		return nil, false, fault.New(fault.Failure, "./install reset --force removes it, then join again",
			"%s holds the data of a member that the cluster does not know", j.config.Etcd.Local.DataDir)
	case known && own.Name != "" && !own.Learner:
		return nil, false, fault.New(fault.Failure, "remove that member on another control plane, then join again: etcdctl member remove "+fmt.Sprintf("%x", own.ID),
			"etcd still has the member %s from an earlier life of this host, whose data is gone", own)
	case known && own.Name != "":
		// A learner has no vote, so removing it is safe.
		if _, err := c.Remove(ctx, own); err != nil {
			return nil, false, err
		}
	}
	members, added, err := c.AddLearner(ctx, peer)
	j.changed(added)
	return members, !added && j.exists(etcdManifest), err
}

// writeEtcd writes the static pod with all members of the cluster.
func (j *controlPlaneJoin) writeEtcd(members []etcd.Member) error {
	peer := render.EtcdPeerURL(j.config)
	var all []render.EtcdMember
	for _, m := range members {
		name := cmp.Or(m.Name, fmt.Sprintf("%x", m.ID)) // a member that has not started has no name
		if m.PeerURL == peer {
			name = j.config.NodeRegistration.Name
		}
		all = append(all, render.EtcdMember{Name: name, PeerURL: m.PeerURL})
	}
	return j.local.etcd(all...)
}

// dryEtcd writes the static pod as if the cluster had no other member. Only
// etcd knows its members, and a dry run does not connect to it.
func (j *controlPlaneJoin) dryEtcd(context.Context) error {
	if j.config.Etcd.External != nil {
		return nil
	}
	j.console.Note("--initial-cluster will also name the members that there are")
	pod, err := render.Etcd(j.config, render.EtcdMember{Name: j.config.NodeRegistration.Name, PeerURL: render.EtcdPeerURL(j.config)})
	if err != nil {
		return err
	}
	return j.local.writeStaticPod(pod)
}

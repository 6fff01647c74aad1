package installer

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/render"
)

// checkEtcd waits for the turn of this control plane, and refuses to add a member to an unhealthy etcd cluster. Each
// additional member can increase the number of members that etcd needs for a
// quorum.
func (j *controlPlaneJoin) checkEtcd(ctx context.Context) error {
	if err := j.needTurn(ctx); err != nil {
		return err
	}
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
	if err := j.needTurn(ctx); err != nil {
		return err
	}
	c, err := j.etcdCluster(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	members, err := j.announce(ctx, c)
	if err != nil {
		return err
	}
	if err := j.local.etcd(ctx, members...); err != nil {
		return err
	}
	if err := j.replacePods(ctx); err != nil {
		return err
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

// announce adds this host to the etcd cluster as a learner. It returns the
// members that the static pod names.
func (j *controlPlaneJoin) announce(ctx context.Context, c *etcd.Client) ([]render.EtcdMember, error) {
	peer := render.EtcdPeerURL(j.config)
	members, err := c.Members(ctx)
	if err != nil {
		return nil, err
	}
	own, known := etcd.Find(members, peer)
	data := j.exists(path.Join(j.config.Etcd.Local.DataDir, "member"))
	switch {
	case known && data:
		// etcd does not use the names any more. So they do not change, although
		// the cluster may have other members by now.
		if written := writtenMembers(j.host); written != nil {
			return written, nil
		}
		return j.podMembers(members), nil
	case data:
		return nil, fault.New(fault.Failure, "remove it with ./install reset --force, then join again",
			"%s contains the data of a member that is not in the etcd cluster", j.config.Etcd.Local.DataDir)
	case known && own.Name != "" && !own.Learner:
		return nil, fault.New(fault.Failure, "run on another control plane: "+own.RemoveCommand()+"; then join again here",
			"etcd still has the member %s from an earlier installation on this host, and its data no longer exists", own)
	case known && own.Name != "":
		// A learner has no vote, so removing it is safe.
		if _, err := c.Remove(ctx, own); err != nil {
			return nil, err
		}
	}
	members, added, err := c.AddLearner(ctx, peer)
	j.changed(added)
	return j.podMembers(members), err
}

// podMembers returns the members of the cluster as the static pod names them.
func (j *controlPlaneJoin) podMembers(members []etcd.Member) []render.EtcdMember {
	peer := render.EtcdPeerURL(j.config)
	var all []render.EtcdMember
	for _, m := range members {
		name := cmp.Or(m.Name, fmt.Sprintf("%x", m.ID)) // a member that has not started has no name
		if m.HasPeer(peer) {
			name = j.config.NodeRegistration.Name
		}
		all = append(all, render.EtcdMember{Name: name, PeerURL: m.PeerURL})
	}
	return all
}

// writtenMembers returns the members that the existing static pod names, or nil
// if there is none, or none that can be read.
func writtenMembers(h *host.Host) (all []render.EtcdMember) {
	flags, _, err := readStaticPod(h, "etcd")
	if err != nil || flags["initial-cluster"] == "" {
		return nil
	}
	for member := range strings.SplitSeq(flags["initial-cluster"], ",") {
		name, url, _ := strings.Cut(member, "=")
		all = append(all, render.EtcdMember{Name: name, PeerURL: url})
	}
	return all
}

// dryEtcd writes the static pod as if the cluster had no other member. Only
// etcd knows its members, and a dry run does not connect to it.
func (j *controlPlaneJoin) dryEtcd(context.Context) error {
	if j.config.Etcd.External != nil {
		return nil
	}
	j.console.Note("--initial-cluster will also contain the existing members")
	pod, err := render.Etcd(j.config, render.EtcdMember{Name: j.config.NodeRegistration.Name, PeerURL: render.EtcdPeerURL(j.config)})
	if err != nil {
		return err
	}
	return j.local.writeStaticPod(pod)
}

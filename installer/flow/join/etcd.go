package join

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	"airlift/installer/desired"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pods"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// etcdJoin makes this host's etcd a member of the cluster's etcd.
type etcdJoin struct {
	*node.Machine
	node  *phases.Node
	api   *phases.API
	local *phases.ControlPlane
	plane *controlPlaneJoin

	client  *etcd.Client        // of the cluster's etcd
	members []render.EtcdMember // with this host; nil in a dry run
}

// check waits for the turn of this control plane, and refuses to add a member to an
// unhealthy etcd cluster. Each additional member can increase the number of members
// that etcd needs for a quorum.
func (e *etcdJoin) check(ctx context.Context) error {
	if err := e.plane.needTurn(ctx); err != nil {
		return err
	}
	if e.node.Config.Etcd.External != nil {
		return nil
	}
	c, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.CheckHealthy(ctx, render.EtcdPeerURL(e.node.Config))
}

// connect connects to the cluster's etcd.
func (e *etcdJoin) connect(ctx context.Context) (*etcd.Client, error) {
	endpoints, err := e.api.Client.EtcdEndpoints(ctx, e.Report)
	if err != nil {
		return nil, err
	}
	return node.ConnectEtcd(ctx, e.Host, e.Report, endpoints, e.node.Config.CertificatesDir, cmp.Or(e.node.Config.Timeouts.EtcdAPICall, etcd.DefaultTimeout))
}

// announced adds this host to the cluster's etcd, before its static pod is computed. If an earlier run was
// interrupted, it finds the member that this run continues.
func (e *etcdJoin) announced(ctx context.Context) (err error) {
	if err := e.plane.nodeJoin.find(ctx); err != nil {
		return err
	}
	if !e.joins() {
		return nil
	}
	if err := e.plane.needTurn(ctx); err != nil {
		return err
	}
	if e.client, err = e.connect(ctx); err != nil {
		return err
	}
	e.members, err = e.announce(ctx, e.client)
	return err
}

// desired returns the static pod of etcd, nothing if etcd is external. Only etcd knows its members, and a dry
// run does not connect to it: it shows the pod as if the cluster had no other member.
func (e *etcdJoin) desired(context.Context) (desired.List, error) {
	if e.node.Config.Etcd.External != nil {
		e.Console.Debug(1, "the cluster's etcd is external")
	}
	if !e.joins() {
		return desired.List{}, nil
	}
	members := e.members
	if members == nil {
		e.Console.Note("--initial-cluster will also contain the existing members")
		members = []render.EtcdMember{{Name: e.node.Config.NodeRegistration.Name, PeerURL: render.EtcdPeerURL(e.node.Config)}}
	}
	return e.local.Etcd(members...)
}

// joinLate does all of that in the phase of older versions of kubeadm.
func (e *etcdJoin) joinLate(ctx context.Context) error {
	if err := e.announced(ctx); err != nil {
		return err
	}
	l, err := e.desired(ctx)
	if err != nil {
		return err
	}
	return e.join(ctx, l)
}

// join starts this host's etcd as a learner, which does not count for the quorum, and promotes it when it
// has caught up.
func (e *etcdJoin) join(ctx context.Context, l desired.List) error {
	if len(l.Files) == 0 {
		return nil
	}
	defer e.client.Close()
	if err := e.local.ApplyEtcd(ctx, l, false); err != nil {
		return err
	}
	if err := e.plane.replacePods(ctx); err != nil {
		return err
	}
	err := e.node.Watch.Watched(ctx, pods.Dependency{Components: pods.APIComponents[:1]}, func(ctx context.Context) error {
		promoted, err := e.client.Promote(ctx, render.EtcdPeerURL(e.node.Config))
		e.Changed(promoted)
		return fault.Wrap(err, fault.Failure, "see etcd's log, below /var/log/pods; then run join again to continue")
	})
	if err != nil {
		return err
	}
	return e.local.WaitAlone(ctx) // a learner is not ready
}

// joins reports whether this host's etcd becomes a member of the cluster's etcd.
func (e *etcdJoin) joins() bool {
	return e.node.Config.Etcd.External == nil && !e.isSkipped()
}

// isSkipped reports whether the user skips this phase, by the name in any
// version of kubeadm. Where etcd-join is a separate phase, skipping
// control-plane-join does not skip it.
func (e *etcdJoin) isSkipped() bool {
	if e.node.Plan.OnePhase {
		return false
	}
	skip := e.node.Plan.Config.SkipPhases
	return slices.Contains(skip, "etcd-join") || slices.Contains(skip, "control-plane-join/etcd") ||
		e.plane.bootstrapServer() == "" && slices.Contains(skip, "control-plane-join")
}

// announce adds this host to the etcd cluster as a learner. It returns the
// members that the static pod names.
func (e *etcdJoin) announce(ctx context.Context, c *etcd.Client) ([]render.EtcdMember, error) {
	peer := render.EtcdPeerURL(e.node.Config)
	members, err := c.Members(ctx)
	if err != nil {
		return nil, err
	}
	own, known := etcd.Find(members, peer)
	data := e.Exists(path.Join(e.node.Config.Etcd.Local.DataDir, "member"))
	switch {
	case known && data:
		// etcd does not use the names any more. So they do not change, although
		// the cluster may have other members by now.
		if written := node.WrittenMembers(e.Host); written != nil {
			return written, nil
		}
		return e.podMembers(members), nil
	case data:
		return nil, fault.New(fault.Failure, "%s contains the data of a member that is not in the etcd cluster", e.node.Config.Etcd.Local.DataDir).
			Hint("remove it with ./install reset --force, then join again")
	case known && own.Name != "" && !own.Learner:
		return nil, fault.New(fault.Failure, "etcd still has the member %s from an earlier installation on this host, and its data no longer exists", own).
			Hint("run on another control plane: " + own.RemoveCommand() + "; then join again here")
	case known && own.Name != "":
		// A learner has no vote, so removing it is safe.
		if _, err := c.Remove(ctx, own); err != nil {
			return nil, err
		}
	}
	if err := e.checkVersion(ctx, c); err != nil {
		return nil, err
	}
	members, added, err := c.AddLearner(ctx, peer)
	e.Changed(added)
	return e.podMembers(members), err
}

// checkVersion refuses to add an etcd that is older than all members: the oldest one determines the version of the data.
func (e *etcdJoin) checkVersion(ctx context.Context, c *etcd.Client) error {
	members, _, err := c.Status(ctx)
	if err != nil {
		return err
	}
	var refused error
	for _, m := range members {
		if m.Version == "" { // it does not answer
			continue
		}
		if refused = node.CheckEtcd(e.node.Config.Images[node.EtcdPod], m.Version, e.node.Config.KubernetesVersion); refused == nil {
			return nil
		}
	}
	return refused
}

// podMembers returns the members of the cluster as the static pod names them.
func (e *etcdJoin) podMembers(members []etcd.Member) []render.EtcdMember {
	peer := render.EtcdPeerURL(e.node.Config)
	var all []render.EtcdMember
	for _, m := range members {
		name := cmp.Or(m.Name, fmt.Sprintf("%x", m.ID)) // a member that has not started has no name
		if m.HasPeer(peer) {
			name = e.node.Config.NodeRegistration.Name
		}
		all = append(all, render.EtcdMember{Name: name, PeerURL: m.PeerURL})
	}
	return all
}

// Package noderemove takes a node out of the cluster: its pods, its member of etcd, its API server's
// address and its Node. The host itself may be off, and is not changed.
package noderemove

import (
	"cmp"
	"context"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// endpointTimeout is more than twice the 25 s after which the API servers remove the address of one
// that ended: its lease lasts 15 s, and they look every 10 s (kube-apiserver's lease reconciler).
const endpointTimeout = time.Minute

// Options are the user's options.
type Options struct {
	Node  string // its name
	Drain bool   // move its pods to other nodes first, if its host answers
	// DrainTimeout limits a drain without progress; 0 is config.DrainTimeout.
	DrainTimeout time.Duration
	// KeepNode leaves the Node: a command that then resets the host finds it again if it is interrupted.
	KeepNode bool
}

// A Removal takes a node out of the cluster. It runs on a control plane that stays.
type Removal struct {
	*node.Machine
	options Options
	api     *cluster.Client // of the API server on this host
	etcd    *etcd.Client    // nil if etcd is external
	ownPeer string          // the peer URL of this host's member
	target  target
}

// New connects to the cluster, and finds out what the removal would change. It refuses to remove this
// host, an unknown node, the last control plane, and a member without which etcd has no quorum.
func New(ctx context.Context, o Options, h *host.Host, console *workflow.Console) (*Removal, error) {
	r := &Removal{Machine: node.NewMachine(h, console), options: o}
	err := r.checkHost()
	if err == nil {
		err = r.connect(ctx)
	}
	if err == nil {
		r.target, err = r.find(ctx)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// connect connects to the etcd and the API server of this host, which stay.
func (r *Removal) connect(ctx context.Context) error {
	own, err := node.FindEtcd(r.Host)
	if err != nil {
		return err
	}
	if own != nil {
		r.ownPeer = own.PeerURL
		if r.etcd, _, err = node.LocalEtcdClient(ctx, r.Machine); err != nil {
			return err
		}
	}
	r.api, err = node.LoadClient(r.Host, node.AdminConf, node.OwnAPIServer(r.Host), 0)
	return err
}

// checkHost refuses to run on another host than a control plane, and to remove this host.
func (r *Removal) checkHost() error {
	if !r.IsControlPlane() {
		return fault.New(fault.Failure, "this host is not a control plane: %s does not exist", node.APIServerManifest).Hint("run it on a control plane that stays in the cluster")
	}
	if r.options.Node == pki.NodeName(r.Files()) {
		return fault.New(fault.Usage, "%q is this host", r.options.Node).
			Hint("to remove this host from the cluster, run the command on another control plane; or remove its etcd member and everything installed here: ./install reset")
	}
	return nil
}

// Close closes the connection to etcd.
func (r *Removal) Close() {
	if r.etcd != nil {
		_ = r.etcd.Close()
	}
}

// Describe returns the text that shows the node, and what the removal changes and leaves.
func (r *Removal) Describe() string { return r.target.describe(r.options.Drain) }

// steps returns the steps in order. The Node is deleted late, so that an interrupted run can be repeated.
func (r *Removal) steps() []workflow.Step {
	t := &r.target
	return []workflow.Step{
		{Name: "drain", Doc: "allow no new pods, and move the pods to other nodes", Run: r.drain, Empty: t.node == nil},
		{Name: "remove-etcd-member", Doc: "remove the member from etcd", Run: r.removeMember, Empty: t.member == nil},
		{Name: "delete-node", Doc: "delete the Node", Run: r.deleteNode, Empty: t.node == nil || r.options.KeepNode},
		{Name: "api-endpoint", Doc: "wait until the other API servers have removed its address", Run: r.waitEndpoint, Empty: !t.controlPlane() || t.node == nil || r.options.KeepNode},
	}
}

// Run removes the node.
func (r *Removal) Run(ctx context.Context) error {
	r.Console.Summary(r.target.closingWords())
	return workflow.Run(ctx, r.Console, r.steps(), nil)
}

// DryRun prints what Run would do.
func (r *Removal) DryRun() { r.Console.WouldRun(r.Describe(), r.steps()) }

// drain cordons the node, and moves its pods if its kubelet can end them.
func (r *Removal) drain(ctx context.Context) error {
	name := r.options.Node
	if err := r.api.NodeObjects().SetUnschedulable(ctx, name, true); err != nil {
		return err
	}
	switch {
	case !r.options.Drain:
		r.Console.Note("not drained (--drain=false)")
		return nil
	case r.target.silence != "":
		r.Console.Note("not drained: the host does not answer")
		return nil
	}
	eviction := workloads.NewDrain(r.api.API, name, cmp.Or(r.options.DrainTimeout, config.DrainTimeout))
	eviction.Report = r.Report
	eviction.Waiting = func(pod, reason string) { r.Console.Note("waiting for %s: %s", pod, reason) }
	evict, _, err := eviction.Pods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range evict {
		r.Console.Note("moving %s", pod)
	}
	if err := eviction.Run(ctx); err != nil {
		return fault.Wrap(err, fault.ExitCode(err), fault.Hint(err)+"; to keep the node: kubectl uncordon "+name)
	}
	return nil
}

// removeMember removes the member from etcd, while no other control plane joins or restarts its member.
func (r *Removal) removeMember(ctx context.Context) error {
	turn, err := node.TakeTurn(ctx, r.Machine, r.TurnName(), node.AdminConf, node.ShortPatience)
	if err != nil {
		return err
	}
	defer turn.End()
	members, err := r.etcd.Members(ctx) // as they are now
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.ID != r.target.member.ID {
			continue
		}
		if _, err := withoutMember(r.etcd.Health(ctx, members), m); err != nil {
			return err
		}
		if _, err := r.etcd.Remove(ctx, m); err != nil {
			return err
		}
		r.Console.Note("removed member %s from the etcd cluster", m)
	}
	return nil
}

func (r *Removal) deleteNode(ctx context.Context) error {
	if err := r.api.NodeObjects().DeleteNode(ctx, r.options.Node, r.target.node.UID); err != nil {
		return err
	}
	if r.target.controlPlane() { // it may have served the embedded registry
		if _, err := r.api.Delete(ctx, render.RegistryServer(r.options.Node)); err != nil {
			return err
		}
	}
	r.Console.Note("deleted node %s; the cluster deletes the pods that it still has within about a minute", r.options.Node)
	return nil
}

// waitEndpoint waits until the Service default/kubernetes has no entry for the API server of the node.
func (r *Removal) waitEndpoint(ctx context.Context) error {
	if r.etcd == nil && r.target.silence == "" {
		r.Console.Warn("the API server of %[1]s uses an external etcd: clients find it until you run on that host: ./install reset --force", r.options.Node)
		return nil
	}
	err := r.api.WaitForNoAPIServer(ctx, r.target.addresses(), endpointTimeout, r.Report)
	if err != nil && ctx.Err() == nil {
		r.Console.Warn("%v", err)
		r.Console.Note("%s", fault.Hint(err))
	}
	return ctx.Err()
}

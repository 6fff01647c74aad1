// Package revision changes a node, and with it the cluster, in steps that can be continued and undone. What changes is another
// package's matter: a Change has what the configuration becomes, what differs, and which objects and components that concerns.
package revision

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"airlift/installer/adoption"
	"airlift/installer/cluster"
	"airlift/installer/cluster/inventory"
	"airlift/installer/cluster/lease"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pods"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Options are what the user may choose for each kind of revision.
type Options struct {
	config.UpgradeRun
	Kind Kind
	// Command is the name of the command, for messages: "upgrade apply".
	Command string
	// Node is set for a run that lets this node follow: everything that is done once for the cluster is done already.
	Node bool
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
}

// A Change is what a revision changes.
type Change interface {
	// Edit puts what changes into the configuration of this node, which has the stored configuration of the cluster.
	Edit(ctx context.Context, own *config.Config, stored *cluster.Stored) error
	// Compute finds out what differs, and completes Revision.Goal. The configuration of this node is complete.
	Compute(ctx context.Context) error
	// Remains reports whether something differs.
	Remains() (bool, error)
	// Concerns reports whether a static pod, the kubelet or an add-on may change.
	Concerns(part string) bool
	// Objects are the objects of the cluster that may change.
	Objects() []cluster.ObjectName
	// ReadersOf returns what must restart to read a file.
	ReadersOf(file string) []string
	// Readers are the static pods that read files which this run may write.
	Readers() []string
	// RestartReader restarts a static pod that keeps its manifest, if it has to read files again.
	RestartReader(ctx context.Context, name string) (restarted bool, err error)
	// KubeletInstance returns the fields of the kubelet's configuration that this node has for itself. instance is what it has now.
	KubeletInstance(shared, instance []byte) ([]byte, error)
	// KubeletFlags returns the file with the kubelet's flags, nil if it stays. now is nil without one.
	KubeletFlags(now []byte) ([]byte, error)
	// HasImages reports whether a node has the images of this revision.
	HasImages(n inventory.Node, controlPlane bool) bool
	// IsSecret reports whether nobody may see the contents of a file.
	IsSecret(file string) bool
}

// A Revision takes this node, and with it the cluster, through a revision.
type Revision struct {
	*phases.Node
	Content *phases.Content
	API     *phases.API
	Bundle  *payload.Bundle
	Options Options
	Change  Change

	Stored  *cluster.Stored     // nil until all is known
	Self    inventory.Node      // this node, when the run began
	Adopted *adoption.CarryOver // nil unless the next upgrade is the first one of an adopted node

	Record *Record // of this kind, nil if there is none
	// Goal is the record that Begin writes, without what the bundle decides.
	Goal    Record
	Resumes bool // this run continues one that was interrupted
	Began   bool // this run has begun

	Pods  *pods.StaticPods  // nil on a worker
	Plans map[string][]byte // new manifests, by component
	// AddOnsLeft is set if an add-on waits until other nodes follow, and ImagesLeft are workers that have no image of such an add-on yet.
	AddOnsLeft bool
	ImagesLeft []string
}

// New returns a Revision of this host with a bundle. The caller sets its Change.
func New(p *phases.Plan, o Options, m *node.Machine) *Revision {
	content := phases.NewContent(phases.NewNode(p, m))
	content.Node.MayBeAdopted = true
	return &Revision{Node: content.Node, Content: content, API: phases.NewAPI(content), Bundle: p.Bundle, Options: o}
}

// Writes returns a step that writes files or objects.
func (r *Revision) Writes(name, doc string, compute phases.Desired, apply func(context.Context, desired.List) error) workflow.Step {
	return workflow.Step{Name: name, Doc: doc, Prepare: r.Prepare, Apply: apply, Desired: func(ctx context.Context) (desired.List, error) {
		if err := r.Learn(ctx); err != nil {
			return desired.List{}, err
		}
		return compute(ctx)
	}}
}

// Restarts returns a step that also restarts something.
func (r *Revision) Restarts(name, doc string, compute phases.Desired, apply func(context.Context, desired.List) error) workflow.Step {
	s := r.Writes(name, doc, compute, apply)
	s.Prepare = r.PrepareInTurn
	return s
}

// Close stops everything that runs in the background.
func (r *Revision) Close() {
	if r.Pods != nil {
		r.Pods.Turn.End()
		r.Pods.Turn = nil
	}
	r.Content.Close()
	r.Node.Close()
}

// Explain adds to an error of a revision that has begun how to continue, and how to go back.
func (r *Revision) Explain(err error) error {
	if err == nil || !r.Unfinished() {
		return err
	}
	const again = "run the same command again"
	how := again + "; to undo it: " + r.Options.Kind.undo()
	if _, started, err := NewerEtcd(r.Existing, r.Record); err == nil && started != "" {
		how = again + "; to go back instead: " + wayBack(r.Existing, r.Record)
	}
	switch hint := fault.Hint(err); {
	case errors.Is(err, lease.ErrNoTurn):
		how = hint + strings.TrimPrefix(how, again)
	case hint != "":
		how = hint + "; then, to continue, " + how
	default:
		how = "to continue, " + how
	}
	return fault.Wrap(err, fault.ExitCode(err), how)
}

// Prepare prepares a step: it learns about the cluster, and takes the turn unless the phase runs alone.
func (r *Revision) Prepare(ctx context.Context) error {
	if err := r.Learn(ctx); err != nil || r.Plan.OnePhase {
		return err
	}
	return r.TakeTurn(ctx)
}

// PrepareInTurn prepares a step that restarts something, also if the phase runs alone.
func (r *Revision) PrepareInTurn(ctx context.Context) error {
	if err := r.Learn(ctx); err != nil {
		return err
	}
	if err := r.TakeTurn(ctx); err != nil || r.Pods == nil {
		return err
	}
	return r.Pods.Turn.Confirm(ctx)
}

// TakeTurn takes the turn of this control plane until the end of the run. It does nothing where no static pod will be replaced.
func (r *Revision) TakeTurn(ctx context.Context) error {
	if r.Pods == nil || r.Pods.Turn != nil || r.Options.DryRun {
		return nil
	}
	if work, err := r.Remains(); err != nil || !work {
		return err
	}
	began := time.Now()
	if err := r.Pods.TakeTurn(ctx, cmp.Or(r.Options.Kubeconfig, node.AdminConf)); err != nil || time.Since(began) < relearnAfter {
		return err
	}
	// Meanwhile, another control plane may have changed the cluster.
	turn := r.Pods.Turn
	r.Stored = nil
	err := r.Learn(ctx)
	r.Pods.Turn = turn
	return err
}

// relearnAfter is the time after which what a run knows of the cluster may be old.
const relearnAfter = time.Second

// Remains reports whether this node has something to change, or to finish.
func (r *Revision) Remains() (bool, error) {
	if r.Unfinished() {
		return true, nil
	}
	return r.Change.Remains()
}

// Learn reads the configuration of this node and of the cluster, once, and computes what this node is to run. It changes nothing.
func (r *Revision) Learn(ctx context.Context) (err error) {
	if r.Stored != nil {
		return nil
	}
	if err := cmp.Or(r.CheckNode(), node.Unfinished(r.Existing)); err != nil { // it would wait for an API server that does not run
		return err
	}
	c, err := r.LocalConfig()
	if err != nil {
		return err
	}
	if err := r.readRecord(); err != nil {
		return err
	}
	if err := r.Connect(c); err != nil {
		return err
	}
	// An interrupted run may have just replaced the API server: it refuses requests until it has
	// read the permissions.
	if err := r.API.Client.WaitForAPI(ctx, cmp.Or(c.Timeouts.UpgradeManifests, config.DefaultUpgradeManifestsTimeout), r.Report); err != nil {
		return err
	}
	stored, err := r.API.Client.FetchStored(ctx)
	if err != nil {
		return err
	}
	for _, w := range stored.Warnings {
		r.Console.Warn("%s", w)
	}
	if r.Self, err = inventory.ReadNode(ctx, r.API.Client.API, c.NodeRegistration.Name); err != nil {
		return err
	}
	r.Goal.From = r.Self.KubeletVersion
	if err := r.useCluster(ctx, c, stored); err != nil {
		return err
	}
	r.Stored = stored
	if err := r.compute(ctx); err != nil {
		r.Stored = nil
		return err
	}
	return nil
}

// compute computes what this node is to run.
func (r *Revision) compute(ctx context.Context) (err error) {
	r.Observed = node.Observe(r.Existing)
	if r.Adopted, err = adoption.ReadCarryOver(ctx, r.Existing); err != nil {
		return err
	}
	if err := r.Change.Compute(ctx); err != nil || !r.IsControlPlane() {
		return err
	}
	return r.preparePods()
}

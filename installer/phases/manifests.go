package phases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/bundle"
	"airlift/installer/cluster/apply"
	"airlift/installer/cluster/lease"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/pods"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Manifests applies the site's own manifests, or prints them, and waits for their workloads.
type Manifests struct {
	*node.Machine
	node    *Node
	content *Content
	api     *API
	options InitOptions

	// Removes is set if the run removes former objects itself, FromHistory if the bundle need not have the images of the manifests.
	Removes, FromHistory bool
	ends                 func()          // releases the Lease; nil without it
	held                 context.Context // ends when the Lease is lost

	// Waits reports that objects or hooks wait for a worker.
	Waits bool
}

// NewManifests returns the Manifests of a run.
func NewManifests(a *API, o InitOptions) *Manifests {
	return &Manifests{Machine: a.Machine, node: a.Node, content: a.content, api: a, options: o}
}

// leaseName is the Lease in kube-system of what changes the manifests of a cluster: two hosts would not see what the other one does.
const leaseName = "airlift-apply"

// hold takes the Lease, once for all steps. The returned context ends when it is lost.
func (s *Manifests) hold(ctx context.Context) (context.Context, func(), error) {
	if s.held == nil {
		held, release, err := lease.Alone(ctx, s.api.Client, leaseName, s.TurnName(), func(holder string) {
			s.Console.Note("an apply began on %s: waiting until it is clear whether it still runs", holder)
		})
		if busy := (*lease.BusyError)(nil); errors.As(err, &busy) {
			return nil, nil, fault.New(fault.Failure, "another apply of this cluster runs: on %s", busy.Holder).Hint("wait until it has ended, and run this command again")
		}
		if err != nil {
			return nil, nil, err
		}
		s.held, s.ends = held, release
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.held, func() { cancel(context.Cause(s.held)) })
	return ctx, func() { stop(); cancel(nil) }, nil
}

// Alone runs a step under the Lease.
func (s *Manifests) Alone(step func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, done, err := s.hold(ctx)
		if err != nil {
			return err
		}
		defer done()
		return step(ctx)
	}
}

// Close releases the Lease.
func (s *Manifests) Close() {
	if s.ends != nil {
		s.ends()
	}
}

// Desired returns the manifests in the bundle's order.
func (s *Manifests) Desired(ctx context.Context) (l desired.List, err error) {
	for _, m := range s.node.Plan.SiteManifests() {
		data, err := s.Document(ctx, m.Entry())
		if err != nil {
			return l, err
		}
		l.Documents = append(l.Documents, desired.Document{Name: m.Name, Data: data})
	}
	return l, nil
}

// ApplyOrPrint returns what the step manifests does with them. connect makes the API client.
func (s *Manifests) ApplyOrPrint(connect func(context.Context) error) func(context.Context, desired.List) error {
	return func(ctx context.Context, l desired.List) error {
		if s.options.ManifestsOnly() {
			return s.Print(l)
		}
		if err := connect(ctx); err != nil {
			return err
		}
		return s.Alone(func(ctx context.Context) error { return s.Apply(ctx, l) })(ctx)
	}
}

// Print prints the manifests, or writes them to RenderDir.
func (s *Manifests) Print(l desired.List) error {
	for _, d := range l.Documents {
		if err := s.options.renderTo(s.Console, d.Name, d.Data); err != nil {
			return err
		}
	}
	return nil
}

// Apply waits for the rest of the bundle, because a pod whose image is missing waits up to
// minutes for the next attempt, and applies the manifests.
func (s *Manifests) Apply(ctx context.Context, l desired.List) error {
	if err := s.content.finish(ctx); err != nil {
		return err
	}
	var manifests []*apply.Manifest
	for i, listed := range s.node.Plan.SiteManifests() {
		m, err := apply.Parse(s.node.Plan.Bundle.ManifestOf(listed), l.Documents[i].Data)
		if err != nil {
			return err
		}
		manifests = append(manifests, m)
	}
	return s.ApplyThese(ctx, manifests)
}

// Applier returns what applies manifests to the cluster.
func (s *Manifests) Applier() *apply.Applier {
	site := apply.New(s.api.Client, NodeTimeout, s.Report)
	site.Force, site.InBundle, site.Note = s.options.ForceConflicts, s.inBundle(), s.Console.Note
	return site
}

// inBundle returns what reports whether the bundle has an image; nil if that explains nothing.
func (s *Manifests) inBundle() func(string) bool {
	if s.FromHistory {
		return nil
	}
	return s.node.Plan.Bundle.HasImage
}

// ApplyThese applies manifests.
func (s *Manifests) ApplyThese(ctx context.Context, manifests []*apply.Manifest) error {
	site := s.Applier()
	var applied []apply.Applied
	var recorded []apply.Entry
	err := s.node.Watch.Watched(ctx, pods.Dependency{}, func(ctx context.Context) (err error) {
		applied, recorded, err = site.ApplyRecorded(ctx, manifests, time.Now())
		return err
	})
	for _, a := range applied {
		for _, c := range a.Changed {
			s.Console.Debug(1, "applied %s", c)
		}
		s.Changes += len(a.Changed)
	}
	for i, r := range recorded {
		s.show(manifests[i], applied[i], r)
	}
	return err
}

// show prints what was done with a manifest.
func (s *Manifests) show(m *apply.Manifest, applied apply.Applied, recorded apply.Entry) {
	what := "nothing to change"
	if n := len(applied.Changed); n > 0 {
		what = fmt.Sprintf("%d created or changed", n)
	}
	name := m.Name
	if m.Chart != "" {
		name += " (" + m.Chart + ")"
	}
	s.Console.Note("%s: %s, %s", name, workflow.Count(len(applied.Objects), "object"), what)
	for _, kept := range applied.Kept {
		s.Console.Warn("%s", kept)
	}
	if len(applied.Kept) > 0 {
		again := s.node.Plan.Bundle.ApplyCommand()
		if s.FromHistory { // this file may have the version that was undone
			again = s.node.Plan.Bundle.Command(fmt.Sprintf("apply undo %s@%d", m.Name, recorded.Revision))
		}
		s.Console.Note("to replace these fields: %s --force-conflicts", again)
	}
	for _, l := range applied.Later {
		s.Console.Warn("%s is not applied yet: %s", l.Object, l.Why)
	}
	if len(applied.Later) > 0 && !s.FromHistory {
		s.Console.Note("after a worker has joined: %s", s.node.Plan.Bundle.ApplyCommand())
	}
	if len(recorded.Pending) > 0 && s.node.Plan.Skips("wait-manifests") {
		s.Console.Warn("%s: these hooks run when its workloads do, so not while the phase wait-manifests is skipped: %s", m.Name, strings.Join(recorded.Pending, ", "))
	}
	if s.Removes {
		return
	}
	for _, former := range recorded.Former {
		s.Console.Note("%s is no longer in the manifest; it is not deleted", former)
	}
	if len(recorded.Former) > 0 {
		s.Console.Note("to remove such objects: %s", s.node.Plan.Bundle.Command("apply --prune"))
	}
}

// Wait waits for the workloads of the manifests, and runs the hooks that follow them.
func (s *Manifests) Wait(ctx context.Context) error {
	manifests, err := s.Parsed(ctx)
	if err != nil {
		return err
	}
	return s.WaitThese(ctx, manifests)
}

// WaitThese waits for the workloads of manifests, and runs the hooks that follow them.
func (s *Manifests) WaitThese(ctx context.Context, manifests []*apply.Manifest) error {
	if s.node.Plan.Skips("manifests") {
		s.Console.Note("skipped, because the phase manifests is skipped")
		return nil
	}
	inventory, err := apply.ReadInventory(ctx, s.api.Client.API)
	if err != nil {
		return err
	}
	want := apply.Workloads{Manifests: manifests, InBundle: s.inBundle(), OnProblem: func(problem string) { s.Console.Warn("%s", problem) }}
	for _, m := range manifests {
		want.Skip = append(want.Skip, inventory[m.Name].Later...)
	}
	site := s.Applier()
	var later []apply.Later
	err = s.node.Watch.Watched(ctx, pods.Dependency{}, func(ctx context.Context) (err error) {
		if later, err = site.WaitForWorkloads(ctx, want); err != nil {
			return err
		}
		for _, m := range manifests {
			if slices.ContainsFunc(later, func(l apply.Later) bool { return l.Manifest == m.Name }) {
				continue
			}
			why, err := site.AfterWorkloads(ctx, m)
			if err != nil {
				return err
			}
			if why != "" {
				later = append(later, apply.Later{Manifest: m.Name, Object: "the hooks of " + m.Name, Why: why})
			}
		}
		return nil
	})
	for _, l := range later {
		s.Console.Note("%s: %s", l.Object, l.Why)
		s.Waits = true
	}
	s.Waits = s.Waits || len(want.Skip) > 0
	return err
}

// Parsed returns the manifests of the bundle.
func (s *Manifests) Parsed(ctx context.Context) (list []*apply.Manifest, err error) {
	for _, listed := range s.node.Plan.SiteManifests() {
		m, err := s.parse(ctx, listed)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// parse decodes a manifest of the bundle.
func (s *Manifests) parse(ctx context.Context, listed bundle.SiteManifest) (*apply.Manifest, error) {
	data, err := s.Document(ctx, listed.Entry())
	if err != nil {
		return nil, err
	}
	return apply.Parse(s.node.Plan.Bundle.ManifestOf(listed), data)
}

// Document returns the bytes of a manifest, from the stream if it has them.
func (s *Manifests) Document(ctx context.Context, entry string) (data []byte, err error) {
	if s.content.Stream == nil || !slices.Contains(s.content.Stream.Site.Manifests, entry) {
		return s.node.Plan.Bundle.Document(ctx, entry)
	}
	if err := s.content.Stream.Wait(ctx, entry); err != nil {
		return nil, err
	}
	return s.content.Stream.Site.Document(entry), nil
}

package installer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"airlift/bundle"
	"airlift/images"
	"airlift/installer/cluster"
)

// manifests applies the site's own manifests, or prints them, and waits for their workloads.
type manifests struct {
	*api
	options InitOptions
}

// run returns a step that applies the manifests. connect gives it an API client.
func (s *manifests) run(connect func(run func(context.Context) error) func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if s.options.ManifestsOnly() {
			return s.render(ctx)
		}
		return connect(s.apply)(ctx)
	}
}

// apply waits for the rest of the bundle, because a pod whose image is missing waits up to
// minutes for the next attempt, and applies the manifests in the bundle's order.
func (s *manifests) apply(ctx context.Context) error {
	if err := s.finish(ctx); err != nil {
		return err
	}
	site := s.client.Site(nodeTimeout, s.report)
	site.Force = s.options.ForceConflicts
	for _, listed := range s.plan.siteManifests() {
		m, err := s.parse(ctx, listed)
		if err != nil {
			return err
		}
		var applied cluster.Applied
		var recorded cluster.InventoryEntry
		err = s.watched(ctx, dependency{}, func(ctx context.Context) (err error) {
			applied, recorded, err = site.ApplyRecorded(ctx, m, s.plan.bundle.id(), time.Now())
			return err
		})
		for _, c := range applied.Changed {
			s.console.Debug(1, "applied %s", c)
		}
		s.changes += len(applied.Changed)
		if err != nil {
			return err
		}
		s.show(listed, applied, recorded)
	}
	return nil
}

// show prints what was done with a manifest.
func (s *manifests) show(m bundle.SiteManifest, applied cluster.Applied, recorded cluster.InventoryEntry) {
	what := "nothing to change"
	if n := len(applied.Changed); n > 0 {
		what = fmt.Sprintf("%d created or changed", n)
	}
	name := m.Name
	if m.Chart != "" {
		name += " (" + m.Chart + ")"
	}
	s.console.Note("%s: %s, %s", name, count(len(applied.Objects), "object"), what)
	for _, kept := range applied.Kept {
		s.console.Warn("%s", kept)
	}
	if len(applied.Kept) > 0 {
		s.console.Note("to replace these fields: %s --force-conflicts", s.plan.bundle.applyCommand())
	}
	for _, l := range applied.Later {
		s.console.Warn("%s is not applied yet: %s", l.Object, l.Why)
	}
	if len(applied.Later) > 0 {
		s.console.Note("after a worker has joined: %s", s.plan.bundle.applyCommand())
	}
	for _, former := range recorded.Former {
		s.console.Note("%s is no longer in the manifest; it is not deleted", former)
	}
}

// wait waits for the workloads of the manifests.
func (s *manifests) wait(ctx context.Context) error {
	if s.plan.skips("manifests") {
		s.console.Note("skipped, because the phase manifests is skipped")
		return nil
	}
	inventory, err := s.client.Inventory(ctx)
	if err != nil {
		return err
	}
	want := cluster.Workloads{InBundle: s.plan.bundle.hasImage, OnProblem: func(problem string) { s.console.Warn("%s", problem) }}
	for _, listed := range s.plan.siteManifests() {
		m, err := s.parse(ctx, listed)
		if err != nil {
			return err
		}
		want.Manifests = append(want.Manifests, m)
		want.Skip = append(want.Skip, inventory[m.Name].Later...)
	}
	site := s.client.Site(nodeTimeout, s.report)
	var later []cluster.Later
	err = s.watched(ctx, dependency{}, func(ctx context.Context) (err error) {
		later, err = site.WaitForWorkloads(ctx, want)
		return err
	})
	for _, l := range later {
		s.console.Note("%s: %s", l.Object, l.Why)
	}
	return err
}

// parse decodes a manifest of the bundle.
func (s *manifests) parse(ctx context.Context, listed bundle.SiteManifest) (*cluster.SiteManifest, error) {
	data, err := s.document(ctx, listed.Entry())
	if err != nil {
		return nil, err
	}
	return cluster.ParseSiteManifest(s.plan.bundle.manifestOf(listed), data)
}

// document returns the bytes of a manifest, from the stream if it has them.
func (s *manifests) document(ctx context.Context, entry string) (data []byte, err error) {
	if s.stream == nil || !slices.Contains(s.stream.site.manifests, entry) {
		return s.plan.bundle.document(ctx, entry)
	}
	if err := s.stream.wait(ctx, entry); err != nil {
		return nil, err
	}
	return s.stream.site.document(entry), nil
}

// render prints the manifests, or writes them to RenderDir.
func (s *manifests) render(ctx context.Context) error {
	for _, m := range s.plan.siteManifests() {
		data, err := s.document(ctx, m.Entry())
		if err != nil {
			return err
		}
		if err := s.options.renderTo(s.console, m.Name, data); err != nil {
			return err
		}
	}
	return nil
}

// document reads an entry of the bundle into memory.
func (b *Bundle) document(ctx context.Context, entry string) ([]byte, error) {
	s, err := b.file.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.Skip(func(e bundle.Entry) bool { return e.Name != entry })
	_, content, err := s.Next()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(content)
}

// id identifies the bundle's contents: the sha256 of its manifest.json.
func (b *Bundle) id() string { return b.file.ManifestSHA256() }

// manifestOf returns what the bundle lists of one of the site's manifests.
func (b *Bundle) manifestOf(listed bundle.SiteManifest) cluster.SiteManifest {
	m := cluster.SiteManifest{Name: listed.Name, Chart: listed.Chart, Namespace: listed.Namespace}
	for _, e := range b.manifest.Entries {
		if e.Name == listed.Entry() {
			m.SHA256 = e.SHA256
		}
	}
	return m
}

// hasImage reports whether the bundle has an image, by a name as in a pod.
func (b *Bundle) hasImage(name string) bool {
	full, err := images.Normalize(name)
	return slices.ContainsFunc(b.manifest.Images, func(i bundle.Image) bool {
		other, failed := images.Normalize(i.Reference)
		return i.Reference == name || err == nil && failed == nil && other == full
	})
}

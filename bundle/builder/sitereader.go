package builder

import (
	"context"
	"fmt"
	"slices"

	"airlift/bundle"
	"airlift/bundle/builder/apirules"
	"airlift/bundle/builder/manifests"
)

// A siteReader reads the manifests of the add-ons, and the site's own manifests and files.
type siteReader struct {
	Target
	from    objectReader
	objects objects
	content siteContent
	// accepted are the objects for checkAccepted, and earlier the objects in the base. namespaces are the namespaces of the
	// manifests.
	accepted, earlier []apirules.Object
	namespaces        []string
}

// read reads everything that is selected for a version of Kubernetes. It returns the references of
// the images of the workloads.
func (r *siteReader) read(ctx context.Context, s Selection) (named []string, err error) {
	own, err := s.addOns(r.from.version)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Concat(own, s.Site.Manifests) {
		if err := r.readManifest(ctx, m); err != nil {
			return nil, fmt.Errorf("%s: manifest %q: %w", m.At, m.Name, err)
		}
		r.objects.of = append(r.objects.of, m.Name)
	}
	if err := r.checkAccepted(); err != nil {
		return nil, err
	}
	for _, path := range s.Site.ImagesFrom {
		got, err := r.from.readAny(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("--images-from %s: %w", path, err)
		}
		r.objects.others = append(r.objects.others, got.objects...)
		r.objects.noteAll(path, got.notes)
		r.objects.of = append(r.objects.of, path)
	}
	r.objects.downloads = r.from.charts.Downloads()
	list, err := manifests.Images(slices.Concat(r.objects.applied, r.objects.others))
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		if r.carries(bundle.OnlyImages) {
			named = append(named, i.Reference)
		}
	}
	return named, r.content.addFiles(ctx, s.Site.Files)
}

func (r *siteReader) readManifest(ctx context.Context, m Manifest) error {
	got, err := r.from.read(ctx, m)
	if err != nil {
		return err
	}
	if m.IfNotPresent {
		manifests.SetPullPolicy(got.objects)
	}
	if !r.carries(bundle.OnlyManifests) {
		r.objects.others = append(r.objects.others, got.objects...)
		r.objects.noteAll(m.Name, got.notes)
		return nil
	}
	content, err := manifests.Encode(got.objects)
	if err != nil {
		return err
	}
	if err := r.objects.apply(m, got.objects); err != nil {
		return err
	}
	r.accept(m.Namespace, got.objects)
	r.objects.noteAll(m.Name, got.notes)
	to := bundle.SiteManifest{Name: m.Name, Namespace: m.Namespace}
	if got.chart != nil {
		to.Chart = got.chart.Chart + " " + got.chart.Version
		r.objects.charts = append(r.objects.charts, *got.chart)
	}
	if m.AddOn != nil {
		to.AddOn = m.AddOn.Version
	}
	if to.Namespace == "default" {
		to.Namespace = "" // the manifest's only form
	}
	return r.content.addManifest(to, content)
}

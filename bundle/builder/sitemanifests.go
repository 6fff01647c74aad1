package builder

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/manifests"
	"airlift/fault"
	"airlift/images"
)

// objects are the Kubernetes objects that the user named.
type objects struct {
	// applied are those of the manifests in the bundle, others those whose images alone it has.
	applied, others []*manifests.Object
	byName          map[string]*manifests.Object // applied, by group, kind, namespace and name
	// of names the manifests and the paths for messages.
	of []string
	// complete is what checkComplete found. warnings are about images that containers of the
	// site may need.
	complete string
	warnings []string
	// charts are those that were rendered.
	charts []ProvenanceChart
}

// apply adds the objects of a manifest. Several manifests may have one object, such as a
// Namespace, but then it must be the same in all of them.
func (o *objects) apply(m Manifest, list []*manifests.Object) error {
	if o.byName == nil {
		o.byName = map[string]*manifests.Object{}
	}
	for _, object := range list {
		group, _, ok := strings.Cut(object.APIVersion, "/")
		if !ok {
			group = ""
		}
		key := fmt.Sprintf("%q", []string{group, object.Kind, cmp.Or(object.Namespace, m.Namespace, "default"), object.Name})
		if first, ok := o.byName[key]; ok {
			if field := manifests.Difference(first, object); field != "" {
				return fault.New(fault.Usage, "remove one of them: the second would replace the first", "%s: %s is also at %s, with another %s",
					object.Position(), object, first.Position(), field)
			}
		}
		o.byName[key] = object
	}
	o.applied = append(o.applied, list...)
	return nil
}

// readSite reads the manifests of the add-ons, and the site's manifests and files, and adds the images of the workloads to
// Images.
func (b *builder) readSite(ctx context.Context) error {
	apis, err := b.apisOfBase(ctx)
	if err != nil {
		return fmt.Errorf("reading the manifests of the base: %w", err)
	}
	r := objectReader{charts: b.charts, version: b.catalog.Version, apis: apis}
	own, err := b.addOns()
	if err != nil {
		return err
	}
	for _, m := range slices.Concat(own, b.Site.Manifests) {
		if err := b.readManifest(ctx, &r, m); err != nil {
			return fmt.Errorf("%s: manifest %q: %w", m.At, m.Name, err)
		}
		b.objects.of = append(b.objects.of, m.Name)
	}
	for _, path := range b.Site.ImagesFrom {
		got, err := r.readAny(ctx, path)
		if err != nil {
			return fmt.Errorf("--images-from %s: %w", path, err)
		}
		b.objects.others = append(b.objects.others, got.objects...)
		b.noteAll(path, got.notes)
		b.objects.of = append(b.objects.of, path)
	}
	named, err := manifests.Images(slices.Concat(b.objects.applied, b.objects.others))
	if err != nil {
		return err
	}
	for _, i := range named {
		if b.carries(bundle.OnlyImages) && !slices.Contains(b.Images, i.Reference) {
			b.Images = append(b.Images, i.Reference)
		}
	}
	return b.content.addFiles(ctx, b.Site.Files)
}

func (b *builder) readManifest(ctx context.Context, r *objectReader, m Manifest) error {
	got, err := r.read(ctx, m)
	if err != nil {
		return err
	}
	if m.IfNotPresent {
		manifests.SetPullPolicy(got.objects)
	}
	if !b.carries(bundle.OnlyManifests) {
		b.objects.others = append(b.objects.others, got.objects...)
		b.noteAll(m.Name, got.notes)
		return nil
	}
	content, err := manifests.Encode(got.objects)
	if err != nil {
		return err
	}
	if err := b.objects.apply(m, got.objects); err != nil {
		return err
	}
	b.noteAll(m.Name, got.notes)
	to := bundle.SiteManifest{Name: m.Name, Namespace: m.Namespace}
	if got.chart != nil {
		to.Chart = got.chart.Chart + " " + got.chart.Version
		b.objects.charts = append(b.objects.charts, *got.chart)
	}
	if m.AddOn != nil {
		to.AddOn = m.AddOn.Version
	}
	if to.Namespace == "default" {
		to.Namespace = "" // the manifest's only form
	}
	return b.content.addManifest(to, content)
}

// checkComplete checks that no pod of the manifests will need an image that is not among
// those of the bundle.
func (b *builder) checkComplete(wanted []images.Image) error {
	if len(b.objects.of) == 0 {
		return nil
	}
	var set []string
	place := "the bundle"
	for _, i := range b.base.onEveryNode() {
		set = append(set, i.Reference)
	}
	for _, i := range wanted {
		set = append(set, i.Reference)
	}
	if !b.carries(bundle.OnlyImages) && b.Base != "" {
		place = "the base"
	}
	var lines []string
	for _, p := range manifests.Check(b.objects.applied, set) {
		if p.Missing && !b.carries(bundle.OnlyImages) {
			p.Hint = b.addImages()
		}
		if p.Maybe {
			b.warn(p)
		} else {
			lines = append(lines, fmt.Sprintf("\n  %s\n    (%s)", p, p.Hint))
		}
	}
	// What is not in the bundle is for the user to correct at any time.
	for _, p := range manifests.Check(b.objects.others, set) {
		b.warn(p)
	}
	if len(lines) > 0 {
		return fault.New(fault.Usage, "correct the manifests; imagePullPolicy: IfNotPresent of a manifest in the file of --file replaces Always in its workloads",
			"the manifests need a registry at the site:%s", strings.Join(lines, ""))
	}
	b.objects.complete = fmt.Sprintf("every image that the workloads in %s name is in %s", strings.Join(b.objects.of, ", "), place)
	switch {
	case len(b.objects.applied) == 0:
	case len(b.objects.others) == 0:
		b.objects.complete += ", and they contact no registry"
	default:
		b.objects.complete += ", and those of the bundle's manifests contact no registry"
	}
	return nil
}

// noteAll keeps what is different from an installation of a chart with Helm.
func (b *builder) noteAll(name string, notes []string) {
	for _, n := range notes {
		b.objects.warnings = append(b.objects.warnings, name+": "+n)
	}
}

func (b *builder) warn(p manifests.Problem) {
	b.objects.warnings = append(b.objects.warnings, fmt.Sprintf("%s (%s)", p, p.Hint))
}

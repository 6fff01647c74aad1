package builder

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"airlift/builder/addons"
	"airlift/builder/apirules"
	"airlift/builder/charts"
	"airlift/builder/manifests"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
)

// flannelNamespace is the namespace of the pod network.
const flannelNamespace = "kube-flannel"

// objects are the Kubernetes objects that the user named.
type objects struct {
	// applied are the objects of the manifests in the bundle, each with the namespace of its manifest, and
	// earlier the objects in the base's manifests. others are objects of which the bundle has only the images.
	applied, earlier []apirules.Object
	others           []*manifests.Object
	namespaces       []string                                 // of the manifests
	byIdentity       map[manifests.Identity]*manifests.Object // applied
	scopes           manifests.Scopes                         // of all kinds that are known here
	// apis are the API versions of the CustomResourceDefinitions in the base and in what was read
	// so far.
	apis []string
	// of names the manifests and the paths for messages.
	of []string
	// complete is the result of checkComplete. warnings are about images that containers of the
	// site may need.
	complete string
	warnings []string
	// charts are the rendered charts.
	charts []ProvenanceChart
}

// A siteSource is a manifest or a chart that is to be read.
type siteSource struct {
	name string // for messages
	read func() error
}

// siteSources reads what precedes the site's manifests, and returns the manifests of the add-ons, and the site's.
func (b *build) siteSources(ctx context.Context) (list []siteSource, err error) {
	o := &b.objects
	if o.earlier, err = b.baseObjects(ctx); err != nil {
		return nil, fmt.Errorf("reading the manifests of the base: %w", err)
	}
	for _, e := range o.earlier {
		o.namespaces = append(o.namespaces, e.Default)
		o.learn(e.Object)
	}
	if b.CNI == release.Flannel || b.Base != "" && b.base.CNI == release.Flannel {
		o.namespaces = append(o.namespaces, flannelNamespace)
	}
	own, err := b.addOns()
	for _, m := range slices.Concat(own, b.Site.Manifests) {
		list = append(list, siteSource{"manifest " + strconv.Quote(m.Name), func() error {
			if err := b.readManifest(ctx, m); err != nil {
				return fmt.Errorf("%s: manifest %q: %w", m.At, m.Name, err)
			}
			return nil
		}})
	}
	for _, path := range b.Site.ImagesFrom {
		list = append(list, siteSource{"--images-from " + path, func() error {
			if err := b.readImagesFrom(ctx, path); err != nil {
				return fmt.Errorf("--images-from %s: %w", path, err)
			}
			return nil
		}})
	}
	return list, err
}

// readSite reads the manifests of the add-ons, and the site's manifests, files and packages, and adds the images
// of the workloads to the named ones.
func (b *build) readSite(ctx context.Context) error {
	sources, err := b.siteSources(ctx)
	if err != nil {
		return err
	}
	for _, s := range sources {
		if err := s.read(); err != nil {
			return err
		}
	}
	if err := b.checkAccepted(); err != nil {
		return err
	}
	if err := b.nameImages(); err != nil {
		return err
	}
	return cmp.Or(b.content.addFiles(ctx, b.Site.Files), joined(b.readPackages(ctx)))
}

// nameImages adds the images of the workloads to the named ones.
func (b *build) nameImages() error {
	images, err := manifests.Images(slices.Concat(b.objects.inBundle(), b.objects.others))
	if err != nil {
		return err
	}
	for _, i := range images {
		if b.carries(bundle.OnlyImages) && !slices.Contains(b.named, i.Reference) {
			b.named = append(b.named, i.Reference)
		}
	}
	return nil
}

// learn keeps what an object adds to the cluster's API.
func (o *objects) learn(list ...*manifests.Object) {
	o.scopes.Add(list)
	o.apis = append(o.apis, apisOf(list)...)
}

// inBundle lists the objects of the manifests in the bundle.
func (o *objects) inBundle() (list []*manifests.Object) {
	for _, a := range o.applied {
		list = append(list, a.Object)
	}
	return list
}

// readManifest reads a manifest of the bundle.
func (b *build) readManifest(ctx context.Context, m Manifest) error {
	o := &b.objects
	list, chart, err := b.readObjects(ctx, m, m.Name)
	if err != nil {
		return err
	}
	if m.IfNotPresent {
		manifests.SetPullPolicy(list)
	}
	if !b.carries(bundle.OnlyManifests) {
		o.others = append(o.others, list...)
		return nil
	}
	content, err := manifests.Encode(list)
	if err != nil {
		return err
	}
	if err := o.apply(m, list); err != nil {
		return err
	}
	to := bundle.SiteManifest{Name: m.Name, Namespace: m.Namespace}
	if chart != nil {
		to.Chart = chart.Chart + " " + chart.Version
		o.charts = append(o.charts, *chart)
	}
	if m.AddOn != nil {
		to.AddOn = m.AddOn.Version
	}
	if to.Namespace == "default" {
		to.Namespace = "" // the manifest's only form
	}
	return b.content.addManifest(to, content)
}

// readImagesFrom reads a chart or a manifest of which the bundle has only the images.
func (b *build) readImagesFrom(ctx context.Context, path string) error {
	if strings.Contains(path, "://") {
		return fault.New(fault.Usage, "%q is not a file or a directory", path).Hint(`download it first, for example with "helm pull", and name the archive`)
	}
	m := Manifest{Path: path}
	if _, err := os.Stat(filepath.Join(path, "Chart.yaml")); err == nil || strings.HasSuffix(path, ".tgz") || strings.HasSuffix(path, ".tar.gz") {
		m.Chart = &Chart{Source: path}
	}
	list, _, err := b.readObjects(ctx, m, path)
	b.objects.others = append(b.objects.others, list...)
	return err
}

// readObjects reads a manifest or renders a chart. name is for messages. The chart is nil for manifests.
func (b *build) readObjects(ctx context.Context, m Manifest, name string) (list []*manifests.Object, chart *ProvenanceChart, err error) {
	switch {
	case m.AddOn != nil:
		var text []byte
		if text, err = addons.Objects(*m.AddOn); err == nil {
			list, err = manifests.Decode("add-on "+m.AddOn.Name, text)
		}
	case m.Chart == nil:
		list, err = manifests.Read(m.Path)
	default:
		var made *charts.Rendering
		if made, err = b.render(ctx, m); err == nil {
			list = made.Objects
			chart = &ProvenanceChart{Manifest: m.Name, Chart: made.Name, Version: made.Version, URL: made.URL, Digest: made.Digest}
			for _, n := range made.Notes {
				b.objects.warnings = append(b.objects.warnings, name+": "+n)
			}
		}
	}
	b.objects.of = append(b.objects.of, name)
	b.objects.apis = append(b.objects.apis, apisOf(list)...)
	return list, chart, err
}

func (b *build) render(ctx context.Context, m Manifest) (*charts.Rendering, error) {
	c := m.Chart
	want := charts.Chart{Name: c.Source, Version: c.Version, Digest: c.Digest, Release: c.Release, Namespace: m.Namespace,
		ValueFiles: c.Values, Set: c.Set, KubernetesVersion: b.release.Version, APIVersions: b.objects.apis}
	if strings.HasPrefix(c.Source, "http://") || strings.HasPrefix(c.Source, "https://") {
		want.Repository, want.Name = c.Source, c.Name
	}
	made, err := b.charts.Render(ctx, want)
	if err != nil && fault.Hint(err) == "" {
		err = fault.Wrap(err, fault.ExitCode(err), `if the site of the chart cannot be reached, use a mirror, or download the archive elsewhere ("helm pull") and use it as the source`)
	}
	return made, err
}

// apply adds the objects of a manifest. Several manifests may contain the same object, such as a
// Namespace, if its definitions are equal.
func (o *objects) apply(m Manifest, list []*manifests.Object) error {
	if o.byIdentity == nil {
		o.byIdentity = map[manifests.Identity]*manifests.Object{}
	}
	o.scopes.Add(list)
	for _, object := range list {
		key := o.scopes.Identity(object, m.Namespace)
		if first, ok := o.byIdentity[key]; ok && manifests.Hook(first) == manifests.Hook(object) {
			if field := manifests.Conflict(first, object); field != "" {
				return fault.New(fault.Usage, "%s: %s is also at %s, with another %s",
					object.Position(), object, first.Position(), field).Hint("remove one of them: the second would replace the first")
			}
		}
		o.byIdentity[key] = object
		o.applied = append(o.applied, apirules.Object{Object: object, Default: m.Namespace})
	}
	o.namespaces = append(o.namespaces, m.Namespace)
	return nil
}

// checkAccepted refuses objects that the API server of the bundle's version would refuse, and objects
// that need a namespace or a kind which nothing creates. install applies them in an order in which each
// finds what it needs.
func (b *build) checkAccepted() error {
	version := b.release.Version
	w := apirules.World{Version: version, Exists: b.additional(), Objects: b.objects.applied, Earlier: b.objects.earlier, Namespaces: b.objects.namespaces}
	if list := b.objects.sort(w.Check()); list != "" {
		return fault.New(fault.Usage, "an API server of Kubernetes %s would refuse objects of the manifests:%s", version, list).
			Hint("correct the manifests; for another version of Kubernetes, use --version")
	}
	return nil
}

// checkComplete checks that the bundle has every image that a pod of the manifests needs. For an
// additional bundle, images that the base installs on every node count too.
func (b *build) checkComplete() error {
	o := &b.objects
	if len(o.of) == 0 {
		return nil
	}
	var set []string
	place, hint := "the bundle", "add images to --only, or name the bundle that has it with --base"
	for _, i := range b.base.images {
		set = append(set, i.Reference, release.Repository(i.Reference)+"@"+i.Target.Digest) // an import records both
	}
	for _, i := range b.images {
		set = append(set, i.Reference)
	}
	if b.Base != "" {
		hint = fmt.Sprintf("add images to --only: no image of this name is on every node that %q installs", b.Base)
	}
	problems := manifests.Check(o.inBundle(), set)
	if !b.carries(bundle.OnlyImages) {
		if b.Base != "" {
			place = "the base"
		}
		for n := range problems {
			if problems[n].Missing {
				problems[n].Hint = hint
			}
		}
	}
	list := o.sort(problems)
	others := manifests.Check(o.others, set)
	for n := range others {
		others[n].Maybe = true // what is not in the bundle is for the user to correct at any time
	}
	o.sort(others)
	if list != "" {
		return fault.New(fault.Usage, "the manifests need a registry at the site:%s", list).
			Hint("correct the manifests; imagePullPolicy: IfNotPresent of a manifest in the file of --file replaces Always in its workloads")
	}
	o.complete = fmt.Sprintf("every image that the workloads in %s name is in %s", strings.Join(o.of, ", "), place)
	switch {
	case len(o.applied) == 0:
	case len(o.others) == 0:
		o.complete += ", and they contact no registry"
	default:
		o.complete += ", and the workloads of the bundle's manifests contact no registry"
	}
	return nil
}

// sort adds the problems with Maybe to the warnings, and lists the others for an error.
func (o *objects) sort(problems []manifests.Problem) (list string) {
	for _, p := range problems {
		switch {
		case !p.Maybe && p.Hint != "":
			list += "\n  " + p.String() + "\n    (" + p.Hint + ")"
		case !p.Maybe:
			list += "\n  " + p.String()
		case p.Hint != "":
			o.warnings = append(o.warnings, p.String()+" ("+p.Hint+")")
		default:
			o.warnings = append(o.warnings, p.String())
		}
	}
	return list
}

// apisOf returns the API versions that a cluster serves after the CustomResourceDefinitions
// among the objects were applied, in both forms that charts look for.
func apisOf(objects []*manifests.Object) (apis []string) {
	for _, o := range objects {
		d := o.Definition()
		if d == nil || d.Group == "" {
			continue
		}
		for _, v := range d.Versions {
			if v.Served && v.Name != "" {
				apis = append(apis, d.Group+"/"+v.Name, d.Group+"/"+v.Name+"/"+d.Kind)
			}
		}
	}
	return apis
}

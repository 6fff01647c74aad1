package builder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"airlift/builder/charts"
	"airlift/builder/local"
	"airlift/images/release"
)

// A Validation is what Validate found.
type Validation struct {
	// Errors begin with the place that the user wrote, if the cause is there.
	Errors   []error
	Warnings []string
	// Charts are the manifests whose charts have to be downloaded, and Daemons the sources of images that a daemon has: they were
	// not checked.
	Charts, Daemons []string
	Images          int // how many images registries must have
	Version         string
}

// Validate runs the steps of a build that need no network, each of them also after an error of another one. It writes no bundle.
// complete is false if a part of the options is already known to be wrong: then nothing is checked that depends on all of them.
func Validate(ctx context.Context, o Options, complete bool) *Validation {
	b, v := newBuild(o), &Validation{}
	check := func(err error) bool {
		if err != nil {
			v.Errors = append(v.Errors, err)
		}
		return err == nil
	}
	for _, step := range b.preparation() {
		complete = check(step()) && complete
	}
	if b.charts == nil {
		return v
	}
	b.charts.Offline = true
	if complete = check(b.guessRelease()) && complete; b.release.Catalog == nil {
		return v
	}
	v.Version = b.release.Version
	var files []local.Spec
	for _, s := range b.sources {
		if s.Path == "" {
			v.Daemons = append(v.Daemons, s.String())
		} else {
			files = append(files, s)
		}
	}
	b.sources = files
	own, err := b.readLocal(ctx)
	complete = check(err) && len(v.Daemons) == 0 && complete
	sources, err := b.siteSources(ctx)
	complete = check(err) && complete
	for _, s := range sources {
		if err := s.read(); errors.Is(err, charts.ErrOffline) {
			v.Charts, complete = append(v.Charts, s.name), false
		} else {
			complete = check(err) && complete
		}
	}
	if complete { // a part that was not read may have what others need
		complete = check(b.checkAccepted())
	}
	complete = check(b.nameImages()) && complete
	complete = check(b.content.addFiles(ctx, slices.DeleteFunc(slices.Clone(b.Site.Files), func(f File) bool { return f.Source == "" }))) && complete
	for _, err := range b.readPackages(ctx) {
		complete = check(err) && complete
	}
	b.chooseBinaries()
	b.listImages(own)
	for _, step := range []func() error{b.checkComplete, b.pin, b.applyLock} {
		complete = complete && check(step())
	}
	for _, i := range b.images {
		if i.local == nil {
			v.Images++
		}
	}
	v.Warnings = b.objects.warnings
	return v
}

// guessRelease takes a known release for a version that only the network resolves.
func (b *build) guessRelease() (err error) {
	version, _, _ := b.channel()
	if version == "" && b.Lock != nil {
		version, err = b.lockedVersion()
	}
	if b.release.Catalog, _ = b.catalogOf(version, b.Arch); b.release.Catalog == nil {
		b.release.Catalog, _ = b.catalogOf(release.NewestOf(b.Version), b.Arch)
	}
	return err
}

// String lists what was not checked, in one line.
func (v *Validation) String() string {
	text := fmt.Sprintf("not checked, because it needs the network: whether sites have the components of Kubernetes %s, and registries %s", v.Version, plural(v.Images, "image"))
	for _, name := range v.Charts {
		text += "; the chart of " + name
	}
	for _, name := range v.Daemons {
		text += "; the images of " + name
	}
	return text
}

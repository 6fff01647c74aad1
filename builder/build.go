// Package builder builds a bundle on a connected machine: it resolves versions and
// checksums, downloads, and writes the file.
package builder

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	"airlift/builder/charts"
	"airlift/builder/events"
	"airlift/builder/fetch"
	"airlift/builder/local"
	"airlift/builder/lock"
	"airlift/builder/registry"
	"airlift/builder/upstreamsig"
	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/bundle/signature"
	"airlift/images/release"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// parallel is the number of requests and downloads at a time: enough to use the
// connection, and few enough for the sites.
const parallel = 4

// A build is one run for one architecture: the options, the clients, and what the options resolved to
// so far. The manifest, the lock, the provenance and the warnings are computed from it.
type build struct {
	Options // completed; never changed after prepare

	cache    *fetch.Cache
	mirrors  *fetch.Mirrors
	fetch    *fetch.Client
	registry *registry.Client
	charts   *charts.Client
	fetched  atomic.Int64 // bytes downloaded in this build, still compressed

	trustedRoot *upstreamsig.Verifier // of the file Options.TrustedRoot; nil without a file
	rootSHA256  string                // of that file, lower-case hex

	base     base
	release  foundRelease
	binaries []*binary
	leftOut  []LeftOut    // optional components
	sources  []local.Spec // of images
	named    []string     // references of the images that the user, local sources and manifests name
	images   []*image     // the catalog's, followed by the named ones
	objects  objects
	content  siteContent
	signed   *Signatures // nil if no signature is to be verified

	manifest *bundle.Manifest // when everything is downloaded
	resolved *lock.Lock       // if the options want it
	kept     openers          // contents that are not in the cache
	draft    *bundle.Draft
	// sideDrafts are in the order in which they get their names.
	sideDrafts []sideDraft
}

// A foundRelease is the Kubernetes release that a bundle is for.
type foundRelease struct {
	*release.Catalog
	source fetch.Source // of the newest version, if it was requested
}

// A sideDraft is a complete file that gets its name after the bundle.
type sideDraft struct {
	SideFile
	file *atomicfile.File
}

// PerArch returns the names of the files of a build for these architectures: path for one
// architecture, path-amd64 and path-arm64 for several.
func PerArch(path string, arches []string) (list []string) {
	for _, arch := range arches {
		if len(arches) > 1 && path != "" {
			list = append(list, path+"-"+arch)
		} else {
			list = append(list, path)
		}
	}
	return list
}

// Run builds a bundle for each of the options, which differ in Arch and in the names of files.
// Everything is resolved, checked and downloaded for all of them before the first bundle is
// written, and all are written and verified before the first gets its name: a build that fails
// changes no file. The results are in the order of the options. With an error, Run returns only the
// results of bundles that already have their final names.
func Run(ctx context.Context, list []Options) (results []*Result, err error) {
	var all []*build
	for _, o := range list {
		o.Report = o.Report.On("linux/" + o.Arch)
		b, err := prepare(o)
		if err != nil {
			return nil, err
		}
		if err := b.checkDestination(); err != nil {
			return nil, err
		}
		b.Executables.Launcher = head.HeadersLast(b.Executables.Launcher)
		defer o.Report.Close()
		defer b.discard()
		all = append(all, b)
	}
	for _, b := range all {
		if err := b.collect(ctx); err != nil {
			return nil, err
		}
		if first := all[0]; first.release.Version != b.release.Version {
			return nil, fault.New(fault.Failure, "%s is %s for linux/%s, and %s for linux/%s", b.Version, first.release.Version, first.Arch, b.release.Version, b.Arch).
				Hint("run the same command again")
		}
	}
	for _, b := range all {
		r, err := b.write(ctx)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, b := range all {
		if b.Resolved == nil {
			continue
		}
		if err := b.Resolved(b.resolved); err != nil {
			return nil, err
		}
	}
	for n, b := range all {
		if err := b.place(); err != nil {
			for _, r := range results[:n] {
				err = fmt.Errorf("%w; %s is already written", err, r.Path)
			}
			return results[:n], err
		}
	}
	return results, nil
}

// Resolve returns what the versions, tags and sources of a build resolve to now, and
// downloads only what that needs. It requests everything again and ignores Lock. The
// warnings are as in Result.
func Resolve(ctx context.Context, o Options) (*lock.Lock, []string, error) {
	o.Lock, o.Refresh = nil, true
	b, err := prepare(o)
	if err != nil {
		return nil, nil, err
	}
	defer o.Report.Close()
	if err := b.resolve(ctx); err != nil {
		return nil, nil, b.explain(err)
	}
	if err := b.verifySignatures(ctx); err != nil {
		return nil, nil, err
	}
	l, err := b.newLock()
	return l, b.warnings(), err
}

// prepare checks everything that can be checked without the network, completes the options, and
// creates the clients.
func prepare(o Options) (*build, error) {
	b := newBuild(o)
	for _, step := range b.preparation() {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func newBuild(o Options) *build {
	return &build{Options: o, content: siteContent{open: openers{}, sources: map[string]string{}}}
}

// preparation lists the steps of prepare.
func (b *build) preparation() []func() error {
	return []func() error{b.completeTarget, b.checkVersion, b.checkAddOns, b.readBase, b.checkOptional, b.parseImages, b.checkFiles, b.readRoot, b.connect}
}

// collect resolves everything, downloads it and computes the manifest.
func (b *build) collect(ctx context.Context) (err error) {
	b.Report.Phase(events.Resolve)
	if err := b.resolve(ctx); err != nil {
		return b.explain(err)
	}
	if err := b.verifySignatures(ctx); err != nil {
		return err
	}
	b.Report.Phase(events.Download)
	if err := b.download(ctx); err != nil {
		return b.explain(err)
	}
	b.Report.Printf("total: %s downloaded\n", progress.Bytes(b.fetched.Load()))
	for _, path := range b.cache.Damaged() {
		b.Report.Printf("%s was damaged and has been downloaded again\n", path)
	}
	if b.manifest, err = b.newManifest(); err != nil || b.Resolved == nil {
		return err
	}
	b.resolved, err = b.newLock()
	return err
}

// resolve reads the site's sources, and finds the checksums of all binaries and the digests of all images.
func (b *build) resolve(ctx context.Context) error {
	if err := b.findRelease(ctx); err != nil {
		return err
	}
	own, err := b.readLocal(ctx) // a manifest may name an image of a local source
	if err != nil {
		return err
	}
	if err := b.readSite(ctx); err != nil {
		return err
	}
	b.chooseBinaries()
	b.listImages(own)
	for _, step := range []func() error{b.checkComplete, b.describe, b.pin, b.applyLock} {
		if err := step(); err != nil {
			return err
		}
	}
	return b.request(ctx)
}

// describe reports what the bundle will have.
func (b *build) describe() error {
	version, images, manifests := b.release.Version, len(b.images), len(b.content.manifests)
	switch {
	case !b.additional():
		b.Report.Printf("Kubernetes %s for linux/%s, pod network %s: %d components, %d images\n", version, b.Arch, b.CNI, len(b.binaries), images)
	case images+manifests == 0:
		return fault.New(fault.Usage, "the bundle would be empty: there is nothing of --only %s", strings.Join(b.Only, ",")).
			Hint("add images with --image or --images-from, or list manifests in the file of --file")
	default:
		b.Report.Printf("additional bundle for Kubernetes %s on linux/%s: %s, %s\n", version, b.Arch, plural(images, "image"), plural(manifests, "manifest"))
	}
	return nil
}

// write writes the bundle under a temporary name and verifies it.
func (b *build) write(ctx context.Context) (*Result, error) {
	b.kept = maps.Clone(b.content.open)
	if err := b.addSBOMs(ctx); err != nil {
		return nil, err
	}
	if err := b.checkOutputRoom(); err != nil {
		return nil, err
	}
	if err := b.writeFiles(ctx); err != nil {
		return nil, err
	}
	r := &Result{Summary: b.draft.Summary, Path: b.Output, Manifest: b.manifest, Base: b.Base,
		Provenance: ProvenancePath(b.Output), LeftOut: b.leftOut, Pinned: b.pinned(), Signatures: b.signed,
		Complete: b.objects.complete, Warnings: b.warnings(), Downloaded: b.fetched.Load()}
	if b.Key != nil {
		r.Signature = signature.Path(b.Output)
	}
	for _, format := range b.SBOM {
		r.SBOMs = append(r.SBOMs, format.Path(b.Output))
	}
	if r.Downloaded > 0 {
		r.UnusedMirrors = b.mirrors.Unused()
	}
	return r, nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

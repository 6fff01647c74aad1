package builder

import (
	"context"
	"slices"

	"airlift/bundle/events"
	"airlift/bundle/signature"
	"airlift/fault"
	"airlift/progress"
)

// PerArch returns the names of the files of a build for these architectures: path for one of them,
// path-amd64 and path-arm64 for several.
func PerArch(path string, arches []string) (list []string) {
	if len(arches) < 2 || path == "" {
		return slices.Repeat([]string{path}, max(len(arches), 1))
	}
	for _, arch := range arches {
		list = append(list, path+"-"+arch)
	}
	return list
}

// RunAll builds a bundle for each of the options, which differ in Arch and in the names of files.
// Everything is resolved, checked and downloaded for all of them before the first bundle is
// written. The results are in the order of the options.
func RunAll(ctx context.Context, list []Options) (results []*Result, err error) {
	var all []*builder
	for _, o := range list {
		o.Events = o.Events.On("linux/" + o.Arch)
		b := &builder{Options: o}
		b.Images = slices.Clone(o.Images)
		if err := b.prepare(); err != nil {
			return nil, err
		}
		if err := b.prepareOutput(); err != nil {
			return nil, err
		}
		defer o.Progress.Close()
		all = append(all, b)
	}
	for _, b := range all {
		if err := b.collect(ctx); err != nil {
			return nil, err
		}
		if err := all[0].sameRelease(b); err != nil {
			return nil, err
		}
	}
	for _, b := range all {
		r, err := b.finish(ctx)
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

// sameRelease refuses a channel that was moved between two architectures.
func (b *builder) sameRelease(other *builder) error {
	if b.catalog.Version == other.catalog.Version {
		return nil
	}
	return fault.New(fault.Failure, "run the same command again",
		"%s is %s for linux/%s, and %s for linux/%s", b.Version, b.catalog.Version, b.Arch, other.catalog.Version, other.Arch)
}

// collect resolves everything, downloads it and computes the manifest.
func (b *builder) collect(ctx context.Context) (err error) {
	b.Events.Phase(events.Resolve)
	if err := b.resolve(ctx); err != nil {
		return b.explain(err)
	}
	if err := b.verifySignatures(ctx); err != nil {
		return err
	}
	b.Events.Phase(events.Download)
	if err := b.download(ctx); err != nil {
		return b.explain(err)
	}
	b.Progress.Printf("total: %s downloaded\n", progress.Bytes(b.fetched.Load()))
	for _, path := range b.cache.Damaged() {
		b.Progress.Printf("%s was damaged and has been downloaded again\n", path)
	}
	if b.contents, err = b.manifest(); err != nil || b.Resolved == nil {
		return err
	}
	l, err := b.lock()
	if err != nil {
		return err
	}
	return b.Resolved(l)
}

// finish writes the bundle and verifies it.
func (b *builder) finish(ctx context.Context) (*Result, error) {
	m := b.contents
	if err := b.addSBOMs(ctx, m); err != nil {
		return nil, err
	}
	sum, err := b.write(ctx, m)
	if err != nil {
		return nil, err
	}
	r := &Result{Summary: sum, Path: b.Output, Manifest: m, Base: b.Base,
		Provenance: ProvenancePath(b.Output), LeftOut: b.leftOut, Pinned: b.pinnedNames(), Signatures: b.signed,
		Complete: b.objects.complete, Warnings: b.allWarnings(), Downloaded: b.fetched.Load()}
	if b.Key != nil {
		r.Signature = signature.Path(b.Output)
	}
	for _, format := range b.SBOM {
		r.SBOMs = append(r.SBOMs, format.Path(b.Output))
	}
	if b.fetched.Load() > 0 {
		r.UnusedMirrors = b.mirrors.Unused()
	}
	return r, nil
}

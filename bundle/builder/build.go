// Package builder builds a bundle on a connected machine: it resolves versions and
// checksums, downloads, and writes the file.
package builder

import (
	"context"
	"maps"

	"airlift/bundle"
	"airlift/bundle/builder/events"
	"airlift/bundle/builder/lock"
	"airlift/bundle/signature"
	"airlift/images/local"
	"airlift/images/release"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// parallel is the number of requests and downloads at a time: enough to use the
// connection, and few enough for the sites.
const parallel = 4

// A build is one run. It gives each step what the step needs, and keeps the results in found.
type build struct {
	options  Options // never changed after prepare
	sources  []local.Spec
	root     trustedRoot
	sites    *sites
	report   *reporter
	found    inventory
	contents *bundle.Manifest // when everything is downloaded
	resolved *lock.Lock       // if the options want it
	out      output
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
		return nil, nil, explain(err, b.found.hosts())
	}
	if err := b.verifySignatures(ctx); err != nil {
		return nil, nil, err
	}
	l, err := b.found.lock()
	return l, b.found.warnings(b.sites.mirrors), err
}

// prepare checks everything that can be checked without the network, completes the options, and
// creates the clients.
func prepare(o Options) (*build, error) {
	var err error
	if o.Target, err = o.Target.complete(o.Selection); err != nil {
		return nil, err
	}
	b := &build{options: o, report: &reporter{Reporter: o.Report}, found: inventory{Target: o.Target, Selection: o.Selection}}
	full, _, err := b.options.Target.channel()
	if err != nil {
		return nil, err
	}
	if err := release.Supported(b.options.Arch, b.options.CNI); err != nil {
		return nil, err
	}
	if err := b.options.Selection.checkAddOns(b.options.Target); err != nil {
		return nil, err
	}
	if full != "" {
		if _, err := b.options.Target.catalogOf(full); err != nil {
			return nil, err
		}
	}
	if b.found.base, err = readBase(b.options.Target, b.options.Output); err != nil {
		return nil, err
	}
	if err := b.choice().check(); err != nil {
		return nil, err
	}
	if b.found.named, b.sources, err = parseImages(b.options.Images); err != nil {
		return nil, err
	}
	if err := b.options.Site.checkFiles(b.options.CNI); err != nil {
		return nil, err
	}
	if b.root, err = b.options.Trust.readRoot(); err != nil {
		return nil, err
	}
	if b.options.Lock != nil && b.options.Refresh {
		return nil, fault.New(fault.Usage, "--refresh requests nothing again, because %s pins everything", b.options.LockPath).Hint("resolve everything again with " + updateCommand)
	}
	if b.sites, err = connect(b.options.Network, b.options.Arch, b.found.base, b.options.KeepCompressed, b.report); err != nil {
		return nil, err
	}
	b.options.Trust.pinCharts(b.sites.charts)
	return b, nil
}

// choice and binaries are the steps that several methods need.
func (b *build) choice() choice {
	return choice{require: b.options.Require, without: b.options.Without, lock: b.options.Lock, lockPath: b.options.LockPath, report: b.report}
}

func (b *build) binaries() binaryFetcher {
	return binaryFetcher{sites: b.sites, report: b.report, refresh: b.options.Refresh, lockPath: b.options.LockPath}
}

// collect resolves everything, downloads it and computes the manifest.
func (b *build) collect(ctx context.Context) (err error) {
	b.report.Phase(events.Resolve)
	if err := b.resolve(ctx); err != nil {
		return explain(err, b.found.hosts())
	}
	if err := b.verifySignatures(ctx); err != nil {
		return err
	}
	b.report.Phase(events.Download)
	if err := b.download(ctx); err != nil {
		return explain(err, b.found.hosts())
	}
	b.report.Printf("total: %s downloaded\n", progress.Bytes(b.report.fetched.Load()))
	for _, path := range b.sites.cache.Damaged() {
		b.report.Printf("%s was damaged and has been downloaded again\n", path)
	}
	if b.contents, err = b.found.manifest(b.options.Level); err != nil || b.options.Resolved == nil {
		return err
	}
	b.resolved, err = b.found.lock()
	return err
}

// write writes the bundle under a temporary name and verifies it.
func (b *build) write(ctx context.Context) (*Result, error) {
	found, m := &b.found, b.contents
	b.out = output{Destination: b.options.Destination, report: b.report, cache: b.sites.cache, kept: maps.Clone(found.content.open)}
	if err := b.out.addSBOMs(ctx, m); err != nil {
		return nil, err
	}
	if err := checkOutputRoom(b.options.Output, found.estimate()+b.options.size()); err != nil {
		return nil, err
	}
	sum, err := b.out.write(ctx, m, func(s bundle.Summary) Provenance { return found.provenance(m, s, b.sites) })
	if err != nil {
		return nil, err
	}
	r := &Result{Summary: sum, Path: b.options.Output, Manifest: m, Base: b.options.Base,
		Provenance: ProvenancePath(b.options.Output), LeftOut: found.components.leftOut, Pinned: found.pinned(), Signatures: found.signed,
		Complete: found.objects.complete, Warnings: found.warnings(b.sites.mirrors), Downloaded: b.report.fetched.Load()}
	if b.options.Key != nil {
		r.Signature = signature.Path(b.options.Output)
	}
	for _, format := range b.options.SBOM {
		r.SBOMs = append(r.SBOMs, format.Path(b.options.Output))
	}
	if r.Downloaded > 0 {
		r.UnusedMirrors = b.sites.mirrors.Unused()
	}
	return r, nil
}

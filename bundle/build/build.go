// Package build makes a bundle on a connected machine: resolve, fetch, write.
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"airlift/bundle"
	"airlift/bundle/fetch"
	"airlift/fault"
	"airlift/images"
	"airlift/images/registry"
	"airlift/progress"
)

// Options say what to build.
type Options struct {
	// Version is a full version ("v1.29.15"), or a minor version ("v1.29")
	// or "stable", which mean the newest there is.
	Version string
	Arch    string // "amd64" or "arm64"
	CNI     string // "flannel" or "none"
	// Images are the user's own, as people type them; every bundle carries
	// the catalog's.
	Images []string
	// Output is the file to write.
	Output string
	// Programs are the launcher and the installer for Arch.
	Programs bundle.Programs
	CacheDir string
	Mirrors  []fetch.Mirror
	// Pins are checksums that the user knows from elsewhere.
	Pins []Pin
	// Require and Without name optional components: those that must not be
	// left out, and those that shall be.
	Require, Without []string
	// Refresh asks registries and sites again for what the cache remembers.
	Refresh bool
	// Level is how hard to compress; the zero value is what users want.
	Level bundle.Level
	// Progress shows what is going on; nil shows nothing.
	Progress *progress.Display
}

// A Result describes the bundle that was written.
type Result struct {
	bundle.Summary
	Path     string
	Manifest *bundle.Manifest
	// Provenance is the path of the file that records who vouched for what.
	Provenance string
	LeftOut    []LeftOut
	Pinned     []string // what the user's checksums were compared with
	// Warnings are sentences about what only a mirror vouches for.
	Warnings []string
	// UnusedMirrors are mirrored hosts that nothing was asked of, in a build
	// that did not find everything in its cache.
	UnusedMirrors []string
}

// A builder is one build under way.
type builder struct {
	Options
	catalog  *images.Catalog
	cache    *fetch.Cache
	mirrors  *fetch.Mirrors
	fetch    *fetch.Client
	registry *registry.Client

	release  fetch.Source // of the newest version, where that was asked
	binaries []*binary
	images   []*registry.Image
	leftOut  []LeftOut
	fetched  atomic.Int64 // bytes, as they travelled
}

// Run builds a bundle, reads it again from end to end, and describes it. On
// an error nothing is at Output that was not there before; what was
// downloaded stays in the cache for the next run.
func Run(ctx context.Context, o Options) (*Result, error) {
	b := &builder{Options: o}
	b.Images = slices.Clone(o.Images)
	if err := b.prepare(); err != nil {
		return nil, err
	}
	defer o.Progress.Close()
	if err := b.resolve(ctx); err != nil {
		return nil, b.explain(err)
	}
	if err := b.download(ctx); err != nil {
		return nil, b.explain(err)
	}
	o.Progress.Printf("total: %s fetched\n", progress.Bytes(b.fetched.Load()))
	for _, path := range b.cache.Damaged() {
		o.Progress.Printf("%s was damaged, so it was fetched again\n", path)
	}
	m, contents, err := b.manifest()
	if err != nil {
		return nil, err
	}
	sum, err := b.write(ctx, m, contents)
	if err != nil {
		return nil, err
	}
	r := &Result{Summary: sum, Path: o.Output, Manifest: m,
		Provenance: ProvenancePath(o.Output), LeftOut: b.leftOut, Pinned: b.pinnedNames(), Warnings: b.warnings()}
	if b.fetched.Load() > 0 {
		r.UnusedMirrors = b.mirrors.Unused()
	}
	return r, nil
}

// prepare finds every reason not to begin that needs no network.
func (b *builder) prepare() (err error) {
	if _, _, err := images.Channel(b.Version); err != nil {
		return err
	}
	if err := images.Supported(b.Arch, b.CNI); err != nil {
		return err
	}
	if err := b.checkOptional(); err != nil {
		return err
	}
	for n, name := range b.Images {
		if b.Images[n], err = images.Normalize(name); err != nil {
			return err
		}
	}
	if err := checkProgram("launcher", b.Programs.Launcher, b.Arch); err != nil {
		return err
	}
	if err := checkProgram("installer", b.Programs.Installer, b.Arch); err != nil {
		return err
	}
	if err := checkOutput(b.Output); err != nil {
		return err
	}
	if err := checkProvenance(b.Output); err != nil {
		return err
	}
	if err := b.Level.Check(); err != nil {
		return err
	}
	if b.cache, err = fetch.OpenCache(b.CacheDir); err != nil {
		return fault.Wrap(err, fault.Failure, "choose another folder with --cache-dir")
	}
	if b.mirrors, err = fetch.NewMirrors(fetch.Transport(), b.Mirrors); err != nil {
		return err
	}
	b.fetch = fetch.New(b.cache, b.mirrors)
	b.fetch.Refresh = b.Refresh
	b.fetch.Note = func(s string) { b.Progress.Printf("  %s\n", s) }
	b.registry = registry.New(b.fetch, b.mirrors, b.Arch)
	return nil
}

// checkOutput finds out before the downloads what would fail after them.
func checkOutput(path string) error {
	if i, err := os.Stat(path); err == nil && i.IsDir() {
		return fault.New(fault.Usage, "name the file to write, for example --output "+filepath.Join(path, "install"), "%q is a folder", path)
	}
	dir := filepath.Dir(path)
	probe, err := os.CreateTemp(dir, ".airlift-*")
	if err != nil {
		return fault.New(fault.Usage, "choose a folder that exists and can be written to with --output", "writing to %q: %w", dir, err)
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// newest turns "v1.29" into "v1.29.15".
func (b *builder) newest(ctx context.Context) (string, error) {
	full, channel, err := images.Channel(b.Version)
	if err != nil || full != "" {
		return full, err
	}
	text, source, err := b.fetch.Text(ctx, channel)
	if err != nil {
		hint := "give a full version, like --version v1.29.15"
		if last, ok := b.fetch.Recall("newest in " + channel); ok {
			hint = fmt.Sprintf("give the full version; the last answer was --version %s", last)
		}
		return "", fault.Wrap(fmt.Errorf("finding the newest release of %s: %w", b.Version, err), fault.Failure, hint)
	}
	full = strings.TrimSpace(text)
	if _, err := images.For(full, b.Arch, b.CNI); err != nil {
		return "", fmt.Errorf("reading %s: %w", channel, err)
	}
	b.Progress.Printf("newest release of %s: %s\n", b.Version, full)
	b.release = source
	return full, b.fetch.Remember("newest in "+channel, full)
}

// write writes the bundle and reads it again.
func (b *builder) write(ctx context.Context, m *bundle.Manifest, contents map[string]string) (bundle.Summary, error) {
	if err := b.checkOutputRoom(); err != nil {
		return bundle.Summary{}, err
	}
	b.Progress.Printf("compression: %s\n", b.Level)
	item := b.Progress.Item("writing "+b.Output, m.UnpackedSize()+int64(len(b.Programs.Installer)))
	open := func(e bundle.Entry) (io.ReadCloser, error) { return b.cache.Open(contents[e.Name]) }
	file := provenanceFile{path: ProvenancePath(b.Output)}
	defer file.discard()
	complete := func(s bundle.Summary) error { return file.prepare(b.provenance(m, s)) }
	sum, err := bundle.WriteFile(ctx, b.Output, b.Programs, m, bundle.Options{Level: b.Level, Complete: complete}, open,
		func(_ bundle.Entry, n int64) { item.Add(n) })
	if err == nil {
		err = file.finish()
	}
	if err != nil {
		item.Failed()
		return sum, err
	}
	item.Done(fmt.Sprintf("written as %s, %.1f to 1", progress.Bytes(sum.Size), float64(sum.UnpackedSize)/float64(sum.Size)))

	item = b.Progress.Item("verifying "+b.Output, m.UnpackedSize())
	if err := verify(ctx, b.Output, func(_ bundle.Entry, n int64) { item.Add(n) }); err != nil {
		item.Failed()
		return sum, fmt.Errorf("reading the bundle again: %w", err)
	}
	item.Done("verified")
	return sum, nil
}

func verify(ctx context.Context, path string, p bundle.Progress) error {
	f, err := bundle.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Verify(ctx, p)
}

// explain adds what to do to the errors a network makes.
func (b *builder) explain(err error) error {
	var dns *net.DNSError
	var op *net.OpError
	var u *url.Error
	var size *fetch.SizeError
	var redirect *fetch.RedirectError
	if errors.As(err, &size) || errors.As(err, &redirect) {
		return err // it was reached
	}
	if fault.Hint(err) != "" || !errors.As(err, &dns) && !errors.As(err, &op) && !errors.As(err, &u) {
		return err
	}
	return fault.Wrap(err, fault.Failure, "building a bundle needs "+strings.Join(b.hosts(), ", ")+
		" and the hosts they redirect to; --mirror HOST=URL sends requests elsewhere, HTTPS_PROXY through a proxy")
}

// hosts lists where the catalog's things come from.
func (b *builder) hosts() []string {
	hosts := []string{"dl.k8s.io", "github.com", "registry.k8s.io"}
	if b.CNI == images.Flannel {
		hosts = append(hosts, "ghcr.io")
	}
	return hosts
}

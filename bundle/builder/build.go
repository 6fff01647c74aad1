// Package builder builds a bundle on a connected machine: it resolves versions and
// checksums, downloads, and writes the file.
package builder

import (
	"context"
	"crypto/x509"
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
	"airlift/bundle/charts"
	"airlift/bundle/events"
	"airlift/bundle/fetch"
	"airlift/bundle/lock"
	"airlift/bundle/sbom"
	"airlift/bundle/signature"
	"airlift/fault"
	"airlift/images"
	"airlift/images/local"
	"airlift/images/registry"
	"airlift/progress"
)

// Options are the options of a build.
type Options struct {
	// Version is a full version ("v1.29.15"), a minor version ("v1.29") or
	// "stable". A minor version and "stable" mean the newest release.
	Version string
	// Versions are the versions of components of a release that is newer than the
	// known ones.
	Versions images.Versions
	Arch     string // "amd64" or "arm64"
	CNI      string // "flannel" or "none"
	// Only lists the kinds of content of an additional bundle, which has no Kubernetes:
	// bundle.OnlyImages, bundle.OnlyManifests or both. It is empty for a bundle that
	// installs nodes.
	Only []string
	// Base is the path of the bundle whose layers an additional bundle leaves out, if all
	// nodes have them.
	Base string
	// Images are the user's own images, as typed: in a registry, or in a source of
	// package local. Every bundle also has the images of the catalog.
	Images []string
	// Namespace is containerd's namespace, for images of a local containerd.
	Namespace string
	// AddOns are names of optional add-ons of the catalog.
	AddOns []string
	// Site is the site's own software.
	Site Site
	// Output is the file to write.
	Output string
	// Executables are the launcher and the installer for Arch.
	Executables bundle.Executables
	CacheDir    string
	Mirrors     []fetch.Mirror
	// CAs are the values of --registry-ca: FILE, HOST=FILE, or a directory as docker's
	// certs.d. They hold for all sites.
	CAs []string
	// AuthFile has the credentials for registries. If it is empty, they are in the files
	// of docker and podman.
	AuthFile string
	// Pins are checksums that the user knows from another source.
	Pins []Pin
	// VerifySignatures is VerifyOff, VerifyIfPresent or VerifyRequire; empty is VerifyOff.
	VerifySignatures string
	// TrustedRoot is the path of sigstore's trusted root. If it is empty, the public one is
	// downloaded.
	TrustedRoot string
	// Require lists optional components without which the build fails.
	// Without lists optional components that are left out.
	Require, Without []string
	// Refresh requests facts again instead of using the cached ones.
	Refresh bool
	// KeepCompressed also puts the compressed layers into the bundle that no encoder gives.
	KeepCompressed bool
	// Level is the compression level; the zero value is the default.
	Level bundle.Level
	// SBOM lists the formats in which the list of the software is also written next to the
	// bundle, which contains all formats.
	SBOM []sbom.Format
	// Key signs the bundle; nil leaves it unsigned.
	Key *signature.SecretKey
	// Lock pins what an earlier build resolved; nil pins nothing. LockPath is its path, for
	// messages.
	Lock     *lock.Lock
	LockPath string
	// Resolved, if set, gets what was resolved, before a bundle is written.
	Resolved func(*lock.Lock) error
	// Progress shows the progress; nil shows nothing.
	Progress *progress.Display
	// Events gets the progress for other software; nil for none.
	Events *events.Stream
}

// A Result describes the bundle that was written.
type Result struct {
	bundle.Summary
	Path     string
	Manifest *bundle.Manifest
	// Base is the path of the base, if the bundle has one.
	Base string
	// Provenance is the path of the provenance file.
	Provenance string
	// Signature is the path of the signature, if the bundle is signed.
	Signature string
	// SBOMs are the paths of the lists of the software.
	SBOMs   []string
	LeftOut []LeftOut
	Pinned  []string // names of what was compared with the user's checksums
	// Signatures reports which signatures of upstream were verified, and what was only compared
	// with a checksum. It is nil if none were to be verified.
	Signatures *Signatures
	// Complete is the result of the check that no pod of the manifests needs an image that
	// is not in the bundle. It is empty without manifests.
	Complete string
	// Warnings report what was assumed, which checksums only a mirror supplied, and which
	// images the manifests may need as well.
	Warnings []string
	// UnusedMirrors are mirrored hosts that received no request, in a build that
	// had to download something.
	UnusedMirrors []string
	// Downloaded is the number of bytes of components and layers that were downloaded,
	// still compressed.
	Downloaded int64
}

// A builder is the state of one build.
type builder struct {
	Options
	catalog  *images.Catalog
	base     base
	cache    *fetch.Cache
	mirrors  *fetch.Mirrors
	fetch    *fetch.Client
	registry *registry.Client

	release  fetch.Source // of the newest version, if it was requested
	binaries []*binary
	local    []local.Spec // of Images
	images   []*image
	objects  objects
	content  siteContent
	contents *bundle.Manifest // when everything is downloaded
	charts   *charts.Client
	leftOut  []LeftOut
	signed   *Signatures
	rootSum  string       // sha256 of the file TrustedRoot, lower-case hex
	fetched  atomic.Int64 // bytes downloaded, still compressed
}

// Run builds a bundle, verifies the written file, and returns its description. On an
// error Output is unchanged; downloads stay in the cache for the next run.
func Run(ctx context.Context, o Options) (*Result, error) {
	results, err := RunAll(ctx, []Options{o})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// prepare checks everything that can be checked without the network.
func (b *builder) prepare() (err error) {
	if err := b.checkOnly(); err != nil {
		return err
	}
	full, _, err := b.channel()
	if err != nil {
		return err
	}
	if err := images.Supported(b.Arch, b.CNI); err != nil {
		return err
	}
	if err := b.checkAddOns(); err != nil {
		return err
	}
	if full != "" {
		if _, err := b.catalogOf(full); err != nil {
			return err
		}
	}
	if err := b.readBase(); err != nil {
		return err
	}
	if err := b.checkOptional(); err != nil {
		return err
	}
	if err := b.parseImages(); err != nil {
		return err
	}
	if err := b.checkFiles(); err != nil {
		return err
	}
	if err := b.checkSignatureOptions(); err != nil {
		return err
	}
	if b.Lock != nil && b.Refresh {
		return fault.New(fault.Usage, "resolve everything again with "+b.updateCommand(), "--refresh requests nothing again, because %s pins everything", b.LockPath)
	}
	return b.connect()
}

// prepareOutput checks what is only needed to write a bundle.
func (b *builder) prepareOutput() error {
	if err := checkExecutable("launcher", b.Executables.Launcher, b.Arch); err != nil {
		return err
	}
	if err := checkExecutable("installer", b.Executables.Installer, b.Arch); err != nil {
		return err
	}
	if err := checkOutput(b.Output); err != nil {
		return err
	}
	if err := checkProvenance(b.Output); err != nil {
		return err
	}
	if err := checkSBOMs(b.Output, b.SBOM); err != nil {
		return err
	}
	if err := checkSignature(b.Output); err != nil {
		return err
	}
	return b.Level.Check()
}

// connect opens the cache and creates the clients for sites and registries.
func (b *builder) connect() (err error) {
	if b.cache, err = fetch.OpenCache(b.CacheDir); err != nil {
		return fault.Wrap(err, fault.Failure, "choose another directory with --cache-dir")
	}
	trust, err := fetch.NewTrust(b.CAs)
	if err != nil {
		return err
	}
	if b.mirrors, err = fetch.NewMirrors(trust.Transport(), b.Mirrors); err != nil {
		return err
	}
	b.fetch = fetch.New(b.cache, b.mirrors)
	b.fetch.Refresh = b.Refresh
	b.fetch.Note = func(s string) { b.Progress.Printf("  %s\n", s) }
	b.registry = registry.New(b.fetch, b.mirrors, b.Arch)
	b.registry.AuthFile = b.AuthFile
	b.registry.Have, b.registry.HaveCompressed = b.base.layers, b.base.compressed
	b.registry.Keep = b.KeepCompressed
	b.charts = charts.New(b.mirrors)
	b.watchCharts()
	b.pinCharts()
	return nil
}

// checkOutput finds an unusable output before the downloads start.
func checkOutput(path string) error {
	if i, err := os.Stat(path); err == nil && i.IsDir() {
		return fault.New(fault.Usage, "name the file to write, for example --output "+filepath.Join(path, "install"), "%q is a directory", path)
	}
	dir := filepath.Dir(path)
	probe, err := os.CreateTemp(dir, ".airlift-*")
	if err != nil {
		return fault.New(fault.Usage, "choose an existing, writable directory with --output", "writing to %q: %w", dir, err)
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// chooseRelease sets the catalog of the release that Options.Version names:
// "v1.29.15", or "v1.29" for its newest release.
func (b *builder) chooseRelease(ctx context.Context) error {
	version, channel, err := b.channel()
	if err != nil {
		return err
	}
	if channel != "" && b.Lock != nil {
		if version, err = b.lockedVersion(); err == nil {
			b.catalog, err = b.catalogOf(version)
		}
		return err
	}
	if channel != "" {
		if version, err = b.newest(ctx, channel); err != nil {
			return err
		}
	}
	if b.catalog, err = b.catalogOf(version); channel == "" {
		return err
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", channel, err)
	}
	b.Progress.Printf("newest release of %s: %s\n", b.Version, version)
	return b.fetch.Remember("newest in "+channel, version)
}

// newest returns the version that a channel names.
func (b *builder) newest(ctx context.Context, channel string) (string, error) {
	text, source, err := b.fetch.Text(ctx, channel)
	if err != nil {
		hint := "give a full version, for example --version " + images.NewestRelease(b.Version)
		if last, ok := b.fetch.Recall("newest in " + channel); ok {
			hint = fmt.Sprintf("give a full version; the last known release is --version %s", last)
		}
		return "", fault.Wrap(fmt.Errorf("finding the newest release of %s: %w", b.Version, err), fault.Failure, hint)
	}
	b.release = source
	return strings.TrimSpace(text), nil
}

// write writes the bundle and verifies it.
func (b *builder) write(ctx context.Context, m *bundle.Manifest) (bundle.Summary, error) {
	if err := b.checkOutputRoom(); err != nil {
		return bundle.Summary{}, err
	}
	b.Events.Phase(events.Write)
	b.Progress.Printf("compression: %s\n", b.Level)
	item := b.Progress.Item("writing "+b.Output, m.UnpackedSize()+int64(len(b.Executables.Installer)))
	file := provenanceFile{path: ProvenancePath(b.Output)}
	defer file.discard()
	complete := func(s bundle.Summary) error {
		if err := file.prepare(b.provenance(m, s)); err != nil {
			return err
		}
		if err := b.removeSBOMs(); err != nil {
			return err
		}
		return b.removeSignature()
	}
	sum, err := bundle.WriteFile(ctx, b.Output, b.Executables, m, bundle.Options{Level: b.Level, Complete: complete}, b.open,
		func(_ bundle.Entry, n int64) { item.Add(n) })
	if err == nil {
		err = file.finish()
	}
	if err != nil {
		item.Failed()
		return sum, err
	}
	item.Done(fmt.Sprintf("%s written, compression ratio %.1f", progress.Bytes(sum.Size), float64(sum.UnpackedSize)/float64(sum.Size)))

	return sum, b.verifyAndSign(ctx, m)
}

// open opens the content of an entry: the site's own, or content of the cache.
func (b *builder) open(e bundle.Entry) (io.ReadCloser, error) {
	if open, ok := b.content.open[e.Name]; ok {
		return open()
	}
	return b.cache.Open(e.SHA256)
}

// verifyAndSign reads the written bundle again. Only what was verified is signed.
func (b *builder) verifyAndSign(ctx context.Context, m *bundle.Manifest) error {
	f, err := bundle.Open(b.Output)
	if err != nil {
		return err
	}
	defer f.Close()
	b.Events.Phase(events.Verify)
	item := b.Progress.Item("verifying "+b.Output, m.UnpackedSize())
	if err := f.Verify(ctx, func(_ bundle.Entry, n int64) { item.Add(n) }); err != nil {
		item.Failed()
		return fmt.Errorf("reading the bundle again: %w", err)
	}
	item.Done("verified")
	if err := b.writeSBOMs(); err != nil {
		return err
	}
	return b.sign(ctx, f)
}

// explain adds a hint to network errors.
func (b *builder) explain(err error) error {
	var dns *net.DNSError
	var op *net.OpError
	var u *url.Error
	var size *fetch.SizeError
	var redirect *fetch.RedirectError
	if errors.As(err, &size) || errors.As(err, &redirect) {
		return err // the site was reached, so the network is not the problem
	}
	var unknown x509.UnknownAuthorityError
	if fault.Hint(err) == "" && errors.As(err, &unknown) {
		return fault.Wrap(err, fault.Failure, "trust the site's CA with --registry-ca FILE; a proxy that intercepts TLS has a CA of its own")
	}
	if fault.Hint(err) != "" || !errors.As(err, &dns) && !errors.As(err, &op) && !errors.As(err, &u) {
		return err
	}
	return fault.Wrap(err, fault.Failure, "allow access to "+strings.Join(b.hosts(), ", ")+
		" and the hosts that they redirect to; use --mirror HOST=URL for a mirror, or HTTPS_PROXY for a proxy")
}

// hosts lists the sites of the catalog, or those of an additional bundle.
func (b *builder) hosts() []string {
	if b.additional() {
		hosts := []string{"dl.k8s.io"} // for the newest version
		for _, reference := range b.Images {
			host, _, _ := strings.Cut(reference, "/")
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		return hosts
	}
	hosts := []string{"dl.k8s.io", "github.com", "registry.k8s.io"}
	if b.CNI == images.Flannel {
		hosts = append(hosts, "ghcr.io")
	}
	return hosts
}

package builder

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"airlift/bundle/charts"
	"airlift/bundle/lock"
	"airlift/fault"
	"airlift/images"
	"airlift/images/local"
)

// Resolve returns what the versions, tags and sources of a build resolve to now, and
// downloads only what that needs. It requests everything again and ignores Lock. The
// warnings are as in Result.
func Resolve(ctx context.Context, o Options) (*lock.Lock, []string, error) {
	o.Lock, o.Refresh = nil, true
	b := &builder{Options: o}
	b.Images = slices.Clone(o.Images)
	if err := b.prepare(); err != nil {
		return nil, nil, err
	}
	defer o.Progress.Close()
	if err := b.resolve(ctx); err != nil {
		return nil, nil, b.explain(err)
	}
	if err := b.verifySignatures(ctx); err != nil {
		return nil, nil, err
	}
	l, err := b.lock()
	return l, b.allWarnings(), err
}

// lock describes what was resolved.
func (b *builder) lock() (*lock.Lock, error) {
	var list []lock.Image
	for _, i := range b.images {
		list = append(list, lock.Image{Reference: i.Reference, Digest: i.Target.Digest, SignedBy: i.signed.by})
	}
	return b.lockWith(list)
}

// lockWith describes the build with these images.
func (b *builder) lockWith(list []lock.Image) (*lock.Lock, error) {
	l := &lock.Lock{FormatVersion: lock.FormatVersion, Platform: "linux/" + b.Arch, KubernetesVersion: b.catalog.Version, CNI: b.CNI, Only: b.Only, Base: b.base.sha256, Images: list}
	for _, bin := range b.binaries {
		if !bin.dropped {
			l.Components = append(l.Components, lock.Component{Name: bin.Name, Version: bin.Version, URL: bin.URL, SHA256: bin.sum, SignedBy: bin.signed.by})
		}
	}
	for _, c := range b.leftOut {
		if !slices.Contains(b.Without, c.Name) {
			l.LeftOut = append(l.LeftOut, lock.Absent{Name: c.Name, Version: c.Version, URL: c.URL})
		}
	}
	for _, d := range b.charts.Downloads() {
		l.Charts = append(l.Charts, lock.Chart(d))
	}
	for _, m := range b.content.manifests {
		for _, e := range b.content.early {
			if e.Name == m.Entry() {
				l.Manifests = append(l.Manifests, lock.Manifest{Name: m.Name, SHA256: e.SHA256})
			}
		}
	}
	err := b.lockSources(l)
	l.Sort()
	return l, err
}

// lockSources adds the user's files.
func (b *builder) lockSources(l *lock.Lock) error {
	add := func(path, sum string) {
		if written, ok := b.Site.Written[path]; ok {
			path = written
		}
		l.Sources = append(l.Sources, lock.Source{Path: path, SHA256: sum})
	}
	for path, sum := range b.content.sources {
		add(path, sum)
	}
	for _, m := range b.Site.Manifests {
		if m.Chart == nil {
			continue
		}
		paths := m.Chart.Values
		// A directory has no digest; the manifest has that of its objects.
		if i, err := os.Stat(m.Chart.Source); err == nil && i.Mode().IsRegular() {
			paths = append([]string{m.Chart.Source}, paths...)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("%s: %w", m.At, err)
			}
			add(path, hexSum(content))
		}
	}
	return nil
}

// pinCharts makes the charts of the lock the only ones that their versions mean.
func (b *builder) pinCharts() {
	if b.Lock == nil {
		return
	}
	var list []charts.Download
	for _, c := range b.Lock.Charts {
		list = append(list, charts.Download(c))
	}
	b.charts.Pin(list)
}

// lockedVersion returns the Kubernetes version of the lock, if it is one that Version means.
func (b *builder) lockedVersion() (string, error) {
	version := b.Lock.KubernetesVersion
	if b.Version == "stable" || strings.HasPrefix(version, b.Version+".") {
		return version, nil
	}
	now := lock.Lock{Platform: "linux/" + b.Arch, KubernetesVersion: b.Version, CNI: b.CNI}
	pinned := lock.Lock{Platform: b.Lock.Platform, KubernetesVersion: version, CNI: b.Lock.CNI}
	return "", b.drift(lock.Differences(&pinned, &now))
}

// unresolved is the digest of an image whose tag was not requested.
const unresolved = "added; not resolved"

// applyLock takes the checksums and digests of the lock: those of binaries into b.binaries,
// those of images into digests. It returns the references of these images. If the build
// differs from the lock, the error lists all differences.
func (b *builder) applyLock(wanted []images.Image, found map[string]*local.Image, digests map[string]string) (taken map[string]bool, err error) {
	if b.Lock == nil {
		return nil, nil
	}
	for _, bin := range b.binaries {
		if c, ok := b.Lock.Component(bin.Name); ok && !bin.pinned && c.URL == bin.URL {
			bin.sum, bin.locked = c.SHA256, true
			bin.signed.by = b.expected(c.SignedBy)
		}
	}
	taken = map[string]bool{}
	var list []lock.Image
	for _, i := range wanted {
		now := lock.Image{Reference: i.Reference, Digest: digests[i.Reference]}
		_, named, _ := strings.Cut(i.Reference, "@")
		pinned, ok := b.Lock.Image(i.Reference)
		now.SignedBy = b.expected(pinned.SignedBy)
		switch {
		case found[i.Reference] != nil:
			now.Digest = found[i.Reference].Target.Digest
		case now.Digest != "":
		case named != "":
			now.Digest = named
		case ok:
			now.Digest, taken[i.Reference] = pinned.Digest, true
			digests[i.Reference] = pinned.Digest
		default:
			now.Digest = unresolved
		}
		list = append(list, now)
	}
	now, err := b.lockWith(list)
	if err != nil {
		return nil, err
	}
	return taken, b.drift(lock.Differences(b.Lock, now))
}

// drift returns an error with the differences between the lock and the build.
func (b *builder) drift(list []lock.Difference) error {
	if len(list) == 0 {
		return nil
	}
	var lines strings.Builder
	for _, d := range list {
		fmt.Fprintf(&lines, "\n  %s\n    pinned: %s\n    now:    %s", d.Field, cmp.Or(d.Old, "none"), cmp.Or(d.New, "none"))
	}
	return fault.New(fault.Failure, "accept the changes with "+b.updateCommand()+", or use another lock with --lock FILE",
		"%s does not fit this build:%s", b.LockPath, lines.String())
}

// updateCommand is the command that writes the lock again.
func (b *builder) updateCommand() string { return `"bundle update" with the same flags` }

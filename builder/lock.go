package builder

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"airlift/builder/lock"
	"airlift/internal/fault"
)

// newLock describes the resolved contents.
func (b *build) newLock() (*lock.Lock, error) {
	var list []lock.Image
	for _, i := range b.images {
		list = append(list, lock.Image{Reference: i.Reference, Digest: i.Target.Digest, SignedBy: i.signed.by})
	}
	return b.lockWith(list)
}

// lockWith describes the build with these images.
func (b *build) lockWith(list []lock.Image) (*lock.Lock, error) {
	l := &lock.Lock{FormatVersion: lock.FormatVersion, Platform: "linux/" + b.Arch, KubernetesVersion: b.release.Version, CNI: b.CNI, Only: b.Only,
		Base: b.base.sha256, Images: list, Charts: b.charts.Downloads()}
	for _, bin := range b.binaries {
		l.Components = append(l.Components, lock.Component{Name: bin.Name, Version: bin.Version, URL: bin.URL, SHA256: bin.sum, SignedBy: bin.signed.by})
	}
	for _, c := range b.leftOut {
		if !slices.Contains(b.Without, c.Name) {
			l.LeftOut = append(l.LeftOut, lock.Absent{Name: c.Name, Version: c.Version, URL: c.URL})
		}
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
func (b *build) lockSources(l *lock.Lock) error {
	add := func(path, sum string) {
		l.Sources = append(l.Sources, lock.Source{Path: b.asWritten(path), SHA256: sum})
	}
	for path, sum := range b.content.sources {
		add(path, sum)
	}
	for _, m := range b.Site.Manifests {
		if m.Chart == nil {
			continue
		}
		paths := m.Chart.Values
		// A directory has no digest; the manifest has the digest of the objects in it.
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

// lockedVersion returns the Kubernetes version of the lock, if it is one that the target means.
func (b *build) lockedVersion() (string, error) {
	version := b.Lock.KubernetesVersion
	if b.Version == "stable" || strings.HasPrefix(version, b.Version+".") {
		return version, nil
	}
	now := lock.Lock{Platform: "linux/" + b.Arch, KubernetesVersion: b.Version, CNI: b.CNI}
	pinned := lock.Lock{Platform: b.Lock.Platform, KubernetesVersion: version, CNI: b.Lock.CNI}
	return "", b.drift(&pinned, &now)
}

// unresolved is the digest of an image whose tag was not requested.
const unresolved = "added; not resolved"

// applyLock takes the checksums and digests of the lock. If the build differs from the lock, the
// error lists all differences.
func (b *build) applyLock() error {
	if b.Lock == nil {
		return nil
	}
	for _, bin := range b.binaries {
		if c := b.Lock.Component(bin.Name); c != nil && !bin.pinned && c.URL == bin.URL {
			bin.sum, bin.locked = c.SHA256, true
			bin.signed.by = b.expected(c.SignedBy)
		}
	}
	var list []lock.Image
	for _, i := range b.images {
		now := lock.Image{Reference: i.Reference, Digest: i.digest}
		_, named, _ := strings.Cut(i.Reference, "@")
		pinned := b.Lock.Image(i.Reference)
		if pinned != nil {
			now.SignedBy = b.expected(pinned.SignedBy)
		}
		switch {
		case i.local != nil:
			now.Digest = i.local.Target.Digest
		case now.Digest != "":
		case named != "":
			now.Digest = named
		case pinned != nil:
			now.Digest, i.digest, i.locked = pinned.Digest, pinned.Digest, true
		default:
			now.Digest = unresolved
		}
		list = append(list, now)
	}
	now, err := b.lockWith(list)
	if err != nil {
		return err
	}
	return b.drift(b.Lock, now)
}

// drift returns an error with the differences between the lock and the build.
func (b *build) drift(pinned, now *lock.Lock) error {
	var lines strings.Builder
	for _, d := range lock.Differences(pinned, now) {
		fmt.Fprintf(&lines, "\n  %s\n    pinned: %s\n    now:    %s", d.Field, cmp.Or(d.Old, "none"), cmp.Or(d.New, "none"))
	}
	if lines.Len() == 0 {
		return nil
	}
	return fault.New(fault.Failure, "%s does not fit this build:%s", b.LockPath, lines.String()).
		Hint("accept the changes with " + updateCommand + ", or use another lock with --lock FILE")
}

// updateCommand is the command that writes the lock again.
const updateCommand = `"bundle update" with the same flags`

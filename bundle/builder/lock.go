package builder

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"airlift/bundle/builder/charts"
	"airlift/bundle/builder/lock"
	"airlift/internal/fault"
)

// lock describes the resolved contents.
func (inv *inventory) lock() (*lock.Lock, error) {
	var list []lock.Image
	for _, i := range inv.images {
		list = append(list, lock.Image{Reference: i.Reference, Digest: i.Target.Digest, SignedBy: i.signed.by})
	}
	return inv.lockWith(list)
}

// lockWith describes the build with these images.
func (inv *inventory) lockWith(list []lock.Image) (*lock.Lock, error) {
	l := &lock.Lock{FormatVersion: lock.FormatVersion, Platform: "linux/" + inv.Arch, KubernetesVersion: inv.release.Version, CNI: inv.CNI, Only: inv.Only, Base: inv.base.sha256, Images: list}
	for _, bin := range inv.components.binaries {
		l.Components = append(l.Components, lock.Component{Name: bin.Name, Version: bin.Version, URL: bin.URL, SHA256: bin.sum, SignedBy: bin.signed.by})
	}
	for _, c := range inv.components.leftOut {
		if !slices.Contains(inv.Without, c.Name) {
			l.LeftOut = append(l.LeftOut, lock.Absent{Name: c.Name, Version: c.Version, URL: c.URL})
		}
	}
	for _, d := range inv.objects.downloads {
		l.Charts = append(l.Charts, lock.Chart(d))
	}
	for _, m := range inv.content.manifests {
		for _, e := range inv.content.early {
			if e.Name == m.Entry() {
				l.Manifests = append(l.Manifests, lock.Manifest{Name: m.Name, SHA256: e.SHA256})
			}
		}
	}
	err := inv.lockSources(l)
	l.Sort()
	return l, err
}

// lockSources adds the user's files.
func (inv *inventory) lockSources(l *lock.Lock) error {
	add := func(path, sum string) {
		if written, ok := inv.Site.Written[path]; ok {
			path = written
		}
		l.Sources = append(l.Sources, lock.Source{Path: path, SHA256: sum})
	}
	for path, sum := range inv.content.sources {
		add(path, sum)
	}
	for _, m := range inv.Site.Manifests {
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

// pinCharts restricts each chart's version to the chart in the lock.
func (t Trust) pinCharts(c *charts.Client) {
	if t.Lock == nil {
		return
	}
	var list []charts.Download
	for _, d := range t.Lock.Charts {
		list = append(list, charts.Download(d))
	}
	c.Pin(list)
}

// lockedVersion returns the Kubernetes version of the lock, if it is one that the target means.
func (t Trust) lockedVersion(of Target) (string, error) {
	version := t.Lock.KubernetesVersion
	if of.Version == "stable" || strings.HasPrefix(version, of.Version+".") {
		return version, nil
	}
	now := lock.Lock{Platform: "linux/" + of.Arch, KubernetesVersion: of.Version, CNI: of.CNI}
	pinned := lock.Lock{Platform: t.Lock.Platform, KubernetesVersion: version, CNI: t.Lock.CNI}
	return "", t.drift(lock.Differences(&pinned, &now))
}

// unresolved is the digest of an image whose tag was not requested.
const unresolved = "added; not resolved"

// applyLock takes the checksums and digests of the lock. If the build differs from the lock, the
// error lists all differences.
func (inv *inventory) applyLock(t Trust, wanted []*wantedImage) error {
	if t.Lock == nil {
		return nil
	}
	for _, bin := range inv.components.binaries {
		if c, ok := t.Lock.Component(bin.Name); ok && !bin.pinned && c.URL == bin.URL {
			bin.sum, bin.locked = c.SHA256, true
			bin.signed.by = t.expected(c.SignedBy)
		}
	}
	var list []lock.Image
	for _, i := range wanted {
		now := lock.Image{Reference: i.Reference, Digest: i.digest}
		_, named, _ := strings.Cut(i.Reference, "@")
		pinned, ok := t.Lock.Image(i.Reference)
		now.SignedBy = t.expected(pinned.SignedBy)
		switch {
		case i.local != nil:
			now.Digest = i.local.Target.Digest
		case now.Digest != "":
		case named != "":
			now.Digest = named
		case ok:
			now.Digest, i.digest, i.locked = pinned.Digest, pinned.Digest, true
		default:
			now.Digest = unresolved
		}
		list = append(list, now)
	}
	now, err := inv.lockWith(list)
	if err != nil {
		return err
	}
	return t.drift(lock.Differences(t.Lock, now))
}

// drift returns an error with the differences between the lock and the build.
func (t Trust) drift(list []lock.Difference) error {
	if len(list) == 0 {
		return nil
	}
	var lines strings.Builder
	for _, d := range list {
		fmt.Fprintf(&lines, "\n  %s\n    pinned: %s\n    now:    %s", d.Field, cmp.Or(d.Old, "none"), cmp.Or(d.New, "none"))
	}
	return fault.New(fault.Failure, "%s does not fit this build:%s", t.LockPath, lines.String()).
		Hint("accept the changes with " + updateCommand + ", or use another lock with --lock FILE")
}

// updateCommand is the command that writes the lock again.
const updateCommand = `"bundle update" with the same flags`

package builder

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// smallFile is the size in bytes up to which a file precedes the images in the payload, so
// that a host need not read the images before it can start the site's units. Such files are
// kept in memory during the build.
const smallFile = 1 << 20

// A siteContent is the site's own software in the form of the bundle's manifest.
type siteContent struct {
	manifests []bundle.SiteManifest
	files     []bundle.SiteFile // sorted by path
	packages  []bundle.SitePackage
	// packaged are the entries of packages, which init and join read first. early and late are the other entries before
	// and after the images.
	packaged, early, late []bundle.Entry
	open                  openers // of the entries
	// sources has the sha256 of each source of a file, in hex, by its path.
	sources map[string]string
}

func (s *siteContent) addManifest(m bundle.SiteManifest, content []byte) error {
	if len(content) > bundle.MaxManifest {
		return fault.New(fault.Usage, "manifest %q has %d bytes, more than the %d allowed", m.Name, len(content), bundle.MaxManifest).Hint("divide it into several manifests")
	}
	s.manifests = append(s.manifests, m)
	s.early = append(s.early, bundle.Entry{Name: m.Entry(), Size: int64(len(content)), SHA256: hexSum(content)})
	s.open.keep(m.Entry(), content)
	return nil
}

// addFiles reads the files once. They must not change until the bundle is written.
func (s *siteContent) addFiles(ctx context.Context, files []File) error {
	files = slices.Clone(files)
	slices.SortFunc(files, func(x, y File) int { return cmp.Compare(x.Path, y.Path) })
	for _, f := range files {
		e, content, err := readFile(ctx, f.Source)
		if err != nil {
			return fault.Wrap(fmt.Errorf("%s: %w", f.At, err), fault.Usage, "correct the path of the source, or allow this user to read it")
		}
		f.Entry = e.Name
		s.sources[f.Source] = e.SHA256
		s.files = append(s.files, f.SiteFile)
		if s.open[e.Name] != nil {
			continue // another path has the same content
		}
		if e.Size > smallFile {
			s.late = append(s.late, e)
			s.open[e.Name] = func() (io.ReadCloser, error) { return openUnchanged(f.Source, e) }
			continue
		}
		s.early = append(s.early, e)
		s.open.keep(e.Name, content)
	}
	return nil
}

// packageFile adds the entry of a package. The file must not change until the bundle is written.
func (s *siteContent) packageFile(path string, e bundle.Entry) {
	s.sources[path] = e.SHA256
	if s.open[e.Name] == nil {
		s.packaged = append(s.packaged, e)
		s.open[e.Name] = func() (io.ReadCloser, error) { return openUnchanged(path, e) }
	}
}

// addPackages adds packages in the manifest's order.
func (s *siteContent) addPackages(list []*osPackage) {
	for _, p := range list {
		s.packages = append(s.packages, p.SitePackage)
	}
	slices.SortFunc(s.packages, func(x, y bundle.SitePackage) int {
		return cmp.Or(cmp.Compare(x.Release, y.Release), cmp.Compare(x.Stage, y.Stage), cmp.Compare(x.Name, y.Name))
	})
}

// readFile returns the entry of a file. The content is nil if it is large.
func readFile(ctx context.Context, path string) (e bundle.Entry, content []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return e, nil, err
	}
	defer f.Close()
	if i, err := f.Stat(); err != nil || !i.Mode().IsRegular() {
		return e, nil, cmp.Or(err, fmt.Errorf("%q is not a regular file", path))
	}
	sum := sha256.New()
	var start bytes.Buffer
	if e.Size, err = io.Copy(io.MultiWriter(sum, &start), io.LimitReader(f, smallFile+1)); err != nil {
		return e, nil, err
	}
	if e.Size > smallFile {
		start = bytes.Buffer{}
		n, err := io.Copy(sum, interrupt.Reader(ctx, f))
		if err != nil {
			return e, nil, err
		}
		e.Size += n
	}
	e.SHA256 = hex.EncodeToString(sum.Sum(nil))
	e.Name = bundle.FileName(e.SHA256)
	return e, start.Bytes(), nil
}

// describe adds the site's software to the manifest of a bundle with all other entries. What
// precedes the images precedes the first blob, also where binaries and images alternate.
func (s *siteContent) describe(m *bundle.Manifest, units []bundle.SiteUnit) {
	m.Manifests, m.Files, m.Packages = s.manifests, s.files, s.packages
	m.Units = slices.SortedFunc(slices.Values(units), func(x, y bundle.SiteUnit) int { return cmp.Compare(x.Name, y.Name) })
	first := slices.IndexFunc(m.Entries, func(e bundle.Entry) bool { return strings.HasPrefix(e.Name, bundle.BlobDir) })
	if first < 0 {
		first = len(m.Entries)
	}
	m.Entries = slices.Concat(m.Entries[:first], s.packaged, s.early, m.Entries[first:], s.late)
}

// An unchanged file must have the content that it had when the build began.
type unchanged struct {
	file  *os.File
	entry bundle.Entry
	sum   hash.Hash
	n     int64
}

func openUnchanged(path string, e bundle.Entry) (io.ReadCloser, error) {
	f, err := os.Open(path)
	return &unchanged{file: f, entry: e, sum: sha256.New()}, err
}

// Read fails at the end of a file whose content differs.
func (u *unchanged) Read(p []byte) (int, error) {
	n, err := u.file.Read(p)
	u.sum.Write(p[:n])
	u.n += int64(n)
	if u.n > u.entry.Size || err == io.EOF && hex.EncodeToString(u.sum.Sum(nil)) != u.entry.SHA256 {
		return 0, fault.New(fault.Failure, "%q changed while the bundle was built", u.file.Name()).Hint("run the command again")
	}
	return n, err
}

func (u *unchanged) Close() error { return u.file.Close() }

func hexSum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

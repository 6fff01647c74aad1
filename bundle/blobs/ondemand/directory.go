package ondemand

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// A directory keeps blobs in files. The name of each is the sha256 of its blob in hexadecimal.
type directory struct {
	path  string
	limit int64 // of the files and the reservations in bytes; 0 is none

	mu       sync.Mutex
	files    map[string]*kept // by name; nil before open
	uses     int64            // so far
	size     int64            // of the files
	reserved int64
}

// A kept file is read by several goroutines.
type kept struct {
	name string
	size int64
	used int64 // the number of the last use

	mu      sync.Mutex
	checked fs.FileInfo // when its digest was compared; nil before
}

var fileName = regexp.MustCompile(`^[0-9a-f]{64}$`)

// open finds the files of an earlier process, the oldest first, and removes what it left unfinished.
func (d *directory) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files != nil {
		return nil
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	var found []fs.FileInfo
	for _, e := range entries {
		i, err := e.Info()
		switch {
		case err != nil:
			return err
		case i.Mode().IsRegular() && fileName.MatchString(i.Name()):
			found = append(found, i)
		case strings.HasSuffix(i.Name(), partial):
			if err := os.Remove(filepath.Join(d.path, i.Name())); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(found, func(x, y fs.FileInfo) int { return x.ModTime().Compare(y.ModTime()) })
	d.files = map[string]*kept{}
	for _, i := range found {
		d.add(i.Name(), i.Size())
	}
	d.evict(0)
	return nil
}

func (d *directory) add(name string, size int64) *kept {
	d.forget(name)
	d.uses++
	k := &kept{name: name, size: size, used: d.uses}
	d.files[name] = k
	d.size += size
	return k
}

// forget leaves the file on the disk.
func (d *directory) forget(name string) {
	if k := d.files[name]; k != nil {
		d.size -= k.size
		delete(d.files, name)
	}
}

func (d *directory) drop(name string) {
	d.forget(name)
	os.Remove(filepath.Join(d.path, name))
}

// evict removes the files that were not used for longest until there is room for need bytes more.
func (d *directory) evict(need int64) {
	for d.limit > 0 && d.size+d.reserved+need > d.limit && d.dropOldest() {
	}
}

// dropOldest removes the file that was not used for longest, if there is one.
func (d *directory) dropOldest() bool {
	all := slices.Collect(maps.Values(d.files))
	if len(all) == 0 {
		return false
	}
	d.drop(slices.MinFunc(all, func(x, y *kept) int { return cmp.Compare(x.used, y.used) }).name)
	return true
}

func nameOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// has reports whether there is a file for a blob. It may be damaged.
func (d *directory) has(digest string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[nameOf(digest)] != nil
}

// read opens the file of a blob. It returns nil if there is none. The content was compared with the digest since the
// file changed last; a damaged file is removed.
func (d *directory) read(b bundle.Descriptor) *os.File {
	name := nameOf(b.Digest)
	d.mu.Lock()
	k := d.files[name]
	if k != nil {
		d.uses++
		k.used = d.uses
	}
	d.mu.Unlock()
	if k == nil {
		return nil
	}
	f, err := os.Open(filepath.Join(d.path, name))
	if err == nil && k.intact(f, b) {
		return f
	}
	if err == nil {
		f.Close()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[name] == k {
		d.drop(name)
	}
	return nil
}

// intact compares the file with the blob's digest, unless it has not changed since it did.
func (k *kept) intact(f *os.File, b bundle.Descriptor) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, err := f.Stat()
	if err != nil || !i.Mode().IsRegular() || i.Size() != b.Size {
		return false
	}
	if k.checked != nil && os.SameFile(i, k.checked) && i.ModTime().Equal(k.checked.ModTime()) {
		return true
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, b.Size)); err != nil || fmt.Sprintf("sha256:%x", sum.Sum(nil)) != b.Digest {
		return false
	}
	k.checked = i
	return true
}

const partial = ".partial"

// create creates a file that has no blob's name yet.
func (d *directory) create() (*os.File, error) {
	f, err := os.CreateTemp(d.path, "*"+partial)
	if err != nil {
		return nil, space.Explain(d.path, err)
	}
	return f, nil
}

// place gives a complete file the name of its blob. It is not synced: the digest is compared before the next process
// uses it, and a write of a gigabyte to the disk at once would delay an etcd on this host.
func (d *directory) place(f *os.File, b bundle.Descriptor) error {
	i, err := f.Stat()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.Rename(f.Name(), filepath.Join(d.path, nameOf(b.Digest))); err != nil {
		return err
	}
	d.add(nameOf(b.Digest), b.Size).checked = i
	return nil
}

// retain removes the files of other blobs.
func (d *directory) retain(digests map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.files {
		if !digests["sha256:"+name] {
			d.drop(name)
		}
	}
}

// errLater means that there is no room until another blob is complete.
var errLater = errors.New("no room for another blob at this time")

// spare is what must stay free on the file system, in bytes.
const spare = 256 << 20

// reserve reserves room for n bytes. A blob that is larger than the limit gets it when no other is made.
func (d *directory) reserve(n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit > 0 && d.reserved > 0 && d.reserved+n > d.limit {
		return errLater
	}
	d.evict(n)
	for {
		free, err := space.Free(d.path)
		switch {
		case err != nil:
			return err
		case free >= d.reserved+n+spare:
			d.reserved += n
			return nil
		case d.dropOldest():
			continue
		case d.reserved > 0:
			return errLater
		}
		return fault.New(fault.Failure, "not enough space to make a blob of an image in %s: %d bytes are free, %d are needed", d.path, free, n+spare).
			Hint("free some space there: df " + d.path)
	}
}

// release returns room, and removes files if there are too many.
func (d *directory) release(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved -= n
	d.evict(0)
}

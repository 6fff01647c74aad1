package fetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"airlift/internal/fault"
	"airlift/internal/interrupt"
	"airlift/internal/space"
)

// A Cache is a directory of verified contents, each named by its sha256, and of facts
// that sites supplied. Several processes may use one directory at the same time: they
// rename complete files into place and lock unfinished ones.
//
//	sha256/<hex>         content, ready for a bundle: binaries, manifests, layers
//	partial/<hex>-<hex>  an unfinished download: the sha256 of the file, and the
//	                     beginning of the sha256 of the site's URL
//	facts-2/<hex>        JSON, named by the sha256 of the fact's key
//
// All sources share contents, because their sha256 is compared. A fact holds only for
// the source that supplied it, so its key names the source; see Client.Remember. The
// directory facts of an earlier layout has keys without a source and is not read.
//
// Layers and archives are only kept unpacked, with the same bytes as in the bundle, so
// a second build neither downloads nor decompresses.
type Cache struct {
	dir string

	mu      sync.Mutex
	checked map[string]int64 // sizes of the contents that this process has hashed
	damaged []string
}

const factsDir = "facts-2"

// OpenCache creates the directory if it does not exist.
func OpenCache(dir string) (*Cache, error) {
	for _, sub := range []string{"sha256", "partial", factsDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, space.Explain(filepath.Dir(dir), fmt.Errorf("opening cache: %w", err))
		}
	}
	return &Cache{dir: dir, checked: map[string]int64{}}, removeStale(filepath.Join(dir, "partial"))
}

// keepDownloads is how long an unfinished download is kept, because it can be continued.
const keepDownloads = 30 * 24 * time.Hour

// removeStale removes unfinished files that no process has locked: it was killed.
func removeStale(dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		i, err := e.Info()
		if err != nil || !i.Mode().IsRegular() || isDownload(e.Name()) && time.Since(i.ModTime()) < keepDownloads {
			continue
		}
		f, err := openFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // of another user
		}
		if locked, err := tryLock(f); err == nil && locked {
			os.Remove(f.Name())
		}
		f.Close()
	}
	return nil
}

// isDownload reports whether an unfinished file is a download, and not one of Cache.temporary.
func isDownload(name string) bool { return strings.Contains(name, "-") }

// temporary creates a file for new content, for the user only, and locks it until it is closed.
func (c *Cache) temporary() (*os.File, error) {
	for {
		f, err := createTemp(filepath.Join(c.dir, "partial"))
		if err != nil {
			return nil, c.writing(err)
		}
		locked, err := tryLock(f)
		if (locked || err != nil) && sameFile(f, f.Name()) { // without locks, removeStale has none either
			return f, nil
		}
		f.Close() // another process has just removed it
	}
}

func (c *Cache) path(sum string) string { return filepath.Join(c.dir, "sha256", sum) }

// Has returns the size of the content with this sha256, and whether it exists. The
// first call reads and compares the content. It removes damaged content and reports it
// as missing, so that it is downloaded again.
func (c *Cache) Has(ctx context.Context, sum string) (int64, bool, error) {
	c.mu.Lock()
	size, ok := c.checked[sum]
	c.mu.Unlock()
	if ok {
		return size, true, nil
	}
	f, err := os.Open(c.path(sum))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading cache: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, interrupt.Reader(ctx, f))
	if err != nil {
		return 0, false, fmt.Errorf("reading cache: %w", err)
	}
	if hexSum(h) != sum {
		if err := os.Remove(c.path(sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, false, c.writing(fmt.Errorf("removing damaged content: %w", err))
		}
		c.mu.Lock()
		c.damaged = append(c.damaged, c.path(sum))
		c.mu.Unlock()
		return 0, false, nil
	}
	c.mark(sum, size)
	return size, true, nil
}

func (c *Cache) mark(sum string, size int64) {
	c.mu.Lock()
	c.checked[sum] = size
	c.mu.Unlock()
}

// Damaged lists the damaged files that Has removed.
func (c *Cache) Damaged() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.damaged...)
}

// Open opens the content with this sha256.
func (c *Cache) Open(sum string) (*os.File, error) { return os.Open(c.path(sum)) }

// Opener returns a function that opens the content with this sha256 from its beginning.
func (c *Cache) Opener(sum string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return c.Open(sum) }
}

// Read returns small content, such as an image's manifest.
func (c *Cache) Read(ctx context.Context, sum string) ([]byte, bool, error) {
	if _, ok, err := c.Has(ctx, sum); !ok || err != nil {
		return nil, false, err
	}
	b, err := os.ReadFile(c.path(sum))
	return b, err == nil, err
}

// Put stores the content of r and returns its sha256 and size. If want is not empty and
// the sha256 differs, the content is not stored and the error is a *MismatchError.
func (c *Cache) Put(ctx context.Context, r io.Reader, want string) (sum string, size int64, err error) {
	f, err := c.temporary()
	if err != nil {
		return "", 0, err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, h), interrupt.Reader(ctx, r))
	if err != nil {
		return "", 0, space.Explain(c.dir, err)
	}
	sum = hexSum(h)
	if want != "" && sum != want {
		return "", 0, &MismatchError{Want: want, Got: sum}
	}
	return sum, size, c.keep(f, sum, size)
}

// Temporary writes r to a file that has no name and disappears when it is closed.
func (c *Cache) Temporary(ctx context.Context, r io.Reader) (f *os.File, err error) {
	if f, err = c.temporary(); err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = io.Copy(f, interrupt.Reader(ctx, r))
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, space.Explain(c.dir, err)
	}
	return f, nil
}

// keep moves a complete, verified file to the contents. f must still be open: closing
// it would unlock it under its old name.
func (c *Cache) keep(f *os.File, sum string, size int64) error {
	if err := f.Chmod(0o644); err != nil {
		return c.writing(err)
	}
	if err := os.Rename(f.Name(), c.path(sum)); err != nil {
		return c.writing(err)
	}
	c.mark(sum, size)
	return nil
}

func (c *Cache) writing(err error) error {
	err = space.Explain(c.dir, fmt.Errorf("writing cache: %w", err))
	return fault.Wrap(err, fault.Failure, cmp.Or(fault.Hint(err), "make "+c.dir+" writable for this user, or choose another directory with --cache-dir"))
}

type fact struct{ Key, Value string }

func (c *Cache) factPath(key string) string {
	return filepath.Join(c.dir, factsDir, fmt.Sprintf("%x", sha256.Sum256([]byte(key))))
}

// Recall returns what Remember stored under key. An unreadable fact counts as missing.
func (c *Cache) Recall(key string) (string, bool) {
	b, err := os.ReadFile(c.factPath(key))
	if err != nil {
		return "", false
	}
	var f fact
	if json.Unmarshal(b, &f) != nil || f.Key != key {
		return "", false
	}
	return f.Value, true
}

// Remember stores a fact that holds for all sources, such as the contents of the
// archive with a certain sha256.
func (c *Cache) Remember(key, value string) error {
	b, err := json.Marshal(fact{key, value})
	if err != nil {
		return err
	}
	tmp, err := c.temporary()
	if err != nil {
		return err
	}
	defer tmp.Close()
	if _, err = tmp.Write(b); err == nil {
		err = os.Rename(tmp.Name(), c.factPath(key)) // still open, as in keep
	}
	if err != nil {
		os.Remove(tmp.Name())
		return c.writing(err)
	}
	return nil
}

// partial opens and locks the unfinished download of sum from site. If another process
// holds the lock for long, it calls waiting once and keeps waiting. Closing the file
// unlocks it.
func (c *Cache) partial(ctx context.Context, sum, site string, waiting func()) (*os.File, error) {
	name := c.partialPath(sum, site)
	slow := time.AfterFunc(5*time.Second, waiting)
	defer slow.Stop()
	for {
		f, err := openFile(name)
		if err != nil {
			return nil, c.writing(err)
		}
		locked, err := tryLock(f)
		if locked && sameFile(f, name) {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Cache) partialPath(sum, site string) string {
	return filepath.Join(c.dir, "partial", fmt.Sprintf("%s-%.8x", sum, sha256.Sum256([]byte(site))))
}

// sameFile reports whether name still refers to the open file f. The previous holder of
// the lock may have renamed or removed it.
func sameFile(f *os.File, name string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(name)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

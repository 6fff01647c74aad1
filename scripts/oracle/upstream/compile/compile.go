// Package compile compiles the components of package components: Go binaries from the sources of
// the module proxy, and one C binary. The results are stored in the cache, complete, under the
// hash of their recipe.
package compile

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"airlift/scripts/oracle/upstream/components"
)

// Builder builds components into Cache and writes a line for each to Log.
type Builder struct {
	Cache string
	Log   io.Writer

	apt sync.Mutex // a second apt-get would fail
	log sync.Mutex
}

func (b *Builder) logf(format string, args ...any) {
	b.log.Lock()
	defer b.log.Unlock()
	fmt.Fprintf(b.Log, format+"\n", args...)
}

// Build builds the recipes that are not in the cache yet. If several processes call it, one
// builds and the others wait.
func (b *Builder) Build(ctx context.Context, recipes []components.Recipe) error {
	missing, err := b.missing(recipes)
	if err != nil || len(missing) == 0 {
		return err
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.RemoveAll(filepath.Join(b.Cache, "tmp")); err != nil { // of killed builds
		return err
	}
	if missing, err = b.missing(recipes); err != nil { // the previous holder of the lock may have built them
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var both sync.WaitGroup
	for _, queue := range queues(missing) {
		both.Go(func() {
			for _, r := range queue {
				if err := b.one(ctx, r); err != nil {
					cancel(fmt.Errorf("building %s %s: %w", r.Name, r.Version, err))
					return
				}
			}
		})
	}
	both.Wait()
	return context.Cause(ctx)
}

// queues splits recipes into two lists that are built at the same time: while one downloads or
// links, the other compiles. Recipes of Kubernetes share most packages, and go would compile
// these twice at the same time.
func queues(recipes []components.Recipe) [2][]components.Recipe {
	var lists [2][]components.Recipe
	for _, r := range recipes {
		i := 0
		if r.Module != "k8s.io/kubernetes" {
			i = 1
		}
		lists[i] = append(lists[i], r)
	}
	return lists
}

// substitutes names the modules that a recipe takes from another version, for the log.
func substitutes(r components.Recipe) string {
	var list []string
	for _, module := range slices.Sorted(maps.Keys(r.Replace)) {
		list = append(list, module+" "+r.Replace[module])
	}
	if len(list) == 0 {
		return ""
	}
	return ", with " + strings.Join(list, ", ")
}

// missing returns the recipes that are not in the cache, each once: several releases have the same
// etcd.
func (b *Builder) missing(recipes []components.Recipe) ([]components.Recipe, error) {
	var missing []components.Recipe
	seen := map[string]bool{}
	for _, r := range recipes {
		dir := r.Dir(b.Cache)
		_, err := os.Stat(dir)
		if os.IsNotExist(err) {
			if !seen[dir] {
				missing = append(missing, r)
			}
			seen[dir] = true
		} else if err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// one builds a recipe in a temporary directory and renames it, so a directory with the final name
// is complete.
func (b *Builder) one(ctx context.Context, r components.Recipe) error {
	start := time.Now()
	what := strings.TrimSpace(r.Name + " " + r.Version + " " + r.Arch)
	final := r.Dir(b.Cache)
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return err
	}
	tmp, err := b.tempDir("result")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	b.logf("building %s%s", what, substitutes(r))
	tools, err := b.toolchain(ctx, r)
	if err != nil {
		return err
	}
	switch {
	case r.Archive != nil:
		err = b.compileArchive(ctx, r, tools, tmp)
	case r.Source != "":
		err = b.compileC(ctx, r, tools, tmp)
	default:
		err = b.compileGo(ctx, r, tools, tmp)
	}
	if err != nil {
		return err
	}
	var size int64
	for _, name := range r.Binaries() {
		info, err := os.Stat(filepath.Join(tmp, name))
		if err != nil {
			return fmt.Errorf("the compiler succeeded but wrote no %s: %w", name, err)
		}
		size += info.Size()
		if err := os.Chmod(filepath.Join(tmp, name), 0o755); err != nil { // regardless of the umask
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		return err
	}
	b.logf("built %s in %.0fs (%.0f MB)", what, time.Since(start).Seconds(), float64(size)/1e6)
	return nil
}

// tempDir creates a directory that the next build removes if this one cannot. It is in the cache,
// so that a rename is atomic.
func (b *Builder) tempDir(what string) (string, error) {
	parent := filepath.Join(b.Cache, "tmp")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, what+"-")
}

// lock locks the cache's build lock, which the kernel releases when this process ends. It waits
// until ctx ends: a cold build takes minutes, and the waiting process needs its result.
func (b *Builder) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(b.Cache, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waited := false; ; waited = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !waited {
			b.logf("waiting for another build that holds %s", path)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for another build that holds %s: %w", path, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

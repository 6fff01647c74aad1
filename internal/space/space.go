// Package space checks the free space of file systems, and names the file system that is
// full.
package space

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"

	"airlift/internal/fault"
)

// Check returns an error if the file system of dir has fewer than need bytes free. what
// names the data in the error: "the downloads".
func Check(dir, what string, need int64) error {
	free, err := Free(dir)
	if err != nil || free >= need {
		return err
	}
	return fault.New(fault.Failure, "not enough space for %s in %s: its file system (%s) has %d bytes free, %d are needed",
		what, dir, name(dir), free, need).Hint(hint(dir))
}

// Explain adds the file system of dir to an error that means that it is full, and returns
// any other error unchanged.
func Explain(dir string, err error) error {
	if !full(err) || fault.Hint(err) != "" {
		return err
	}
	free, ferr := Free(dir)
	if ferr != nil {
		return err
	}
	return fault.Wrap(fmt.Errorf("%w: the file system of %s (%s) has %d bytes free", err, dir, name(dir), free), fault.Failure, hint(dir))
}

// Temporary creates a file without a name in the directory for temporary files, TMPDIR. It disappears when it is
// closed. Explain explains the errors of its writes with os.TempDir().
func Temporary(pattern string) (*os.File, error) {
	f, err := os.CreateTemp("", pattern)
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("creating a temporary file: %w", err), fault.Failure, "set TMPDIR to a writable directory with free space")
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func hint(dir string) string {
	if dir == os.TempDir() {
		return "free some space there (df " + dir + "), or set TMPDIR to a directory with free space"
	}
	return "free some space there (df " + dir + "), or choose another directory: --out for the bundle, --cache-dir for the downloads"
}

// name returns the mount point and the type of dir's file system, or dir if they are not
// known.
func name(dir string) string {
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return dir
	}
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(real))
	if err != nil || len(mounts) == 0 {
		return dir
	}
	best := mounts[0]
	for _, m := range mounts[1:] {
		if len(m.Mountpoint) >= len(best.Mountpoint) { // a later mount hides an earlier one
			best = m
		}
	}
	return best.Mountpoint + ", " + best.FSType
}

package host

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/internal/fault"
)

// A SiteFile is one of the site's own files in the bundle.
type SiteFile struct {
	Path   string
	Mode   fs.FileMode
	SHA256 string // of the content, in hexadecimal
	Size   int64  // bytes
}

// HasSiteFile reports whether the host has the file with this content and mode.
func (h *Host) HasSiteFile(f SiteFile) (bool, error) {
	now, info, err := filesystem.Look(h.Path(f.Path))
	if err != nil {
		return false, siteFault(f, err)
	}
	if now != f.SHA256 || info.Mode().Perm() != f.Mode.Perm() {
		return false, nil
	}
	return true, h.Records().Settled(ledger.File, f.Path, f.SHA256)
}

// InstallSiteFile writes r to the file's path, as WriteFile does, and compares it with the
// sum before the file gets its name. warn receives a warning if it replaces a file of the
// user. Unlike other files, an edited one is always saved: no component changes it.
func (h *Host) InstallSiteFile(ctx context.Context, f SiteFile, r io.Reader, warn func(format string, args ...any)) error {
	now, _, err := filesystem.Look(h.Path(f.Path))
	if err != nil {
		return siteFault(f, err)
	}
	e := ledger.Entry{Kind: ledger.File, Name: f.Path, SHA256: f.SHA256, Site: true}
	return h.put(e, now, warn, func(place string) error {
		staged, err := filesystem.Stage(ctx, place, r, f.Mode, f.SHA256)
		if err != nil {
			return err
		}
		return staged.Settle()
	})
}

// CopySiteFile is InstallSiteFile with the content of another one, which was written before.
func (h *Host) CopySiteFile(ctx context.Context, f, from SiteFile, warn func(format string, args ...any)) error {
	r, err := os.Open(h.Path(from.Path))
	if err != nil {
		return siteFault(f, err)
	}
	defer r.Close()
	return h.InstallSiteFile(ctx, f, r, warn)
}

// SiteFileFits returns why a file cannot be written at its path: a directory or a device is
// there, or a file is in place of a directory above it. It changes nothing.
func (h *Host) SiteFileFits(f SiteFile) error {
	if err := h.CheckDir(filepath.Dir(f.Path)); err != nil {
		return siteFault(f, err)
	}
	info, err := os.Lstat(h.Path(f.Path))
	if err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return siteFault(f, filesystem.ErrNotRegular)
	}
	return nil
}

func siteFault(f SiteFile, err error) error {
	return fault.Wrap(fmt.Errorf("writing %s: %w", f.Path, err), fault.Preflight, "move it away, or build the bundle with another path")
}

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/internal/fault"
)

// WriteFile atomically writes a file with this content and mode, and reports
// whether anything changed: an identical file is not written again. It creates
// missing parent directories. If it replaces a file that Airlift did not write,
// reset restores that file. If it replaces one that was edited since Airlift wrote
// it, the edited file is saved. Both give a warning.
func (h *Host) WriteFile(path string, data []byte, mode fs.FileMode) (changed bool, err error) {
	if err := h.writeCopies(path, data); err != nil {
		return false, err
	}
	sum := filesystem.Digest(data)
	now, info, err := filesystem.Look(h.Path(path))
	if err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	if now == sum && info.Mode().Perm() == mode.Perm() {
		return false, h.Records().Settled(ledger.File, path, sum)
	}
	e := ledger.Entry{Kind: ledger.File, Name: path, SHA256: sum}
	return true, h.put(e, now, h.warn, func(place string) error { return filesystem.Replace(place, data, mode) })
}

// put records the file or link e, calls write, and then records that the write is done. now is the
// sum of the current content, "" if there is none. warn receives a warning about each file of the
// user that the write replaces.
func (h *Host) put(e ledger.Entry, now string, warn warnFunc, write func(place string) error) error {
	path := e.Name
	if err := h.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	place, err := h.Place(path)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if now != "" {
		if e.Original, err = h.keepReplaced(path, now, warn); err != nil {
			return err
		}
	}
	if err := h.Records().Record(e); err != nil {
		return err
	}
	if err := h.Change(path, func() error { return write(place) }); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return h.Records().Settled(ledger.File, path, e.SHA256)
}

// MkdirAll creates a directory and its missing parents. Reset removes the
// created ones if they are empty.
func (h *Host) MkdirAll(path string, mode fs.FileMode) error {
	path = filepath.Clean(path)
	info, err := os.Stat(h.Path(path))
	if err == nil {
		if !info.IsDir() {
			return fmt.Errorf("creating directory %s: a file with that name exists", path)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("creating directory %s: %w", path, err)
	}
	if parent := filepath.Dir(path); parent != path {
		if err := h.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	place, err := h.Place(path)
	if err != nil {
		return fmt.Errorf("creating directory %s: %w", path, err)
	}
	if err := h.Records().Record(ledger.Entry{Kind: ledger.Dir, Name: path}); err != nil {
		return err
	}
	err = h.Change(path, func() error { return os.Mkdir(place, mode) })
	if err == nil {
		err = os.Chmod(place, mode) // regardless of the umask
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("creating directory %s: %w", path, err)
	}
	return nil
}

// Binary is a binary to install: its path and its sha256 in hexadecimal.
type Binary struct {
	Path, SHA256 string
	Size         int64 // bytes; 0 if it does not matter
}

// HasBinary reports whether exactly this binary is installed already. It returns false without a
// binary, and for another binary that Airlift installed, or that adopt found. Any other binary is
// an error: replacing it could break its users.
func (h *Host) HasBinary(b Binary) (bool, error) {
	sum, err := filesystem.DigestFile(h.Path(b.Path))
	if errors.Is(err, fs.ErrNotExist) && !filesystem.Exists(h.Path(b.Path)) {
		return false, nil
	}
	if err != nil {
		return false, fault.Wrap(fmt.Errorf("reading %s: %w", b.Path, err), fault.Preflight, "remove it, or move it away, if nothing else on this host needs it")
	}
	if sum == b.SHA256 {
		return true, h.Records().Settled(ledger.Binary, b.Path, sum)
	}
	if e, ok := h.Records().Find(ledger.Binary, b.Path); ok && e.Wrote(sum) || h.Records().Adopted().Found(b.Path, sum) {
		return false, nil
	}
	hint := "remove it, or move it away, if nothing else on this host needs it"
	if h.Records().Adopted() != nil {
		hint += "; if it belongs to this node, adopt it as it is now: ./install disown; ./install adopt"
	}
	return false, fault.New(fault.Preflight, "version conflict: %s exists, differs from the bundle's (sha256 %.12s…, want %.12s…) and was not installed by Airlift",
		b.Path, sum, b.SHA256).
		Hint(hint)
}

// InstallBinary writes r to the binary's path with mode 0755, unless HasBinary.
// It verifies the sum before the binary gets its name. An older one that is
// running is not disturbed: its file is replaced, not rewritten.
func (h *Host) InstallBinary(ctx context.Context, b Binary, r io.Reader) (changed bool, err error) {
	has, err := h.HasBinary(b)
	if err != nil {
		return false, err
	}
	if has {
		dst := h.Path(b.Path)
		info, err := os.Stat(dst)
		if err != nil || info.Mode().Perm()&0o111 == 0o111 {
			return false, err
		}
		return true, os.Chmod(dst, 0o755)
	}
	staged, err := h.StageBinary(ctx, b, r)
	if err != nil {
		return false, err
	}
	if err := staged.Settle(); err != nil {
		return false, err
	}
	return true, nil
}

// A StagedBinary is a binary that is written and verified, but does not have its
// final name yet.
type StagedBinary struct {
	host   *Host
	binary Binary
	file   *filesystem.Staged
}

// StageBinary is the part of InstallBinary that reads r. It does not check
// whether the binary exists already. The caller must Settle the result.
func (h *Host) StageBinary(ctx context.Context, b Binary, r io.Reader) (*StagedBinary, error) {
	if err := h.MkdirAll(filepath.Dir(b.Path), 0o755); err != nil {
		return nil, err
	}
	place, err := h.Place(b.Path)
	if err != nil {
		return nil, fmt.Errorf("installing %s: %w", b.Path, err)
	}
	e := ledger.Entry{Kind: ledger.Binary, Name: b.Path, SHA256: b.SHA256}
	if e.Original, err = keepAdopted(h, b.Path); err != nil {
		return nil, err
	}
	if err := h.Records().Record(e); err != nil {
		return nil, err
	}
	f, err := filesystem.Stage(ctx, place, r, 0o755, b.SHA256)
	if err != nil {
		return nil, fmt.Errorf("installing %s: %w", b.Path, err)
	}
	return &StagedBinary{h, b, f}, nil
}

// Settle waits until the binary is on the disk, which may take a while, and
// renames it. It may be called from any goroutine.
func (s *StagedBinary) Settle() error {
	if err := s.host.Change(s.binary.Path, s.file.Settle); err != nil {
		return fmt.Errorf("installing %s: %w", s.binary.Path, err)
	}
	return s.host.Records().Settled(ledger.Binary, s.binary.Path, s.binary.SHA256)
}

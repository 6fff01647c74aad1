package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"airlift/fault"
)

// WriteFile gives the file at path this content and mode, in one step that a
// crash cannot split, and says whether anything changed: a file that is
// already so is not written. Missing parent folders are made. A file of
// somebody else's that is replaced is kept, and comes back with reset.
func (h *Host) WriteFile(path string, data []byte, mode fs.FileMode) (changed bool, err error) {
	dst := h.Path(path)
	info, err := os.Lstat(dst)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		info = nil
	case err != nil:
		return false, fmt.Errorf("writing %s: %w", path, err)
	case info.IsDir():
		return false, fmt.Errorf("writing %s: it is a folder", path)
	case info.Mode().IsRegular():
		old, err := os.ReadFile(dst)
		if err != nil {
			return false, fmt.Errorf("writing %s: %w", path, err)
		}
		if bytes.Equal(old, data) {
			if info.Mode().Perm() == mode.Perm() {
				return false, nil
			}
			if err := os.Chmod(dst, mode); err != nil {
				return false, fmt.Errorf("writing %s: %w", path, err)
			}
			return true, nil
		}
	}
	if err := h.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	e := entry{Kind: kindFile, Name: path, SHA256: digest(data)}
	if _, ours := h.recorded(kindFile, path); info != nil && !ours {
		if e.Original, err = h.keepOriginal(path, info); err != nil {
			return false, err
		}
	}
	if err := h.record(e); err != nil {
		return false, err
	}
	if err := replaceFile(dst, data, mode); err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	return true, nil
}

// keepOriginal copies a file that is not ours aside and returns where.
func (h *Host) keepOriginal(path string, info fs.FileInfo) (string, error) {
	if h.folder {
		return "", nil
	}
	kept := filepath.Join(originalsDir, path)
	dst := h.Path(kept)
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return "", fmt.Errorf("keeping the original %s: %w", path, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(h.Path(path))
		if err == nil {
			if err = os.Symlink(target, dst); errors.Is(err, fs.ErrExist) {
				err = nil
			}
		}
		if err != nil {
			return "", fmt.Errorf("keeping the original %s: %w", path, err)
		}
		return kept, nil
	}
	data, err := os.ReadFile(h.Path(path))
	if err == nil {
		err = replaceFile(dst, data, info.Mode().Perm())
	}
	if err != nil {
		return "", fmt.Errorf("keeping the original %s: %w", path, err)
	}
	return kept, nil
}

// MkdirAll makes a folder and its missing parents. Reset removes those that
// it made, once they are empty.
func (h *Host) MkdirAll(path string, mode fs.FileMode) error {
	path = filepath.Clean(path)
	info, err := os.Stat(h.Path(path))
	if err == nil {
		if !info.IsDir() {
			return fmt.Errorf("making folder %s: there is a file of that name", path)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("making folder %s: %w", path, err)
	}
	if parent := filepath.Dir(path); parent != path {
		if err := h.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	if err := h.record(entry{Kind: kindDir, Name: path}); err != nil {
		return err
	}
	if err := os.Mkdir(h.Path(path), mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making folder %s: %w", path, err)
	}
	return nil
}

// Binary is a program to install: where, and the hex sha256 it must have.
type Binary struct{ Path, SHA256 string }

// HasBinary says whether exactly this program is installed already. One that
// is missing, or that is an older one of ours, gives false. Another one that
// somebody else put there is an error: replacing it could break what uses it.
func (h *Host) HasBinary(b Binary) (bool, error) {
	sum, err := digestFile(h.Path(b.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at %s: %w", b.Path, err)
	}
	if sum == b.SHA256 {
		return true, nil
	}
	if e, ok := h.recorded(kindBinary, b.Path); ok && e.wrote(sum) {
		return false, nil
	}
	return false, fault.New(fault.Preflight, "remove it, or move it away, if nothing else on this host needs it",
		"version conflict: %s exists, is not the bundle's (sha256 %.12s…, want %.12s…) and was not installed by this installer",
		b.Path, sum, b.SHA256)
}

// InstallBinary writes what r gives to the program's place, mode 0755, unless
// HasBinary. The sum is checked before the program appears under its name. A
// running older one is not disturbed: its file is replaced, not rewritten.
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

// A StagedBinary is a program that is written and verified, and not in its
// place yet.
type StagedBinary struct {
	binary Binary
	file   *stagedFile
}

// StageBinary is the part of InstallBinary that reads r. It does not look
// whether the program is there already. The caller must Settle what it returns.
func (h *Host) StageBinary(ctx context.Context, b Binary, r io.Reader) (*StagedBinary, error) {
	if err := h.MkdirAll(filepath.Dir(b.Path), 0o755); err != nil {
		return nil, err
	}
	if err := h.record(entry{Kind: kindBinary, Name: b.Path, SHA256: b.SHA256}); err != nil {
		return nil, err
	}
	f, err := stageFile(ctx, h.Path(b.Path), r, 0o755, b.SHA256)
	if err != nil {
		return nil, fmt.Errorf("installing %s: %w", b.Path, err)
	}
	return &StagedBinary{b, f}, nil
}

// Settle waits until the program is on the disk, which may take a while, and
// gives it its name. It may be called from any goroutine.
func (s *StagedBinary) Settle() error {
	if err := s.file.settle(); err != nil {
		return fmt.Errorf("installing %s: %w", s.binary.Path, err)
	}
	return nil
}

// contextReader ends with the context's error.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

func replaceFile(path string, data []byte, mode fs.FileMode) error {
	f, err := stageFile(context.Background(), path, bytes.NewReader(data), mode, "")
	if err != nil {
		return err
	}
	return f.settle()
}

// tempFile names the file that is to become path once it is complete. The dot
// keeps the kubelet and systemd from reading it in a folder that they watch.
// The name is always the same, so that a run after a crash writes over what
// the crashed one left, and reset finds it.
func tempFile(path string) string {
	return filepath.Join(filepath.Dir(path), ".airlift-"+filepath.Base(path))
}

// A stagedFile is the temporary file that is to replace the one at path.
type stagedFile struct {
	*os.File
	path string
}

// A verifier is a reader that gives io.EOF only when others have made sure that its
// content has the sha256 it names: a bundle's digests do.
type verifier interface{ Verifies() (sha256Hex string) }

// stageFile writes r to a temporary file beside path and compares it with the
// hex sha256, unless that is empty.
func stageFile(ctx context.Context, path string, r io.Reader, mode fs.FileMode, want string) (_ *stagedFile, err error) {
	f, err := os.OpenFile(tempFile(path), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	sum := sha256.New()
	v, verified := r.(verifier)
	verified = want == "" || verified && v.Verifies() == want
	if !verified {
		r = io.TeeReader(r, sum)
	}
	if _, err = io.CopyBuffer(struct{ io.Writer }{f}, &contextReader{ctx, r}, make([]byte, 64<<10)); err != nil {
		return nil, err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !verified && got != want {
		return nil, fault.New(fault.Bundle, "copy the bundle file again", "its sha256 is %s, want %s", got, want)
	}
	return &stagedFile{f, path}, f.Chmod(mode)
}

// settle renames the file when it is on the disk.
func (f *stagedFile) settle() (err error) {
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), f.path)
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func digestFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digestOf(f)
}

func digestOf(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// firstLine reads a small file's first line, trimmed.
func firstLine(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line), nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

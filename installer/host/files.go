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

	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/bundle/atomicfile"
	"airlift/fault"
	"airlift/interrupt"
)

// WriteFile atomically writes a file with this content and mode, and reports
// whether anything changed: an identical file is not written again. It creates
// missing parent directories. If it replaces a file that Airlift did not write,
// reset restores that file. If it replaces one that was edited since Airlift wrote
// it, the edited file is saved. Both give a warning.
func (h *Host) WriteFile(path string, data []byte, mode fs.FileMode) (changed bool, err error) {
	sum := digest(data)
	now, info, err := look(h.Path(path))
	if err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	if now == sum && info.Mode().Perm() == mode.Perm() {
		return false, h.Records().settled(kindFile, path, sum)
	}
	e := entry{Kind: kindFile, Name: path, SHA256: sum}
	return true, h.put(e, now, h.warn, func(place string) error { return replaceFile(place, data, mode) })
}

// put records e, the file or link that is written, calls write, and records that the
// write is done. now is the sum of the current content, "" if there is none. warn
// receives a warning about each file of the user that the write replaces.
func (h *Host) put(e entry, now string, warn warnFunc, write func(place string) error) error {
	path := e.Name
	if err := h.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	place, err := h.place(path)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if now != "" {
		if e.Original, err = h.keepReplaced(path, now, warn); err != nil {
			return err
		}
	}
	if err := h.Records().record(e); err != nil {
		return err
	}
	if err := write(place); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return h.Records().settled(kindFile, path, e.SHA256)
}

// ReadOnly reports whether a path is on a file system that is mounted read-only. The path need not
// exist.
func (h *Host) ReadOnly(path string) bool {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		var st unix.Statfs_t
		err := unix.Statfs(h.Path(path), &st)
		if err == nil {
			return int64(st.Flags)&unix.ST_RDONLY != 0
		}
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return false
		}
	}
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
	place, err := h.place(path)
	if err != nil {
		return fmt.Errorf("creating directory %s: %w", path, err)
	}
	if err := h.Records().record(entry{Kind: kindDir, Name: path}); err != nil {
		return err
	}
	err = os.Mkdir(place, mode)
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

// HasBinary reports whether exactly this binary is installed already. It returns
// false if there is none, or another one that Airlift installed. A binary that
// Airlift did not install is an error: replacing it could break its users.
func (h *Host) HasBinary(b Binary) (bool, error) {
	sum, err := digestFile(h.Path(b.Path))
	if errors.Is(err, fs.ErrNotExist) && !exists(h.Path(b.Path)) {
		return false, nil
	}
	if err != nil {
		return false, fault.Wrap(fmt.Errorf("reading %s: %w", b.Path, err), fault.Preflight, "remove it, or move it away, if nothing else on this host needs it")
	}
	if sum == b.SHA256 {
		return true, h.Records().settled(kindBinary, b.Path, sum)
	}
	if e, ok := h.Records().recorded(kindBinary, b.Path); ok && e.wrote(sum) {
		return false, nil
	}
	return false, fault.New(fault.Preflight, "version conflict: %s exists, differs from the bundle's (sha256 %.12s…, want %.12s…) and was not installed by Airlift",
		b.Path, sum, b.SHA256).
		Hint("remove it, or move it away, if nothing else on this host needs it")
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
	file   *stagedFile
}

// StageBinary is the part of InstallBinary that reads r. It does not check
// whether the binary exists already. The caller must Settle the result.
func (h *Host) StageBinary(ctx context.Context, b Binary, r io.Reader) (*StagedBinary, error) {
	if err := h.MkdirAll(filepath.Dir(b.Path), 0o755); err != nil {
		return nil, err
	}
	place, err := h.place(b.Path)
	if err != nil {
		return nil, fmt.Errorf("installing %s: %w", b.Path, err)
	}
	if err := h.Records().record(entry{Kind: kindBinary, Name: b.Path, SHA256: b.SHA256}); err != nil {
		return nil, err
	}
	f, err := stageFile(ctx, place, r, 0o755, b.SHA256)
	if err != nil {
		return nil, fmt.Errorf("installing %s: %w", b.Path, err)
	}
	return &StagedBinary{h, b, f}, nil
}

// Settle waits until the binary is on the disk, which may take a while, and
// renames it. It may be called from any goroutine.
func (s *StagedBinary) Settle() error {
	if err := s.file.settle(); err != nil {
		return fmt.Errorf("installing %s: %w", s.binary.Path, err)
	}
	return s.host.Records().settled(kindBinary, s.binary.Path, s.binary.SHA256)
}

func replaceFile(path string, data []byte, mode fs.FileMode) error {
	f, err := stageBytes(path, data, mode)
	if err != nil {
		return err
	}
	return f.settle()
}

// stageBytes is stageFile for bytes in memory.
func stageBytes(path string, data []byte, mode fs.FileMode) (*stagedFile, error) {
	return stageFile(context.Background(), path, bytes.NewReader(data), mode, "")
}

// tempFile is the name of the temporary file that becomes path once it is
// complete. Because of the dot, the kubelet and systemd ignore it in directories
// that they watch. The name is fixed, so that the next run after a crash
// overwrites it, and reset finds it.
func tempFile(path string) string {
	return filepath.Join(filepath.Dir(path), tempPrefix+filepath.Base(path))
}

const tempPrefix = ".airlift-"

// A stagedFile is the temporary file that is to replace the one at path.
type stagedFile struct {
	*os.File
	path string
	info fs.FileInfo
}

// stageFile writes r to a temporary file next to path and compares it with the
// sha256 in hexadecimal, unless that is empty.
func stageFile(ctx context.Context, path string, r io.Reader, mode fs.FileMode, want string) (_ *stagedFile, err error) {
	// Remove the leftover of a crashed run.
	if err := os.Remove(tempFile(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(tempFile(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	f := &stagedFile{File: file, path: path}
	defer func() {
		if err != nil {
			f.discard()
		}
	}()
	if f.info, err = f.Stat(); err != nil {
		return nil, err
	}
	sum := sha256.New()
	v, verified := r.(bundle.Content)
	verified = want == "" || verified && v.Verifies() == want
	if !verified {
		r = io.TeeReader(r, sum)
	}
	if _, err = io.CopyBuffer(struct{ io.Writer }{f}, interrupt.Reader(ctx, r), make([]byte, 64<<10)); err != nil {
		return nil, err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !verified && got != want {
		return nil, fault.New(fault.Bundle, "its sha256 is %s, want %s", got, want).Hint("copy the bundle file again")
	}
	// Not every file system has modes.
	if err = f.Chmod(mode); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return f, err
}

func (f *stagedFile) discard() {
	f.Close()
	if f.ownsName() {
		os.Remove(f.Name())
	}
}

// ownsName reports whether the temporary name is still that of this file: another host may write to the
// same directory.
func (f *stagedFile) ownsName() bool {
	is, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(is, f.info)
}

// settle syncs the file, renames it, and syncs the directory.
func (f *stagedFile) settle() error { return f.settleWith(os.Rename) }

func (f *stagedFile) settleWith(rename func(from, to string) error) (err error) {
	defer func() {
		if err != nil {
			f.discard()
		}
	}()
	if err = f.Sync(); err != nil {
		return err
	}
	if !f.ownsName() {
		return fmt.Errorf("another process replaced %s", f.Name())
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = rename(f.Name(), f.path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(f.path))
}

// errNotRegular reports a directory, a pipe or a device in place of a file.
var errNotRegular = errors.New("it exists and is not a regular file")

// sumAt is the sha256 of the file at path, or "link to TARGET" for a symbolic
// link, which is not followed.
func sumAt(path string) (string, error) {
	target, err := os.Readlink(path)
	if errors.Is(err, unix.EINVAL) { // not a link
		return digestFile(path)
	}
	return linkSum(target), err
}

const linkPrefix = "link to "

func linkSum(target string) string { return linkPrefix + target }

// look is sumAt with the file's mode; "" and nil if there is no file.
func look(path string) (sum string, info fs.FileInfo, err error) {
	info, err = os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	if err == nil {
		sum, err = sumAt(path)
	}
	return sum, info, err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func digestFile(path string) (string, error) {
	// Without O_NONBLOCK, opening a pipe would block.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errNotRegular
	}
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

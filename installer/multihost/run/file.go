package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"sync"

	"airlift/bundle"
	"airlift/installer/multihost/remote"
	"airlift/internal/interrupt"
)

// A File is the file that the hosts install from: the one of the driver itself.
type File struct {
	Bundle *bundle.File
	thin   remote.File
	temp   *os.File // of thin, which has no name; nil if Bundle is thin

	mu       sync.Mutex
	wholeSum string // sha256 in hex; "" before its first use
}

// NewFile prepares a bundle for sending. It writes its thin file to a temporary file, which has no name.
func NewFile(ctx context.Context, b *bundle.File) (*File, error) {
	f := &File{Bundle: b}
	var content io.ReaderAt = b.Reader()
	size := b.Size()
	if !b.Thin() {
		var err error
		if f.temp, size, err = writeThin(ctx, b); err != nil {
			return nil, err
		}
		content = f.temp
	}
	sum, err := sumOf(ctx, content, size)
	if err != nil {
		f.Close()
		return nil, err
	}
	f.thin = remote.File{Content: content, Size: size, SHA256: sum, Path: f.staged(), Mode: 0o700}
	return f, nil
}

func writeThin(ctx context.Context, b *bundle.File) (file *os.File, size int64, err error) {
	dir, err := os.MkdirTemp("", "airlift-cluster-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "install")
	if size, err = bundle.WriteThin(ctx, b, path); err != nil {
		return nil, 0, err
	}
	file, err = os.Open(path)
	return file, size, err
}

// staged is where the thin file is on a host until a run that changes the host makes it the installed one.
func (f *File) staged() string { return driverDir + "/next-" + f.Bundle.ID()[:12] }

// Close removes the temporary file.
func (f *File) Close() {
	if f.temp != nil {
		_ = f.temp.Close()
	}
}

// whole returns the whole file for its place on a host.
func (f *File) whole(ctx context.Context) (remote.File, error) {
	if err := f.Bundle.NeedsWhole(); err != nil {
		return remote.File{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	content, size := f.Bundle.Reader(), f.Bundle.Size()
	if f.wholeSum == "" {
		var err error
		if f.wholeSum, err = sumOf(ctx, content, size); err != nil {
			return remote.File{}, err
		}
	}
	return remote.File{Content: content, Size: size, SHA256: f.wholeSum, Path: whole, Mode: 0o700}, nil
}

// sumOf returns the sha256 in hex.
func sumOf(ctx context.Context, r io.ReaderAt, size int64) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, interrupt.Reader(ctx, io.NewSectionReader(r, 0, size))); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

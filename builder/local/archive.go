package local

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"airlift/builder/fetch"
	"airlift/builder/oci"
	"airlift/internal/fault"
)

const (
	maxArchiveFiles = 100_000
	maxArchiveLinks = 10 // from one link to the next
)

// saveHint is the hint for a file that is no archive of an image.
const saveHint = "write the archive with docker save -o app.tar IMAGE"

type archive struct {
	name    string // in messages
	file    *os.File
	members map[string]member
}

type member struct {
	offset, size int64
	link         string // the name of another member; empty for a regular file
}

// openArchive opens a tar, which may be compressed with gzip or zstd.
func openArchive(ctx context.Context, cache *fetch.Cache, name string) (files, error) {
	i, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !i.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return readArchive(ctx, cache, name, f)
}

// readArchive reads the members of the tar in f. It closes f.
func readArchive(ctx context.Context, cache *fetch.Cache, name string, f *os.File) (files, error) {
	f, err := uncompressed(ctx, cache, name, f)
	if err != nil {
		return nil, unread(name, err)
	}
	a := &archive{name: name, file: f, members: map[string]member{}}
	if err := a.index(ctx); err != nil {
		f.Close()
		return nil, unread(name, err)
	}
	return a, nil
}

func unread(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(fault.Failure, "reading %s: it is cut off: %w", name, err).Hint("copy or write it again, and compare its size with the original's")
	}
	return fmt.Errorf("reading %s: %w", name, err)
}

// uncompressed returns f, or a temporary file with its decompressed content.
func uncompressed(ctx context.Context, cache *fetch.Cache, name string, f *os.File) (*os.File, error) {
	fail := func(err error) (*os.File, error) { f.Close(); return nil, err }
	compressed, err := oci.Compressed(f)
	if err != nil {
		return fail(err)
	}
	if !compressed {
		return f, nil
	}
	i, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	r, err := oci.Decompress(f)
	if err != nil {
		return fail(err)
	}
	defer r.Close()
	out, err := cache.Temporary(ctx, fetch.LimitUnpacked(r, name, i.Size()))
	if err != nil {
		return fail(err)
	}
	f.Close()
	return out, nil
}

// index reads the headers. archive/tar reads no further than the end of a header, so the
// position of the file is then the beginning of the content.
func (a *archive) index(ctx context.Context) error {
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for t := tar.NewReader(a.file); ; {
		h, err := t.Next()
		if err == io.EOF && len(a.members) > 0 {
			return nil
		}
		if err == io.EOF || len(a.members) == 0 && (errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF)) {
			return a.notTar()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if len(a.members) == maxArchiveFiles {
			return fmt.Errorf("it has more than %d files", maxArchiveFiles)
		}
		name := path.Clean("/" + h.Name)[1:]
		switch h.Typeflag {
		case tar.TypeReg:
			at, err := a.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			a.members[name] = member{offset: at, size: h.Size}
		case tar.TypeSymlink:
			a.members[name] = member{link: path.Join("/", path.Dir(name), h.Linkname)[1:]}
		case tar.TypeLink:
			a.members[name] = member{link: path.Clean("/" + h.Linkname)[1:]}
		default: // a directory
			a.members[name+"/"] = member{}
		}
	}
}

func (a *archive) notTar() error {
	begin := make([]byte, 512)
	n, _ := a.file.ReadAt(begin, 0)
	if name, command := oci.Unsupported(begin[:n]); name != "" {
		return fault.New(fault.Usage, "it is compressed with %s; gzip and zstd are supported", name).Hint(fmt.Sprintf("decompress it first: %s %q > app.tar", command, a.name))
	}
	switch text := strings.ToLower(string(bytes.TrimSpace(begin[:n]))); {
	case strings.HasPrefix(text, "version https://git-lfs"):
		return fault.New(fault.Usage, "it is a pointer of Git LFS, not a tar archive").Hint(fmt.Sprintf("get the file itself: git lfs pull --include %q", a.name))
	case strings.HasPrefix(text, "<!doctype html"), strings.HasPrefix(text, "<html"):
		return fault.New(fault.Usage, "it is a web page (HTML), not a tar archive").Hint("download it again, with its direct URL")
	}
	return fault.New(fault.Usage, "it is not a tar archive").Hint(saveHint)
}

// isChart reports whether it is a packaged Helm chart: a directory with Chart.yaml.
func (a *archive) isChart() bool {
	for name := range a.members {
		if dir, file := path.Split(name); file == "Chart.yaml" && strings.Count(dir, "/") == 1 {
			return true
		}
	}
	return false
}

func (a *archive) path(name string) string { return a.name + ": " + name }

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	for range maxArchiveLinks {
		m, ok := a.members[name]
		if !ok {
			return nil, 0, fs.ErrNotExist
		}
		if m.link == "" {
			return io.NopCloser(io.NewSectionReader(a.file, m.offset, m.size)), m.size, nil
		}
		name = m.link
	}
	return nil, 0, fmt.Errorf("%s: too many links", a.path(name))
}

func (a *archive) Close() error { return a.file.Close() }

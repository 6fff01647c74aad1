package parts

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
	"airlift/internal/space"
)

// Split writes content in parts of at most size bytes for the file at base, and the list of
// their checksums. It returns the paths of the parts. written is called with the number of
// bytes that were written.
//
// It refuses to overwrite files, also parts of another split and others that cat would join too. All
// files get their names when everything is on the disk. On an error, or when ctx is
// cancelled, it removes what it has written.
func Split(ctx context.Context, content *io.SectionReader, base string, size int64, written func(n int64)) (paths []string, err error) {
	number := int((content.Size() + size - 1) / size)
	if (content.Size()+size-1)/size > Max {
		return nil, fault.New(fault.Usage, "%d parts of %d bytes are more than the %d allowed", (content.Size()+size-1)/size, size, Max).Hint("choose a larger --size")
	}
	if err := checkFree(base); err != nil {
		return nil, err
	}
	dir := filepath.Dir(base)
	if err := space.Check(dir, "the parts", content.Size()); err != nil {
		return nil, err
	}
	s := splitter{ctx: ctx, content: content, whole: sha256.New(), written: written}
	defer func() {
		if err != nil {
			for _, f := range s.files {
				f.Remove()
			}
			err = space.Explain(dir, fmt.Errorf("splitting into %s: %w", base, err))
		}
	}()
	var list []byte
	for n := 1; n <= number; n++ {
		path := Path(base, n)
		sum, err := s.part(path, min(size, content.Size()-int64(n-1)*size))
		if err != nil {
			return nil, err
		}
		list = appendLine(list, sum, path)
		paths = append(paths, path)
	}
	list = appendLine(list, s.whole.Sum(nil), base)
	if err := s.file(ListPath(base), func(w io.Writer) error { _, err := w.Write(list); return err }); err != nil {
		return nil, err
	}
	return paths, s.name(base)
}

// checkFree returns an error if the list exists, or a file that cat would join as a part.
func checkFree(base string) error {
	taken := []string{ListPath(base)}
	list, err := os.ReadDir(filepath.Dir(base))
	if err != nil {
		return fault.Wrap(err, fault.Usage, "name an existing directory with --out")
	}
	for _, e := range list {
		path := filepath.Join(filepath.Dir(base), e.Name())
		if takenByPattern(filepath.Base(base), e.Name()) {
			taken = append(taken, path)
		}
	}
	for _, path := range taken {
		if _, err := os.Lstat(path); err == nil {
			return fault.New(fault.Usage, "%q exists", path).Hint("remove the earlier parts and their list, or choose another path with --out")
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// A splitter writes files under temporary names.
type splitter struct {
	ctx     context.Context
	content io.Reader
	whole   hash.Hash // of all parts together
	written func(n int64)
	files   []*atomicfile.File
}

func (s *splitter) part(path string, size int64) (sum []byte, err error) {
	h := sha256.New()
	err = s.file(path, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<20)
		if _, err := io.CopyN(io.MultiWriter(h, s.whole, out, interrupt.Meter(s.written)), interrupt.Reader(s.ctx, s.content), size); err != nil {
			return err
		}
		return out.Flush()
	})
	return h.Sum(nil), err
}

// file writes and syncs a file under a temporary name.
func (s *splitter) file(path string, write func(io.Writer) error) (err error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	if err := write(f); err != nil {
		return err
	}
	return f.Finish(0o644)
}

func (s *splitter) name(base string) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if err := checkFree(base); err != nil {
		return err
	}
	for _, f := range s.files {
		if err := f.Replace(); err != nil {
			return err
		}
	}
	return nil
}

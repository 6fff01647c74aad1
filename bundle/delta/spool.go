package delta

import (
	"errors"
	"fmt"
	"io"
	"os"

	"airlift/internal/atomicfile"
)

// A spool keeps contents in one temporary file, for reading in any order.
type spool struct {
	file *atomicfile.File // never gets its name
	end  int64
	at   map[string]*io.SectionReader
}

// newSpool creates the file next to path.
func newSpool(path string) (*spool, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name()) // so that a crash leaves nothing; Windows cannot
	return &spool{file: f, at: map[string]*io.SectionReader{}}, nil
}

func (s *spool) add(name string, r io.Reader) error {
	n, err := io.Copy(io.NewOffsetWriter(s.file, s.end), r)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", name, err)
	}
	s.at[name] = io.NewSectionReader(s.file, s.end, n)
	s.end += n
	return nil
}

var errNotThere = errors.New("the older bundle does not have it")

func (s *spool) open(name string) (*io.SectionReader, error) {
	r := s.at[name]
	if r == nil {
		return nil, fmt.Errorf("%s: %w", name, errNotThere)
	}
	return io.NewSectionReader(r, 0, r.Size()), nil
}

func (s *spool) close() { s.file.Discard() }

package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// A Set is the parts of a file, of which some may be missing or damaged. It reads as the
// whole file.
type Set struct {
	Base   string // path of the whole file, which need not exist
	Parts  []Part
	SHA256 string // of the whole file in the list, in hex; "" without a list
	size   int64  // of each part but the last
}

// A Part is one file of a set.
type Part struct {
	Path   string
	Number int    // from 1 on
	SHA256 string // in the list, in hex; "" without a list
	Size   int64  // in bytes; 0 if the part is missing
	file   *os.File
}

// Missing reports whether the part does not exist.
func (p Part) Missing() bool { return p.file == nil }

// Open opens the parts of the file at base that exist. The list names all parts. Without a list,
// the last existing part is treated as the last part. Other files that cat would join too, such as
// NAME.000, are an error.
func Open(base string) (*Set, error) {
	sums, err := readList(base)
	if err != nil {
		return nil, err
	}
	s := &Set{Base: base, SHA256: sums[filepath.Base(base)]}
	if err := s.open(sums); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open opens the parts that exist or that the list names.
func (s *Set) open(sums map[string]string) error {
	last := 0 // number of the last part that exists or is listed
	for n := 1; n <= Max; n++ {
		p := Part{Path: Path(s.Base, n), Number: n, SHA256: sums[filepath.Base(Path(s.Base, n))]}
		err := p.open()
		if err == nil {
			s.size = max(s.size, p.Size)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(err, fault.Bundle, "")
		}
		if err == nil || p.SHA256 != "" {
			last = n
		}
		s.Parts = append(s.Parts, p)
	}
	s.Parts = s.Parts[:last]
	if s.size == 0 {
		return fault.New(fault.Bundle, "there are no parts of %s", s.Base).Hint("name a part that bundle split wrote, such as " + Path(s.Base, 1))
	}
	return s.refuseOthers()
}

func (p *Part) open() error {
	i, err := os.Stat(p.Path)
	if err == nil && !i.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", p.Path)
	}
	if err != nil {
		return err
	}
	p.Size = i.Size()
	p.file, err = os.Open(p.Path)
	return err
}

// refuseOthers returns an error if the directory has a file that is no part, and that the pattern
// of cat takes.
func (s *Set) refuseOthers() error {
	list, err := os.ReadDir(filepath.Dir(s.Base))
	if err != nil {
		return fault.Wrap(err, fault.Bundle, "")
	}
	for _, e := range list {
		of, n, ok := Parse(e.Name())
		part := ok && n > 0 && of == filepath.Base(s.Base)
		if takenByPattern(filepath.Base(s.Base), e.Name()) && !part {
			return fault.New(fault.Bundle, "%q is not a part of %s, but cat would join it too", filepath.Join(filepath.Dir(s.Base), e.Name()), s.Base).
				Hint("if you know the file, move it to another directory; else do not use these parts")
		}
	}
	return nil
}

// Close closes the files.
func (s *Set) Close() {
	for _, p := range s.Parts {
		if p.file != nil {
			p.file.Close()
		}
	}
}

// Offset is the offset of a part in the whole file.
func (s *Set) Offset(p Part) int64 { return int64(p.Number-1) * s.size }

// PartSize is the size of each part but the last, in bytes.
func (s *Set) PartSize() int64 { return s.size }

// Size is the size of the whole file, if the last part exists.
func (s *Set) Size() int64 {
	last := s.Parts[len(s.Parts)-1]
	return s.Offset(last) + last.Size
}

// Missing returns the first missing part.
func (s *Set) Missing() (p Part, ok bool) {
	for _, p := range s.Parts {
		if p.Missing() {
			return p, true
		}
	}
	return Part{}, false
}

// ReadAt reads from the whole file. Reading what is missing fails.
func (s *Set) ReadAt(b []byte, at int64) (n int, err error) {
	for len(b) > 0 {
		number := at / s.size
		if number >= int64(len(s.Parts)) {
			return n, io.EOF
		}
		p := s.Parts[number]
		if p.Missing() {
			return n, fmt.Errorf("%s is missing", p.Path)
		}
		want := b[:min(int64(len(b)), s.size-at%s.size)]
		m, err := p.file.ReadAt(want, at%s.size)
		n, at, b = n+m, at+int64(m), b[m:]
		if m < len(want) {
			return n, err
		}
	}
	return n, nil
}

// Check compares a part with the list. read is called with the number of bytes that were
// read. The error carries fault.Bundle.
func (s *Set) Check(ctx context.Context, p Part, read func(n int64)) error {
	return s.Copy(ctx, io.Discard, s, p, read)
}

// CheckWhole compares the sha256 of all parts together with the list.
func (s *Set) CheckWhole(sum []byte) error {
	if hex.EncodeToString(sum) == s.SHA256 {
		return nil
	}
	return fault.New(fault.Bundle, "the parts of %s do not match its list: together they do not have the sha256 of %s in %s", s.Base, filepath.Base(s.Base), ListPath(s.Base)).
		Hint("copy the list and all parts again from where the file was split")
}

// Copy writes a part to w, and compares what it read with the list. It reads the part once, from content,
// which is the set or another view of the whole file. After an error, w has bytes that must not be used.
func (s *Set) Copy(ctx context.Context, w io.Writer, content io.ReaderAt, p Part, read func(n int64)) error {
	if p.Missing() {
		return fault.New(fault.Bundle, "%s is missing", p.Path).Hint("copy it again from where the file was split")
	}
	if p.SHA256 == "" {
		return fault.New(fault.Bundle, "%s cannot be checked: it is not in the list %s", p.Path, ListPath(s.Base)).
			Hint("copy " + ListPath(s.Base) + " to the same directory, or join the parts and verify the whole file")
	}
	h := sha256.New()
	in := &interrupt.Input{Reader: io.NewSectionReader(content, s.Offset(p), p.Size)}
	_, err := io.CopyBuffer(io.MultiWriter(h, w, interrupt.Meter(read)), interrupt.Reader(ctx, in), make([]byte, 1<<20))
	if in.Err != nil {
		return fault.New(fault.Bundle, "reading %s: %w", p.Path, in.Err).Hint("copy it again")
	}
	if err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != p.SHA256 {
		return fault.New(fault.Bundle, "%s is damaged: it does not match its sha256 in %s", p.Path, ListPath(s.Base)).Hint("copy it again from where the file was split")
	}
	if p.Size != s.size && p.Number < len(s.Parts) {
		return fault.New(fault.Bundle, "%s has %d bytes, but other parts have %d: only the last part may be smaller", p.Path, p.Size, s.size).
			Hint("copy the list and all parts again from where the file was split")
	}
	return nil
}

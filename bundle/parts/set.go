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

	"airlift/fault"
)

// A Set is the parts of a file, of which some may be missing or damaged. It reads as the
// whole file.
type Set struct {
	Base  string // path of the whole file, which need not exist
	Parts []Part
	size  int64 // of each part but the last
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

// Open opens the parts of the file at base that exist. The list has their number;
// without a list, the last one that exists is treated as the last.
func Open(base string) (s *Set, err error) {
	sums, err := readList(base)
	if err != nil {
		return nil, err
	}
	s = &Set{Base: base}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	last := 0 // number of the last part that exists or is listed
	for n := 1; n <= Max; n++ {
		p := Part{Path: Path(base, n), Number: n, SHA256: sums[filepath.Base(Path(base, n))]}
		f, err := os.Open(p.Path)
		if err == nil {
			i, err := f.Stat()
			if err != nil {
				return nil, err
			}
			p.file, p.Size = f, i.Size()
			s.size = max(s.size, p.Size)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fault.Wrap(err, fault.Bundle, "")
		}
		if err == nil || p.SHA256 != "" {
			last = n
		}
		s.Parts = append(s.Parts, p)
	}
	s.Parts = s.Parts[:last]
	if s.size == 0 {
		return nil, fault.New(fault.Bundle, "name a part that bundle split wrote, such as "+Path(base, 1), "there are no parts of %s", base)
	}
	return s, nil
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
	if p.Missing() {
		return fault.New(fault.Bundle, "copy it again from where the file was split", "%s is missing", p.Path)
	}
	if p.SHA256 == "" {
		return fault.New(fault.Bundle, "copy "+ListPath(s.Base)+" to the same directory, or join the parts and verify the whole file",
			"%s cannot be checked: it is not in the list %s", p.Path, ListPath(s.Base))
	}
	h, buf := sha256.New(), make([]byte, 1<<20)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := p.file.ReadAt(buf, at)
		h.Write(buf[:n])
		read(int64(n))
		at += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return fault.New(fault.Bundle, "copy it again", "reading %s: %w", p.Path, err)
		}
	}
	if hex.EncodeToString(h.Sum(nil)) != p.SHA256 {
		return fault.New(fault.Bundle, "copy it again from where the file was split", "%s is damaged: it does not match its sha256 in %s", p.Path, ListPath(s.Base))
	}
	return nil
}

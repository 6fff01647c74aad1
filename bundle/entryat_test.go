package bundle

import (
	"errors"
	"io"
	"os"
	"testing"

	"airlift/bundle/head"
)

// TestEntryAt damages each piece of a bundle in turn. A stream fails in the entry that
// EntryAt names, and the entry's bytes before the place can be read.
func TestEntryAt(t *testing.T) {
	s := large()
	path := s.write(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	begin, end := f.PayloadOffset(), f.PayloadOffset()+f.PayloadSize()
	tested := 0
	for at := begin + head.PieceSize; at < end; at += head.PieceSize { // the first piece has the manifest
		b := append([]byte(nil), whole...)
		b[at] ^= 1
		damaged := t.TempDir() + "/install"
		if err := os.WriteFile(damaged, b, 0o755); err != nil {
			t.Fatal(err)
		}
		d := openFile(t, damaged)
		for _, p := range d.Parts() {
			if at+head.PieceSize <= p.Offset || at >= p.Offset+p.Size {
				continue
			}
			e, offset, err := d.EntryAt(t.Context(), p, max(at, p.Offset))
			if err != nil {
				t.Fatal(err)
			}
			got, n := unreadable(t, d, p)
			if got != e.Name || n < offset {
				t.Errorf("piece at %d, part %s: from byte %d of %s; a stream fails after %d bytes of %s", at, p.Name, offset, e.Name, n, got)
			}
			tested++
		}
	}
	if tested < 10 {
		t.Errorf("only %d places", tested)
	}
}

// unreadable returns the entry of a part in which a reader fails, and how many of its bytes
// it could read.
func unreadable(t *testing.T, f *File, p Part) (name string, n int64) {
	t.Helper()
	m, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	entries := p.Entries(m)
	s.parts = []entriesOf{{p.Name, entries}}
	for i := 0; ; i++ {
		e, content, err := s.Next()
		if err == io.EOF {
			t.Error(errors.New("no entry is damaged"))
			return "", 0
		}
		if err != nil {
			return entries[i].Name, 0
		}
		if n, err := io.Copy(struct{ io.Writer }{io.Discard}, content); err != nil {
			return e.Name, n
		}
	}
}

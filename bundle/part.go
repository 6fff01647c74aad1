package bundle

import (
	"iter"
	"slices"
	"strings"
)

// The payload's parts, in their order. Each is a zstd frame of its own, so that
// it can be read without the others.
const (
	HeadPart     = "head"     // manifest and installer
	ProgramsPart = "programs" // what is in BinDir and CNIDir, if that stands before all else
	ImagesPart   = "images"   // the rest: what is in BlobDir, and the tar's end
)

// A Part is a piece of the payload. One that holds nothing has the size 0.
type Part struct {
	Name   string
	Offset int64 // in bytes from the file's first
	Size   int64 // in bytes, compressed
}

// Entries are those of m that stand in the part.
func (p Part) Entries(m *Manifest) []Entry {
	for name, entries := range partsOf(m.Entries) {
		if name == p.Name {
			return entries
		}
	}
	return nil // the head's are in no manifest
}

// Parts are the payload's parts that hold something, in their order.
func (f *File) Parts() []Part {
	var parts []Part
	for _, name := range []string{HeadPart, ProgramsPart, ImagesPart} {
		if p := f.part(name); p.Size > 0 {
			parts = append(parts, p)
		}
	}
	return parts
}

// part returns the part called name. That the sizes fit was checked when the
// file was opened.
func (f *File) part(name string) Part {
	head, programs := int64(f.trailer.HeadSize), int64(f.trailer.ProgramsSize)
	switch name {
	case HeadPart:
		return Part{name, f.PayloadOffset(), head}
	case ProgramsPart:
		return Part{name, f.PayloadOffset() + head, programs}
	}
	return Part{name, f.PayloadOffset() + head + programs, f.PayloadSize() - head - programs}
}

// checkParts compares the trailer with m.
func (f *File) checkParts(m *Manifest) error {
	programs := f.part(ProgramsPart)
	if n := len(programs.Entries(m)); (n > 0) != (programs.Size > 0) {
		return f.damaged("its payload's part %q has %d bytes, and by its manifest %d entries", programs.Name, programs.Size, n)
	}
	return nil
}

// Window is how far back a match may reach in the part, in bytes: about what a
// decoder needs in memory.
func (f *File) Window(p Part) (int64, error) {
	h, err := f.frame(p)
	if err != nil {
		return 0, f.damaged("%w", err)
	}
	if h.SingleSegment {
		return int64(h.FrameContentSize), nil
	}
	return int64(h.WindowSize), nil
}

// partsOf gives a valid manifest's entries, part by part. Where programs and blobs
// stand in turns there is no cut between them.
func partsOf(entries []Entry) iter.Seq2[string, []Entry] {
	n := slices.IndexFunc(entries, isBlob)
	if n < 0 {
		n = len(entries)
	}
	if slices.ContainsFunc(entries[n:], func(e Entry) bool { return !isBlob(e) }) {
		n = 0
	}
	return func(yield func(string, []Entry) bool) {
		_ = yield(ProgramsPart, entries[:n]) && yield(ImagesPart, entries[n:])
	}
}

func isBlob(e Entry) bool { return strings.HasPrefix(e.Name, BlobDir) }

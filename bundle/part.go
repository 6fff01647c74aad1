package bundle

import (
	"context"
	"iter"
	"slices"
	"strings"
)

// The payload's parts, in order. Each is a separate zstd frame that can be read without
// the others.
const (
	HeadPart     = "head"     // manifest and installer
	BinariesPart = "binaries" // BinDir and CNIDir, if all of their entries precede the others
	ImagesPart   = "images"   // the other entries, and the end of the tar
)

// A Part is a section of the payload. An empty one has the size 0.
type Part struct {
	Name   string
	Offset int64 // in the file, in bytes
	Size   int64 // in bytes, compressed
}

// Entries returns the entries of m that are in the part.
func (p Part) Entries(m *Manifest) []Entry {
	for name, entries := range partsOf(m.Entries) {
		if name == p.Name {
			return entries
		}
	}
	return nil // the head's entries are not in the manifest
}

// Parts returns the payload's parts that are not empty, in order.
func (f *File) Parts() []Part {
	var parts []Part
	for _, name := range []string{HeadPart, BinariesPart, ImagesPart} {
		if p := f.part(name); p.Size > 0 {
			parts = append(parts, p)
		}
	}
	return parts
}

// part returns the part called name. Opening the file has checked the sizes.
func (f *File) part(name string) Part {
	head, binaries := int64(f.trailer.HeadSize), int64(f.trailer.BinariesSize)
	switch name {
	case HeadPart:
		return Part{name, f.PayloadOffset(), head}
	case BinariesPart:
		return Part{name, f.PayloadOffset() + head, binaries}
	}
	return Part{name, f.PayloadOffset() + head + binaries, f.PayloadSize() - head - binaries}
}

// checkParts compares the trailer with m.
func checkParts(f *File, m *Manifest) error {
	binaries := f.part(BinariesPart)
	if n := len(binaries.Entries(m)); (n > 0) != (binaries.Size > 0) {
		return f.damaged("its payload's part %q has %d bytes, but its manifest lists %d entries for it", binaries.Name, binaries.Size, n)
	}
	return nil
}

// Window is the window of the part's zstd frame in bytes: about the memory that a decoder
// needs.
func (f *File) Window(p Part) (int64, error) {
	h, err := frameHeader(context.Background(), f, p)
	if err != nil {
		return 0, f.damaged("%w", err)
	}
	if h.SingleSegment {
		return int64(h.FrameContentSize), nil
	}
	return int64(h.WindowSize), nil
}

// partsOf returns the entries of a valid manifest by part. If binaries and other entries
// alternate, all entries are in one part.
func partsOf(entries []Entry) iter.Seq2[string, []Entry] {
	n := slices.IndexFunc(entries, func(e Entry) bool { return !isBinary(e) })
	if n < 0 {
		n = len(entries)
	}
	if slices.ContainsFunc(entries[n:], isBinary) {
		n = 0
	}
	return func(yield func(string, []Entry) bool) {
		_ = yield(BinariesPart, entries[:n]) && yield(ImagesPart, entries[n:])
	}
}

func isBinary(e Entry) bool {
	return strings.HasPrefix(e.Name, BinDir) || strings.HasPrefix(e.Name, CNIDir)
}

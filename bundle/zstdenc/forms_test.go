package zstdenc

import (
	"fmt"
	"testing"
)

// allForms are the forms of blocks that the encoder writes, by their headers.
var allForms = []string{
	"raw block", "compressed block",
	"raw literals, size format 0", "raw literals, size format 1", "raw literals, size format 3",
	"RLE literals, size format 1", "RLE literals, size format 3",
	"compressed literals, size format 0", "compressed literals, size format 1", "compressed literals, size format 2", "compressed literals, size format 3",
	"treeless literals, size format 2", "treeless literals, size format 3",
	"0 sequences", "1-byte number of sequences", "2-byte number of sequences", "3-byte number of sequences",
	"literals lengths mode 1", "literals lengths mode 2",
	"offsets mode 1", "offsets mode 2",
	"match lengths mode 1", "match lengths mode 2",
}

func checkForms(t *testing.T, seen map[string]bool) {
	t.Helper()
	for _, w := range allForms {
		if !seen[w] {
			t.Errorf("no input has: %s", w)
		}
		delete(seen, w)
	}
	for s := range seen {
		t.Errorf("not in the list of forms: %s", s)
	}
}

// forms adds the forms of a frame's blocks to seen, by their headers.
func forms(t *testing.T, frame []byte, seen map[string]bool) {
	t.Helper()
	b := frame[6:]
	for last := false; !last; {
		h := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
		kind, size := h>>1&3, h>>3
		last = h&1 == 1
		content := b[3 : 3+size]
		b = b[3+size:]
		if kind == rawBlock {
			seen["raw block"] = true
			continue
		}
		seen["compressed block"] = true

		// The literals section: its type, the form of its size, and where it ends.
		kind, format := int(content[0]&3), int(content[0]>>2&3)
		header := uint64(0)
		for i, c := range content[:min(5, len(content))] {
			header |= uint64(c) << (8 * i)
		}
		name := []string{"raw literals", "RLE literals", "compressed literals", "treeless literals"}[kind]
		var n int
		if kind <= 1 {
			if format&1 == 0 { // the other bit belongs to the size
				format = 0
			}
			headerSize := []int{1, 2, 0, 3}[format]
			n = int(header & (1<<(8*headerSize) - 1) >> []int{3, 4, 0, 4}[format])
			if kind == 1 {
				n = 1
			}
			n += headerSize
		} else {
			width := []int{10, 10, 14, 18}[format]
			n = int(header>>(4+width)&(1<<width-1)) + []int{3, 3, 4, 5}[format]
		}
		seen[fmt.Sprintf("%s, size format %d", name, format)] = true

		s := content[n:]
		switch {
		case s[0] == 0:
			seen["0 sequences"] = true
			continue
		case s[0] < 128:
			seen["1-byte number of sequences"] = true
			s = s[1:]
		case s[0] < 255:
			seen["2-byte number of sequences"] = true
			s = s[2:]
		default:
			seen["3-byte number of sequences"] = true
			s = s[3:]
		}
		for k, name := range []string{"literals lengths", "offsets", "match lengths"} {
			seen[fmt.Sprintf("%s mode %d", name, s[0]>>(6-2*k)&3)] = true
		}
	}
	if len(b) != 4 {
		t.Errorf("%d bytes follow the last block, not a checksum", len(b))
	}
}

package repair

import (
	"context"

	"airlift/bundle/head"
)

// A Report is the damage of one file.
type Report struct {
	Ranges []Range // in order; adjacent damaged pieces are one range
	Pieces int64   // damaged pieces of the payload
	Of     int64   // all pieces of the payload
	// DigestsDamaged means that the digests do not match the trailer. Then each listed piece,
	// or its digest, is damaged.
	DigestsDamaged bool
}

// Bytes is the size of all damaged ranges.
func (r Report) Bytes() (n int64) {
	for _, d := range r.Ranges {
		n += d.Len()
	}
	return n
}

// ScanSize is the number of bytes that Scan compares, or 0 if it will fail.
func ScanSize(c Copy) int64 {
	t, ok := c.trailerBefore(c.Size)
	if !ok {
		return 0
	}
	return reference{trailer: t}.size()
}

// Scan lists all damage in a file, by the file's own trailer and digests. Without an intact
// trailer nothing can be compared; the error has the reason, and carries
// fault.Bundle. compared is called with the number of bytes that were compared.
func Scan(ctx context.Context, c Copy, compared func(n int64)) (*Report, error) {
	t, ok := c.trailerBefore(c.Size)
	if ok && int64(t.FileSize()) == c.Size {
		if frame, ok := c.digests(t); ok {
			return scan(ctx, c, reference{trailer: t, frame: frame}, compared)
		}
	}
	if _, _, err := head.ReadAt(c, c.Size, c.Name); err != nil {
		return nil, err
	}
	if ok && t.IsThin(c.Size) {
		return nil, head.NeedsWhole(c.Name)
	}
	return nil, head.Damaged(c.Name, "the digests of its payload cannot be read")
}

func scan(ctx context.Context, c Copy, r reference, compared func(n int64)) (*Report, error) {
	damaged, err := r.survey(ctx, c, compared)
	if err != nil {
		return nil, err
	}
	report := &Report{Of: r.payload(c).Pieces()}
	for _, s := range damaged {
		report.Ranges = add(report.Ranges, s)
		if s.What == payload {
			report.Pieces++
		}
		report.DigestsDamaged = report.DigestsDamaged || s.What == digests
	}
	return report, nil
}

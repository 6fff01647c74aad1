package repair

import (
	"bytes"
	"crypto/sha256"
	"io"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/head"
	"airlift/internal/fault"
)

// digestsHeaderSize is the size of what precedes the digests in their frame, in bytes.
const digestsHeaderSize = 8

// findReference returns the reference for repairing target with copies. It refuses copies
// of another bundle, and a target that cannot be verified as a copy of the same one.
func findReference(target Copy, copies []Copy) (r reference, err error) {
	t, own := target.trailer(copies)
	found, by := own, target
	for _, c := range copies {
		other, ok := c.trailer(append([]Copy{target}, copies...))
		switch {
		case !ok:
		case !found:
			t, by, found = other, c, true
		case other != t:
			return r, fault.New(fault.Bundle, "%s and %s are different bundles: their trailers differ", by.Name, c.Name).
				Hint("use a copy of the same bundle: compare 'bundle inspect' of both files")
		}
	}
	if !found {
		return r, noTrailer(target)
	}
	if !own {
		same, ok := target.trailerBefore(int64(t.FileSize())) // data was appended
		own = ok && same == t
	}
	r.trailer, r.own = t, own
	fromTarget, ok := r.findDigests(target, copies)
	if !ok {
		return r, fault.New(fault.Bundle, "the digests of the payload are damaged in %s and in every copy", target.Name).Hint("use another copy with --from")
	}
	if !own && !fromTarget && !r.provedByManifest(target) {
		return r, fault.New(fault.Bundle, "cannot verify that %s is a copy of %s: its trailer, digests and manifest are damaged, or it is another bundle", target.Name, by.Name).
			Hint("copy the whole file instead: cp " + by.Name + " " + target.Name)
	}
	return r, nil
}

// noTrailer returns the error for a target without an intact trailer, if no copy has one.
func noTrailer(target Copy) error {
	_, _, err := head.ReadAt(target, target.Size, target.Name)
	return fault.New(fault.Bundle, "no copy has an intact trailer: %w", err).Hint("use another copy with --from, with an intact end")
}

// findDigests sets the reference's digests to the digests that match its trailer. fromTarget
// reports whether they come from the target.
func (r *reference) findDigests(target Copy, copies []Copy) (fromTarget, ok bool) {
	all := append([]Copy{target}, copies...)
	var frames [][]byte
	for n, c := range all {
		frame, ok := c.digests(r.trailer)
		if !ok {
			continue
		}
		if r.trailer.HasDigests(frame) {
			r.frame = frame
			return n == 0, true
		}
		frames = append(frames, frame)
	}
	return false, r.mendDigests(frames, all)
}

// mendDigests puts the digests together from damaged frames and from the pieces. Where two frames
// agree, they are right. Elsewhere a digest that matches a piece is right; without a match, it is
// computed from the first readable piece. At the end, the trailer's sha256 verifies the whole
// result.
func (r *reference) mendDigests(frames [][]byte, copies []Copy) bool {
	if len(frames) == 0 {
		return false
	}
	sums := bytes.Clone(frames[0][digestsHeaderSize:])
	buf := make([]byte, head.PieceSize)
	for at := 0; at < len(sums); at += sha256.Size {
		var candidates [][]byte
		agree := len(frames) > 1
		for _, f := range frames {
			digest := f[digestsHeaderSize+at:][:sha256.Size]
			candidates = append(candidates, digest)
			agree = agree && bytes.Equal(digest, candidates[0])
		}
		if !agree {
			copy(sums[at:], r.digestOf(int64(at/sha256.Size), candidates, copies, buf))
		}
	}
	r.frame = head.EncodeDigests(sums)
	return r.trailer.HasDigests(r.frame)
}

// digestOf returns the candidate that a copy's piece has, or else the first copy's digest,
// or nil if the piece cannot be read.
func (r *reference) digestOf(n int64, candidates [][]byte, copies []Copy, buf []byte) (first []byte) {
	p := r.section(int64(r.trailer.PayloadOffset) + n*head.PieceSize)
	for _, c := range copies {
		piece := buf[:p.Len()]
		if _, err := c.ReadAt(piece, p.First); err != nil {
			continue
		}
		sum := sha256.Sum256(piece)
		for _, candidate := range candidates {
			if bytes.Equal(sum[:], candidate) {
				return candidate
			}
		}
		if first == nil {
			first = sum[:]
		}
	}
	return first
}

// provedByManifest reports whether the target has the reference's manifest at its place, in
// pieces that match their digests. The manifest has the sha256 of every entry, so two files
// with the same manifest have the same contents.
func (r reference) provedByManifest(target Copy) bool {
	t := r.trailer
	if t.ManifestSize > head.MaxManifest {
		return false
	}
	section := r.payload(target).Section(int64(t.PayloadOffset), int64(min(t.HeadSize, t.PayloadSize)))
	z, err := zstd.NewReader(section, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(head.MaxWindow),
		zstd.WithDecoderLowmem(true), zstd.IgnoreChecksum(true))
	if err != nil {
		return false
	}
	defer z.Close()
	size := int64(t.ManifestSize)
	if _, err := io.CopyN(io.Discard, z, head.HeaderLen(size)); err != nil {
		return false
	}
	sum := sha256.New()
	_, err = io.CopyN(sum, z, size)
	return err == nil && [sha256.Size]byte(sum.Sum(nil)) == t.ManifestSHA256
}

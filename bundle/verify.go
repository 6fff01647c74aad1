package bundle

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
)

// Verify reads the whole file and compares everything in it with its digest:
// the install program, every entry, the compressed payload. Open has compared
// the two frames already, so there is no byte in the file that was not looked
// at. The error names the first entry that is damaged and carries
// fault.Bundle.
func (f *File) Verify(ctx context.Context, p Progress) error {
	stub := io.NewSectionReader(f.file, 0, f.PayloadOffset()-headerSize)
	sum := sha256.New()
	if _, err := io.Copy(sum, contextReader{ctx, stub}); err != nil {
		return f.readError(err)
	}
	if [sha256.Size]byte(sum.Sum(nil)) != f.trailer.stubSHA256 {
		return f.damaged("its install program, the first %d bytes, does not match its sha256", stub.Size())
	}

	sum.Reset()
	s, err := f.stream(ctx, sum)
	if err != nil {
		return err
	}
	defer s.Close()
	buf := make([]byte, 256<<10)
	for {
		e, r, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		for err == nil {
			var n int
			n, err = r.Read(buf)
			if p != nil && n > 0 {
				p(e, int64(n))
			}
		}
		if err != io.EOF {
			return err
		}
	}
	if [sha256.Size]byte(sum.Sum(nil)) != f.trailer.payloadSHA256 {
		return f.damaged("%w", errors.New("its payload unpacks to what the manifest says, but its compressed bytes do not match their sha256"))
	}
	return nil
}

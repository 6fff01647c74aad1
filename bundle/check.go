package bundle

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/head"
	"airlift/internal/interrupt"
)

// Check reads the file and compares the launcher and the compressed payload with
// their digests, piece by piece, on all cores. Of a thin file, it compares what is there. It decompresses nothing, so it is much
// faster than Verify, and it finds every byte that a copy has changed. Verify also
// finds mistakes of the builder.
//
// checked counts the compared bytes; it may be nil. The error names the first damaged
// piece in the file and carries fault.Bundle.
func (f *File) Check(ctx context.Context, checked *atomic.Int64) error {
	if checked == nil {
		checked = new(atomic.Int64)
	}
	if err := f.checkLauncher(ctx); err != nil {
		return err
	}
	checked.Add(f.Launcher().Size())

	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	found := make([]error, runtime.GOMAXPROCS(0)) // by worker
	for worker := range found {
		g.Go(func() error {
			buf := make([]byte, min(head.PieceSize, f.PayloadSize()))
			for n := next.Add(1) - 1; n < f.present(); n = next.Add(1) - 1 {
				if err := ctx.Err(); err != nil {
					return err
				}
				piece, err := f.payload.ReadPiece(n, buf)
				if err != nil {
					// Let the other workers finish: their pieces may be earlier in the file.
					next.Store(f.present())
					found[worker] = err
					return nil
				}
				checked.Add(int64(len(piece)))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return checkError(f, found)
}

// checkError returns the error about the first damage in the file.
func checkError(f *File, found []error) error {
	var first *head.DamagedPiece
	for _, err := range found {
		var d *head.DamagedPiece
		switch {
		case err == nil:
		case !errors.As(err, &d):
			return f.readError(err)
		case first == nil || d.First < first.First:
			first = d
		}
	}
	if first == nil {
		return nil
	}
	return f.damaged("%w", first)
}

// CheckSize is the number of bytes that Check compares.
func (f *File) CheckSize() int64 { return f.Launcher().Size() + f.presentSize() }

func (f *File) checkLauncher(ctx context.Context) error {
	launcher := f.Launcher()
	sum := sha256.New()
	if _, err := io.Copy(sum, interrupt.Reader(ctx, launcher)); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return f.readError(err)
	}
	if [sha256.Size]byte(sum.Sum(nil)) != f.trailer.LauncherSHA256 {
		return f.damaged("the launcher (first %d bytes) does not match its sha256", launcher.Size())
	}
	return nil
}

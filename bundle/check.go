package bundle

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"runtime"
	"sync"
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
	var mu sync.Mutex
	var first *head.DamagedPiece
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			buf := make([]byte, min(head.PieceSize, f.PayloadSize()))
			for n := next.Add(1) - 1; n < f.present(); n = next.Add(1) - 1 {
				if err := ctx.Err(); err != nil {
					return err
				}
				piece, err := f.payload.ReadPiece(n, buf)
				var d *head.DamagedPiece
				if errors.As(err, &d) {
					mu.Lock()
					defer mu.Unlock()
					if first == nil || d.First < first.First {
						first = d
					}
					// Let the other workers finish: their pieces may be earlier in the file.
					next.Store(f.present())
					return nil
				}
				if err != nil {
					return f.readError(err)
				}
				checked.Add(int64(len(piece)))
			}
			return nil
		})
	}
	err := g.Wait()
	if err == nil && first != nil {
		err = f.damaged("%w", first)
	}
	return err
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

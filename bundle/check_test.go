package bundle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"airlift/bundle/head"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/seed"
)

// checkCopy flips the bytes at these offsets in a copy of the file and checks the copy.
func checkCopy(t *testing.T, whole []byte, flips ...int) error {
	t.Helper()
	b := append([]byte(nil), whole...)
	for _, at := range flips {
		b[at] ^= 0x10
	}
	path := filepath.Join(t.TempDir(), "install")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Check(t.Context(), nil)
}

// Open and Check find a flipped byte anywhere in the file.
func TestCheckFindsEveryByte(t *testing.T) {
	whole, err := os.ReadFile(newSample().write(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := checkCopy(t, whole); err != nil {
		t.Fatalf("a whole file: %v", err)
	}
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	at := 0
	for ; at < len(whole); at += 1 + random.IntN(200) {
		if err := checkCopy(t, whole, at); fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "" {
			t.Errorf("byte %d of %d flipped: %v", at, len(whole), err)
		}
	}
}

// If several pieces are damaged, the error names the first, regardless of the core that finds
// it.
func TestCheckNamesTheFirst(t *testing.T) {
	path := large().write(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	defer f.Close()
	payload := int(f.PayloadOffset())
	pieces := int(f.PayloadSize() / head.PieceSize)
	if pieces < 8 {
		t.Fatalf("the sample has %d whole pieces", pieces)
	}
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	for range 20 {
		first := random.IntN(pieces - 4)
		var flips []int
		for n := first; n < pieces; n += 1 + random.IntN(3) {
			flips = append(flips, payload+n*head.PieceSize+random.IntN(head.PieceSize))
		}
		begin := payload + first*head.PieceSize
		wantFault(t, checkCopy(t, whole, flips...), fmt.Sprintf("bytes %d to %d of the file", begin, begin+head.PieceSize-1))
	}
}

func TestCheckCountsAndStops(t *testing.T) {
	f := openFile(t, newSample().write(t))
	defer f.Close()
	var checked atomic.Int64
	if err := f.Check(t.Context(), &checked); err != nil || checked.Load() != f.CheckSize() {
		t.Errorf("%d of %d bytes checked, %v", checked.Load(), f.CheckSize(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Check(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

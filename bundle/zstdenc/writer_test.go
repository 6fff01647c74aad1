package zstdenc

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"airlift/scripts/fixtures/rig"
	"github.com/klauspost/compress/zstd"
)

func compress(t testing.TB, window int, pieces ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, window)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// check decodes packed with the decoder of klauspost/compress.
func check(t testing.TB, packed, want []byte) {
	t.Helper()
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got, err := d.DecodeAll(packed, nil); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("klauspost's decoder: %d bytes, want %d; %v", len(got), len(want), err)
	}
}

func checkStock(t testing.TB, packed, want []byte) {
	t.Helper()
	cmd := exec.Command(rig.Tool(t, "zstd"), "-dcq")
	cmd.Stdin = bytes.NewReader(packed)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if got, err := cmd.Output(); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("zstd -d: %d bytes, want %d; %v %s", len(got), len(want), err, errs.String())
	}
}

func inputs(t testing.TB) map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 700_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	skewed := make([]byte, 500_000)
	for i := range skewed {
		skewed[i] = byte(r.ExpFloat64() * 9)
	}
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	self = self[:min(len(self), 2<<20)]
	edited := bytes.Clone(self)
	for range 20_000 {
		edited[r.IntN(len(edited))] ^= byte(1 + r.IntN(255))
	}
	return map[string][]byte{
		"empty": nil, "one byte": {7}, "few bytes": []byte("few"),
		"zeros":      make([]byte, 1_000_000),
		"zero block": make([]byte, blockSize), "two zero blocks": make([]byte, 2*blockSize),
		"noise": noise, "noise, zeros, noise": bytes.Join([][]byte{noise[:200_000], make([]byte, 300_000), noise[:150_000]}, nil),
		"skewed": skewed, "short period": bytes.Repeat([]byte("abcde"), 100_000), "long period": bytes.Repeat(noise[:70_001], 9),
		"program, and edited": append(bytes.Clone(self), edited...),
	}
}

func TestDecodersReadIt(t *testing.T) {
	for name, want := range inputs(t) {
		for _, window := range []int{1 << 20, 8 << 20} {
			packed := compress(t, window, want)
			t.Logf("%s: %d to %d", name, len(want), len(packed))
			check(t, packed, want)
			t.Run("zstd reads it", func(t *testing.T) { checkStock(t, packed, want) })
		}
	}
}

// For every length, the range of its code must contain the length.
func TestCodes(t *testing.T) {
	for n := range uint32(blockSize) {
		if r := literalsLengthCodes[literalsLengthCode(n)]; n < r.base || n >= r.base+1<<r.bits {
			t.Fatalf("%d literals have the code of %v", n, r)
		}
		if r := matchLengthCodes[matchLengthCode(n+minMatch)]; n+minMatch < r.base || n+minMatch >= r.base+1<<r.bits {
			t.Fatalf("a match of %d has the code of %v", n+minMatch, r)
		}
	}
	if last := literalsLengthCodes[35]; last != (codeRange{65536, 16}) {
		t.Errorf("the last code of literals is %v", last)
	}
	if last := matchLengthCodes[52]; last != (codeRange{65539, 16}) {
		t.Errorf("the last code of matches is %v", last)
	}
}

// The sizes of the writes must not change the result.
func TestPiecesDoNotMatter(t *testing.T) {
	want := inputs(t)["program, and edited"][:3_000_000]
	whole := compress(t, 1<<20, want)
	var pieces [][]byte
	r := rand.New(rand.NewPCG(3, 4))
	for rest := want; len(rest) > 0; {
		n := min(len(rest), 1+r.IntN(200_000))
		pieces = append(pieces, rest[:n])
		rest = rest[n:]
	}
	if !bytes.Equal(compress(t, 1<<20, pieces...), whole) {
		t.Error("other pieces give other bytes")
	}
}

func TestSmallerThanTheQuickEncoder(t *testing.T) {
	want := inputs(t)["program, and edited"]
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	quick, ours := len(e.EncodeAll(want, nil)), len(compress(t, 16<<20, want))
	t.Logf("%d bytes: %d, and %d", len(want), quick, ours)
	if ours >= quick {
		t.Errorf("%d bytes, the quick encoder makes %d", ours, quick)
	}
}

type failing struct{ after int }

var errFull = errors.New("full")

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestOutputFails(t *testing.T) {
	w, err := NewWriter(&failing{100_000}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(w, io.LimitReader(rand.NewChaCha8([32]byte{}), 10<<20))
	if !errors.Is(err, errFull) {
		t.Errorf("Write: %v", err)
	}
	for range 2 {
		if err := w.Close(); !errors.Is(err, errFull) {
			t.Errorf("Close: %v", err)
		}
	}
	for _, window := range []int{0, -1, 1 << 19, 3 << 20, 256 << 20} {
		if _, err := NewWriter(io.Discard, window); err == nil {
			t.Errorf("a window of %d bytes was accepted", window)
		}
	}
}

// A Write after Close must be an error and must not change the frame.
func TestWriteAfterClose(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, MinWindow)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "text"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := io.WriteString(w, "more"); n != 0 || !errors.Is(err, errClosed) {
			t.Errorf("Write after Close: %d, %v", n, err)
		}
	}
	check(t, out.Bytes(), []byte("text"))
}

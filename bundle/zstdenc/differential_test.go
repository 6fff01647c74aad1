//go:build compare

package zstdenc

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

var (
	bytesFlag = flag.Int64("bytes", 0, "TestDifferential: how many bytes to compress")
	seedFlag  = flag.Uint64("seed", 1, "TestDifferential: seed of the random numbers")
	dataFlag  = flag.String("data", "", "TestDifferential: directories with real files, separated by commas")
)

// TestDifferential compresses -bytes of input and compares it with what two decoders
// return: zstd -d and klauspost's. Half of the input is files from -data, the other half
// is generated. Window, size and writes are random. The same seed and files give the same
// inputs.
func TestDifferential(t *testing.T) {
	var directories [][]string
	for dir := range strings.SplitSeq(*dataFlag, ",") {
		directories = append(directories, regularFiles(t, dir))
	}
	r := rand.New(rand.NewPCG(*seedFlag, 0))
	started := time.Now()
	var count, fromFiles, generated, packedBytes int64
	for fromFiles+generated < *bytesFlag {
		window := 1 << (20 + r.IntN(8))
		var name string
		var want []byte
		if fromFiles <= generated {
			// The last sizes are larger than the smaller windows.
			name, want = readFiles(t, directories[r.IntN(len(directories))], r, 1<<(15+r.IntN(12))+r.IntN(1<<16))
			fromFiles += int64(len(want))
		} else {
			c := adversaries[r.IntN(len(adversaries))]
			name, want = c.name, c.make(r, window)
			generated += int64(len(want))
		}
		packed := compress(t, window, split(want, r)...)
		name = fmt.Sprintf("seed %d, case %d (%s), %d bytes, window %d", *seedFlag, count, name, len(want), window)
		compareDecoders(t, name, packed, want)
		count++
		packedBytes += int64(len(packed))
	}
	t.Logf("seed %d: %d inputs, %d bytes (%d from files, %d generated), compressed to %d bytes, in %.0f s",
		*seedFlag, count, fromFiles+generated, fromFiles, generated, packedBytes, time.Since(started).Seconds())
}

// compareDecoders decodes packed with zstd -d and with klauspost's decoder.
func compareDecoders(t *testing.T, name string, packed, want []byte) {
	t.Helper()
	c := &comparer{want: want}
	var stderr strings.Builder
	cmd := exec.Command("zstd", "-dcq", "--long=27")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(packed), c, &stderr
	if err := cmd.Run(); err != nil || len(c.want) > 0 {
		t.Fatalf("%s: zstd -d: %d bytes are missing; %v %s", name, len(c.want), err, stderr.String())
	}
	d, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c.want = want
	if _, err := io.Copy(c, d); err != nil || len(c.want) > 0 {
		t.Fatalf("%s: klauspost's decoder: %d bytes are missing; %v", name, len(c.want), err)
	}
}

// A comparer accepts only the bytes that it wants.
type comparer struct{ want []byte }

func (c *comparer) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(c.want, p) {
		return 0, fmt.Errorf("other bytes in the last %d", len(c.want))
	}
	c.want = c.want[len(p):]
	return len(p), nil
}

// split returns b in pieces of random sizes, sometimes in one.
func split(b []byte, r *rand.Rand) (pieces [][]byte) {
	most := 1 << r.IntN(24)
	for len(b) > 0 {
		n := min(len(b), 1+r.IntN(most))
		if len(pieces) > 10_000 {
			n = len(b)
		}
		pieces = append(pieces, b[:n])
		b = b[n:]
	}
	return pieces
}

// regularFiles returns the files in a directory and below, in lexical order.
func regularFiles(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	if err != nil || len(names) == 0 {
		t.Fatalf("-data %s: %d files; %v", dir, len(names), err)
	}
	return names
}

// readFiles returns size bytes: files that follow each other, from a random one on.
func readFiles(t *testing.T, names []string, r *rand.Rand, size int) (first string, content []byte) {
	t.Helper()
	start := r.IntN(len(names))
	for i := range len(names) {
		f, err := os.Open(names[(start+i)%len(names)])
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		// Of a large file, other parts than its beginning are read, too.
		if extra := info.Size() - int64(size-len(content)); extra > 0 {
			_, _ = f.Seek(r.Int64N(extra+1), io.SeekStart)
		}
		b, err := io.ReadAll(io.LimitReader(f, int64(size-len(content))))
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if content = append(content, b...); len(content) == size {
			break
		}
	}
	return names[start], content
}

// adversaries generate inputs that are likely to find errors in an encoder.
var adversaries = []struct {
	name string
	make func(r *rand.Rand, window int) []byte
}{
	{"zeros", func(r *rand.Rand, _ int) []byte { return make([]byte, r.IntN(32<<20)) }},
	{"random", func(r *rand.Rand, _ int) []byte { return noise(r, r.IntN(4<<20)) }},
	{"block edge", func(r *rand.Rand, _ int) []byte {
		b := noise(r, (1+r.IntN(4))*blockSize+r.IntN(7)-3)
		clear(b[:r.IntN(len(b))])
		return b
	}},
	{"repeats at the window's edge", func(r *rand.Rand, window int) []byte {
		// Each copy is from one window back, or from a few bytes more or less. What is
		// between is one period of random bytes and cheap.
		n := 1 + r.IntN(8000)
		unit := noise(r, n)
		period := 1 + r.IntN(500)
		between := bytes.Repeat(noise(r, period), window/period+1)
		b := bytes.Clone(unit)
		for range 1 + 8*(2<<20/window) {
			b = append(b, between[:window-n+r.IntN(7)-3]...)
			b = append(b, unit...)
		}
		return b
	}},
	{"a period of about the window", func(r *rand.Rand, window int) []byte {
		period := min(window, 8<<20) + r.IntN(7) - 3
		return bytes.Repeat(noise(r, period), 3)
	}},
	{"near matches", func(r *rand.Rand, _ int) []byte {
		unit, every := noise(r, 1+r.IntN(200_000)), 2+r.IntN(200)
		var b []byte
		for len(b) < 4<<20 {
			start := len(b)
			b = append(b, unit...)
			for i := start + r.IntN(every); i < len(b); i += 1 + r.IntN(every) {
				b[i] += byte(1 + r.IntN(255))
			}
		}
		return b
	}},
	{"tiny alphabet", func(r *rand.Rand, _ int) []byte {
		b, letters := make([]byte, r.IntN(2<<20)), 2+r.IntN(4)
		for i := range b {
			b[i] = byte(r.IntN(letters))
		}
		return b
	}},
	{"alternating bytes", func(r *rand.Rand, _ int) []byte {
		return bytes.Repeat(noise(r, 1+r.IntN(9)), r.IntN(4<<20))
	}},
	{"alternating blocks", func(r *rand.Rand, _ int) []byte {
		var b []byte
		text := skewed(r, 3*blockSize)
		for range 20 {
			b = append(b, noise(r, r.IntN(2*blockSize))...)
			b = append(b, make([]byte, r.IntN(2*blockSize))...)
			from := r.IntN(2 * blockSize)
			b = append(b, text[from:from+r.IntN(blockSize)]...)
		}
		return b
	}},
	{"matches of a whole block", func(r *rand.Rand, _ int) []byte {
		unit := noise(r, blockSize+r.IntN(5)-2)
		b := bytes.Repeat(unit, 20+r.IntN(100))
		for range r.IntN(10) {
			b[r.IntN(len(b))] ^= 1
		}
		return b
	}},
	{"only literals", func(r *rand.Rand, _ int) []byte { return skewed(r, r.IntN(4<<20)) }},
	{"long literals, then a match", func(r *rand.Rand, _ int) []byte {
		b := skewed(r, 100)
		for range 30 {
			b = append(b, skewed(r, 60_000+r.IntN(80_000))...)
			b = append(b, b[:50+r.IntN(50)]...)
		}
		return b
	}},
	{"very many sequences", func(r *rand.Rand, _ int) []byte {
		// Of four bytes, one differs: a literal and a match of three bytes. Before them
		// comes a longer match, so that a repeat offset has the distance.
		period := 4 * (100 + r.IntN(400))
		b := noise(r, period)
		b = append(b, b[:100]...)
		for len(b) < 1<<20 {
			b = append(b, byte(r.Uint32()))
			b = append(b, b[len(b)-period:][:3]...)
		}
		return b
	}},
	{"one literal again and again", func(r *rand.Rand, _ int) []byte {
		unit, length := noise(r, blockSize), 40+r.IntN(200)
		b := bytes.Clone(unit)
		for len(b) < (2+r.IntN(4))*blockSize {
			from := r.IntN(len(unit) - length)
			b = append(append(b, unit[from:from+length]...), 'x')
		}
		return b
	}},
	{"the same bytes in another order", func(r *rand.Rand, _ int) []byte {
		unit := skewed(r, blockSize) // so the Huffman tree is the same for every block
		var b []byte
		for range 1 + r.IntN(20) {
			r.Shuffle(len(unit), func(i, j int) { unit[i], unit[j] = unit[j], unit[i] })
			b = append(b, unit...)
		}
		return b
	}},
	{"few sequences", func(r *rand.Rand, _ int) []byte {
		var b []byte
		for range 100 {
			b = append(b, noise(r, r.IntN(50))...)
			for range r.IntN(10) {
				b = append(b, b[r.IntN(len(b)+1):]...)
				b = b[:min(len(b), 1<<20)]
			}
		}
		return b
	}},
	{"instructions", func(r *rand.Rand, _ int) []byte { return build(noise(r, 60), 4<<20) }},
}

// noise returns n random bytes.
func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}).Read(b)
	return b
}

// skewed returns n random bytes that a Huffman code makes smaller.
func skewed(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(bits.LeadingZeros64(r.Uint64())<<4 | r.IntN(16))
	}
	return b
}

// TestGeneratedInputs compresses each kind of generated input, with the smallest window.
// Together they must make the encoder write every form that it can write, or the comparison
// would prove little.
func TestGeneratedInputs(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range adversaries {
		r := rand.New(rand.NewPCG(1, 1))
		want := c.make(r, MinWindow)
		want = want[:min(len(want), 5<<18)]
		packed := compress(t, MinWindow, split(want, r)...)
		compareDecoders(t, c.name, packed, want)
		t.Logf("%s: %d to %d", c.name, len(want), len(packed))
		forms(t, packed, seen)
	}

	// Sizes at the edges of blocks, of headers and of the first lookups.
	r := rand.New(rand.NewPCG(1, 2))
	letters := noise(r, 2*blockSize+1)
	for i := range letters {
		letters[i] %= 24
	}
	var sizes []int
	for n := range 20 {
		sizes = append(sizes, n)
	}
	for _, edge := range []int{32, 64, 256, 1 << 10, 1 << 12, 1 << 14, blockSize, 2 * blockSize} {
		sizes = append(sizes, edge-1, edge, edge+1)
	}
	for _, whole := range [][]byte{make([]byte, len(letters)), noise(r, len(letters)), letters} {
		for _, n := range sizes {
			packed := compress(t, MinWindow, whole[:n])
			compareDecoders(t, fmt.Sprint(n, " bytes"), packed, whole[:n])
			forms(t, packed, seen)
		}
	}

	// The parser would encode these blocks as matches, so they come from the blockWriter.
	for _, n := range []int{64, 4095, 4096, blockSize} {
		packed := newBlockWriter().compress(nil, bytes.Repeat([]byte{'x'}, n), nil)
		frame := append(blockHeader(frameHeader(MinWindow), true, compressedBlock, len(packed)), packed...)
		frame[4] = 0 // no checksum
		compareDecoders(t, fmt.Sprint("one byte, ", n, " times"), frame, bytes.Repeat([]byte{'x'}, n))
		forms(t, append(frame, 0, 0, 0, 0), seen)
	}
	checkForms(t, seen)
}

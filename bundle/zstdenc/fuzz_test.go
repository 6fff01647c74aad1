package zstdenc

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// fuzzLimit is the maximum size of a fuzzed input: more than the smallest window, so that
// matches at its edge and places that the ring has overwritten occur.
const fuzzLimit = 5 << 18

// FuzzWriter compresses an input and compares it with what klauspost's decoder returns.
//
// The input is not the fuzzed bytes themselves, because they are too few to fill a block.
// The fuzzed bytes are a list of instructions for build.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("\x00abcabcabcabcabcabcabcabc"), uint8(0), uint32(1000))
	// Random bytes, then copies from one window back, from one byte less and one more.
	f.Add([]byte{193, 129, 13, 0, 194, 128, 13, 0, 64, 4, 0, 194, 128, 13, 255, 64, 4, 0, 194, 128, 13, 1, 64, 4, 0}, uint8(0), uint32(77))
	// Short matches with a literal between them: many sequences in a block.
	f.Add([]byte{1, 32, 5, 0, 5, 32, 5, 0, 4, 1, 5, 32, 5, 0, 3, 0}, uint8(1), uint32(1))
	f.Add([]byte{4, 1, 255, 6, 0, 6, 255, 4, 2, 255, 6, 0, 6, 3}, uint8(2), uint32(1<<20))
	f.Add([]byte{195, 7, 129, 10, 1, 7, 100, 4, 0}, uint8(3), uint32(131072))
	f.Fuzz(func(t *testing.T, program []byte, window uint8, chunk uint32) {
		// go test ends an input after ten seconds.
		want := build(program[:min(len(program), 200)], fuzzLimit)
		var chunks [][]byte
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+int(chunk%(1<<21)))
			if len(chunks) > 1000 { // tiny writes only at the beginning
				n = len(rest)
			}
			chunks = append(chunks, rest[:n])
			rest = rest[n:]
		}
		packed := compress(t, 1<<20<<(window%3), chunks...)
		if most := len(want) + 3*(len(want)/blockSize+1) + 10; len(packed) > most {
			t.Errorf("%d bytes became %d, more than raw blocks have", len(want), len(packed))
		}
		checkFast(t, packed, want)
	})
}

// fuzzDecoder is shared, because a decoder for each input takes most of the time.
var fuzzDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
})

func checkFast(t testing.TB, packed, want []byte) {
	t.Helper()
	d, err := fuzzDecoder()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.DecodeAll(packed, make([]byte, 0, len(want))); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("klauspost's decoder: %d bytes, want %d; %v", len(got), len(want), err)
	}
}

// build returns the data that the instructions describe, at most limit bytes. Each
// instruction is one byte, and operands follow it. Missing operands are zero.
func build(program []byte, limit int) []byte {
	var out []byte
	number := func(size int) int {
		var b [8]byte
		program = program[copy(b[:size], program):]
		return int(binary.LittleEndian.Uint64(b[:]))
	}
	again := func(distance, n int) { // copies byte by byte: a copy may overlap itself
		if distance < 1 || distance > len(out) {
			return
		}
		for range min(n, limit-len(out)) {
			out = append(out, out[len(out)-distance])
		}
	}
	op := 0
	size := func() int {
		shift := 9 // up to 64 KiB
		if op >= 192 {
			shift = 14 // up to more than the smallest window
		}
		return max(0, number(1)<<(number(1)%shift)+int(int8(number(1))))
	}
	for len(program) > 0 && len(out) < limit {
		switch op = number(1); op % 8 {
		case 0: // the other bytes as they are
			return append(out, program[:min(len(program), limit-len(out))]...)
		case 1: // random bytes
			r := rand.NewChaCha8([32]byte{byte(len(out)), byte(op)})
			b := make([]byte, min(size(), limit-len(out)))
			_, _ = r.Read(b)
			out = append(out, b...)
		case 2: // a copy
			again(size(), size())
		case 3: // one byte, repeated
			out = append(out, bytes.Repeat([]byte{byte(number(1))}, min(size(), limit-len(out)))...)
		case 4: // random bytes of a small alphabet
			r := rand.New(rand.NewPCG(uint64(len(out)), uint64(op)))
			letters := number(1) + 1
			for range min(size(), limit-len(out)) {
				out = append(out, byte(r.IntN(letters)))
			}
		case 5: // short copies from random distances, with literals between them
			r := rand.New(rand.NewPCG(uint64(len(out)), uint64(op)))
			distance, n, literals := size(), number(1)%64, number(1)%8
			for range 1 + min(5000, distance) {
				again(1+r.IntN(distance+1), n)
				for range min(literals, limit-len(out)) {
					out = append(out, byte(r.Uint32()))
				}
			}
		case 6: // a copy of everything, with changed bytes
			r := rand.New(rand.NewPCG(uint64(len(out)), uint64(op)))
			every := 1 + number(1)*16
			b := bytes.Clone(out[:min(len(out), limit-len(out))])
			for i := r.IntN(every); i < len(b); i += 1 + r.IntN(every) {
				b[i] ^= 1 << r.IntN(8)
			}
			out = append(out, b...)
		case 7: // a counter, little endian
			for i := range min(size(), limit-len(out)) / 4 {
				out = binary.LittleEndian.AppendUint32(out, uint32(i))
			}
		}
	}
	return out
}

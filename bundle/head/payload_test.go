package head

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"airlift/internal/fault"
)

// writePayload writes a file with a payload at an offset, and returns its trailer.
func writePayload(t *testing.T, payload []byte) (path string, tr Trailer) {
	t.Helper()
	const before = 700
	var d Digester
	for rest := payload; len(rest) > 0; { // in writes of many sizes
		n := min(len(rest), 1+len(rest)%70_000)
		if _, err := d.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	digests, sum := d.Encode()
	path = filepath.Join(t.TempDir(), "install")
	if err := os.WriteFile(path, bytes.Join([][]byte{make([]byte, before), payload, digests}, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, Trailer{PayloadOffset: before, PayloadSize: uint64(len(payload)), DigestsSHA256: sum}
}

func open(t *testing.T, path string, tr Trailer) (*Payload, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return OpenPayload(f, path, tr)
}

func random(size int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(size)))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// The digests equal the output of sha256sum for the pieces.
func TestDigests(t *testing.T) {
	for _, size := range []int{1, PieceSize - 1, PieceSize, PieceSize + 1, 3 * PieceSize, 3*PieceSize + 17} {
		payload := random(size)
		path, tr := writePayload(t, payload)
		script := fmt.Sprintf("set -o pipefail; head -c %d %s | tail -c %d | split -b %d --filter sha256sum | cut -c 1-64", int(tr.PayloadOffset)+size, path, size, PieceSize)
		out, err := exec.Command("bash", "-c", script).Output()
		if err != nil {
			t.Fatal(err)
		}
		p, err := open(t, path, tr)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.ReplaceAll(string(out), "\n", ""); fmt.Sprintf("%x", p.digests) != want {
			t.Errorf("%d bytes: digests %x, sha256sum says %s", size, p.digests, want)
		}
		if i, err := os.Stat(path); err != nil || i.Size() != int64(tr.PayloadOffset+tr.PayloadSize+DigestsSize(tr.PayloadSize)) {
			t.Errorf("%d bytes: the file has %d, %v", size, i.Size(), err)
		}
		for _, c := range [][2]int{{0, size}, {0, 1}, {size - 1, size}, {size / 3, size / 2}, {size / 2, size / 2}, {PieceSize, size}, {0, PieceSize}} {
			from, to := min(c[0], size), min(c[1], size)
			if err := iotest.TestReader(p.Section(int64(tr.PayloadOffset)+int64(from), int64(to-from)), payload[from:to]); err != nil {
				t.Errorf("%d to %d of %d: %v", from, to, size, err)
			}
		}
	}
}

// No byte of a damaged piece is returned, and all bytes of the others are.
func TestDamagedPieces(t *testing.T) {
	payload := random(3*PieceSize + 17)
	for _, at := range []int{0, PieceSize - 1, PieceSize, 3*PieceSize - 1, 3 * PieceSize, len(payload) - 1} {
		path, tr := writePayload(t, payload)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[int(tr.PayloadOffset)+at] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := open(t, path, tr)
		if err != nil {
			t.Fatal(err)
		}
		begin := at / PieceSize * PieceSize
		end := min(begin+PieceSize, len(payload))
		want := fmt.Sprintf("bytes %d to %d of the file do not match their sha256", 700+begin, 700+end-1)
		got, err := io.ReadAll(p.Section(700, int64(len(payload))))
		if err == nil || err.Error() != want || !bytes.Equal(got, payload[:begin]) {
			t.Errorf("byte %d flipped: %d bytes, %v; want %d and %q", at, len(got), err, begin, want)
		}
		got, err = io.ReadAll(p.Section(700+int64(end), int64(len(payload)-end)))
		if err != nil || !bytes.Equal(got, payload[end:]) {
			t.Errorf("byte %d flipped: behind its piece %d bytes, %v", at, len(got), err)
		}
	}
	// Digests that do not match the trailer.
	path, tr := writePayload(t, payload)
	tr.DigestsSHA256[5]++
	_, err := open(t, path, tr)
	if fault.ExitCode(err) != fault.Bundle || !strings.Contains(err.Error(), "the digests of its payload (136 bytes at offset 787149) do not match") {
		t.Errorf("other digests: %v", err)
	}
	if err := os.Truncate(path, 787_200); err != nil {
		t.Fatal(err)
	}
	if _, err = open(t, path, tr); !errors.Is(err, io.EOF) || fault.ExitCode(err) != fault.Bundle {
		t.Errorf("digests cut short: %v", err)
	}
}

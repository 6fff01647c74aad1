package encoder_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	kgzip "github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/pgzip"

	"airlift/bundle/encoder"
	"airlift/scripts/fixtures/rig"
)

// layer returns content like that of a layer: text with repetitions, and parts that cannot
// be compressed.
func layer(size int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(size)))
	var b bytes.Buffer
	for b.Len() < size {
		if r.IntN(8) == 0 {
			for range r.IntN(3000) {
				b.WriteByte(byte(r.Uint32()))
			}
		}
		fmt.Fprintf(&b, "usr/lib/python3/dist-packages/module%d/file%d.py 0644 %d\n", r.IntN(50), r.IntN(2000), r.IntN(1e6))
	}
	return b.Bytes()[:size]
}

func opener(b []byte) encoder.Opener {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

// reproduce finds the recipe of blob and compares what it gives.
func reproduce(t *testing.T, blob, content []byte) (encoder.Recipe, bool) {
	t.Helper()
	r, ok, err := encoder.Find(t.Context(), opener(blob), opener(content))
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return r, false
	}
	var again bytes.Buffer
	w, err := r.NewWriter(&again)
	if err == nil {
		_, err = io.Copy(w, bytes.NewReader(content))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), blob) {
		t.Errorf("%s gives other bytes", r.Encoder)
	}
	if encoder.HasHeader(r.Encoder) && encoder.CheckHeader(r.Header) != nil {
		t.Errorf("header %x: %v", r.Header, encoder.CheckHeader(r.Header))
	}
	return r, true
}

// The last is longer than what Find compares with every encoder.
var sizes = []int{0, 1, 1000, 1_200_000}

func compressed(t *testing.T, content []byte, create func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := create(&b)
	if err != nil {
		t.Fatal(err)
	}
	// As a tar writer writes: many small pieces.
	for rest := content; err == nil && len(rest) > 0; {
		n := min(len(rest), 5000)
		_, err = w.Write(rest[:n])
		rest = rest[n:]
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The libraries write their own headers here, with the fields that builders of images set.
func TestFindLibraries(t *testing.T) {
	at := time.Unix(1700000000, 0)
	for name, create := range map[string]func(io.Writer) (io.WriteCloser, error){
		"go default":     func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		"go best":        func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.BestCompression) },
		"go fast":        func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.BestSpeed) },
		"go huffman":     func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.HuffmanOnly) },
		"go stored":      func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.NoCompression) },
		"klauspost":      func(w io.Writer) (io.WriteCloser, error) { return kgzip.NewWriter(w), nil },
		"klauspost best": func(w io.Writer) (io.WriteCloser, error) { return kgzip.NewWriterLevel(w, 9) },
		"pgzip":          func(w io.Writer) (io.WriteCloser, error) { return pgzip.NewWriter(w), nil },
		"pgzip 2":        func(w io.Writer) (io.WriteCloser, error) { return pgzip.NewWriterLevel(w, 2) },
		"zstd":           func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
		"zstd best": func(w io.Writer) (io.WriteCloser, error) {
			return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
		},
		"zstd 2 at a time": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w, zstd.WithEncoderConcurrency(2)) },
		"pgzip blocks": func(w io.Writer) (io.WriteCloser, error) {
			z := pgzip.NewWriter(w)
			return z, z.SetConcurrency(250_000, 4)
		},
		"name and time": func(w io.Writer) (io.WriteCloser, error) {
			z := gzip.NewWriter(w)
			z.Name, z.Comment, z.ModTime, z.OS, z.Extra = "layer.tar", "a comment", at, 3, []byte("extra")
			return z, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range sizes {
				content := layer(size)
				blob := compressed(t, content, create)
				if r, ok := reproduce(t, blob, content); !ok {
					t.Errorf("%d bytes: no encoder was found", size)
				} else {
					t.Logf("%d bytes: %s", size, r.Encoder)
				}
				// Nothing may be accepted that is not the blob.
				if size != 1000 {
					continue
				}
				for _, at := range []int{len(blob) - 1, len(blob) / 2, 100} {
					other := bytes.Clone(blob)
					other[at] ^= 1
					if r, ok := reproduce(t, other, content); ok {
						t.Errorf("%d bytes: %s reproduces a blob that was changed at %d", size, r.Encoder, at)
					}
				}
				for _, other := range [][]byte{blob[:len(blob)-1], append(bytes.Clone(blob), 0)} {
					if r, ok := reproduce(t, other, content); ok {
						t.Errorf("%d bytes: %s reproduces a blob of another length", size, r.Encoder)
					}
				}
			}
		})
	}
}

// Two members are not what one writer gives.
func TestFindMembers(t *testing.T) {
	create := func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
	content := layer(100_000)
	blob := append(compressed(t, content[:50_000], create), compressed(t, content[50_000:], create)...)
	if r, ok := reproduce(t, blob, content); ok {
		t.Errorf("%s reproduces two members", r.Encoder)
	}
}

// Real pigz and real zlib, which bsdtar uses. On one processor, pigz keeps its state from block to
// block, which changes its bytes at the levels 1 to 3.
func TestFindZlib(t *testing.T) {
	pigz, bsdtar := rig.Tool(t, "pigz"), rig.Tool(t, "bsdtar")
	dir := t.TempDir()
	path := filepath.Join(dir, "layer")
	for _, size := range append(sizes, 128<<10, 128<<10+1, 256<<10, 3_000_001) {
		if err := os.WriteFile(path, layer(size), 0o600); err != nil {
			t.Fatal(err)
		}
		for level := 1; level <= 9; level++ {
			commands := map[string]string{
				"pigz": `"$1" -c -p 2 -$4 "$2"`,
				// bsdtar adds zeros to an archive that is not a file.
				"zlib": `"$0" -cPzf "$3" --options gzip:compression-level=$4 "$2" && cat "$3"`,
			}
			if level > 3 {
				commands["pigz alone"] = `"$1" -c -p 1 -$4 "$2"`
			}
			for name, script := range commands {
				blob, err := exec.Command("sh", "-ec", script, bsdtar, pigz, path, filepath.Join(dir, "archive"), strconv.Itoa(level)).Output()
				if err != nil {
					t.Fatal(err)
				}
				z, err := gzip.NewReader(bytes.NewReader(blob))
				if err != nil {
					t.Fatal(err)
				}
				content, err := io.ReadAll(z)
				if err != nil {
					t.Fatal(err)
				}
				r, ok := reproduce(t, blob, content)
				family, _, _ := strings.Cut(name, " ")
				// A short layer has the same bytes with several encoders.
				if !ok || size > 300_000 && r.Encoder != fmt.Sprintf("%s-%d", family, level) {
					t.Errorf("%s, level %d, %d bytes: found %q", name, level, size, r.Encoder)
				}
			}
		}
	}
}

// Stock gzip has its own encoder, which no library has.
func TestFindStockGzip(t *testing.T) {
	gzip := rig.Tool(t, "gzip")
	path := filepath.Join(t.TempDir(), "layer.tar")
	content := layer(100_000)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"-1", "-6", "-9"} {
		blob, err := exec.Command(gzip, "-c", level, path).Output()
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := reproduce(t, blob, content); ok {
			t.Logf("gzip %s: %s", level, r.Encoder)
		}
	}
}

func TestFindReportsErrors(t *testing.T) {
	broken := errors.New("broken disk")
	content := layer(100_000)
	blob := compressed(t, content, func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil })
	fails := func() (io.ReadCloser, error) { return nil, broken }
	if _, ok, err := encoder.Find(t.Context(), fails, opener(content)); ok || !errors.Is(err, broken) {
		t.Errorf("ok = %v, err = %v", ok, err)
	}
	if _, ok, err := encoder.Find(t.Context(), opener(blob), fails); ok || !errors.Is(err, broken) {
		t.Errorf("ok = %v, err = %v", ok, err)
	}
}

func TestNewWriterRefusesUnknownEncoders(t *testing.T) {
	for _, name := range []string{"", "go-gzip", "go-gzip-10", "go-gzip-06", "klauspost-pgzip-6", "klauspost-pgzip-6-1", "klauspost-zstd-5", "zlib", "zlib-0", "pigz-10"} {
		if w, err := (encoder.Recipe{Encoder: name}).NewWriter(io.Discard); err == nil {
			t.Errorf("%q: %T", name, w)
		}
	}
}

// FuzzFind changes blobs and headers.
func FuzzFind(f *testing.F) {
	content := layer(20_000)
	for _, name := range []string{"go-gzip-6", "klauspost-gzip-5", "zlib-6", "pigz-9", "klauspost-zstd-2"} {
		var b bytes.Buffer
		w, err := encoder.Recipe{Encoder: name, Header: []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}}.NewWriter(&b)
		if err == nil {
			_, err = w.Write(content)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{0x1f, 0x8b, 8, 0xff, 0, 0, 0, 0, 0, 255, 2, 0})
	f.Fuzz(func(t *testing.T, blob []byte) { reproduce(t, blob, content) })
}

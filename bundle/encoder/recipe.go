package encoder

import (
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	kflate "github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/pgzip"
)

// A Recipe describes how to compress a layer.
type Recipe struct {
	// Encoder is the name of an encoder with its options: "go-gzip-6".
	Encoder string
	// Header is the header of a gzip blob. It is empty for zstd.
	Header []byte
}

// Families of encoders. The numbers that follow are the level and, for pgzip, the size of a
// block in bytes.
const (
	goGzip        = "go-gzip"         // compress/gzip of Go 1.26, see hasGo126: docker, buildkit, containerd, ko
	klauspostGzip = "klauspost-gzip"  // github.com/klauspost/compress/gzip
	pGzip         = "klauspost-pgzip" // github.com/klauspost/pgzip: podman, buildah, skopeo
	klauspostZstd = "klauspost-zstd"  // github.com/klauspost/compress/zstd
	zlibGzip      = "zlib"            // zlib: Python, bsdtar
	pigzGzip      = "pigz"            // pigz on several processors
)

// pgzipBlocks are the sizes of blocks in use: the library's current size, the size in its first
// versions, and the size in pigz.
var pgzipBlocks = []int{1 << 20, 250_000, 128 << 10}

// gzipLevels are in the order in which they are tried. The first is the default of Go.
var gzipLevels = []int{6, 9, 1, 5, 4, 3, 7, 8, 2, -2, 0}

type variant struct {
	family string
	level  int
	block  int // of pgzip, in bytes
}

func (v variant) String() string {
	if v.family == pGzip {
		return fmt.Sprintf("%s-%d-%d", v.family, v.level, v.block)
	}
	return fmt.Sprintf("%s-%d", v.family, v.level)
}

// variants lists all encoders, in the order in which they are tried.
var variants = sync.OnceValue(func() (list []variant) {
	for _, family := range []string{goGzip, klauspostGzip} {
		for _, level := range gzipLevels {
			list = append(list, variant{family, level, 0})
		}
	}
	for _, block := range pgzipBlocks {
		for _, level := range gzipLevels {
			list = append(list, variant{pGzip, level, block})
		}
	}
	for level := 1; level <= 9; level++ {
		list = append(list, variant{zlibGzip, level, 0}, variant{pigzGzip, level, 0})
	}
	for level := 1; level <= 4; level++ {
		list = append(list, variant{klauspostZstd, level, 0})
	}
	return list
})

func named(name string) (v variant, ok bool) {
	n := slices.IndexFunc(variants(), func(v variant) bool { return v.String() == name })
	if n < 0 {
		return v, false
	}
	return variants()[n], true
}

// Known reports whether this package has the encoder.
func Known(name string) bool {
	_, ok := named(name)
	return ok
}

// HasHeader reports whether the encoder writes gzip.
func HasHeader(name string) bool {
	v, ok := named(name)
	return ok && v.family != klauspostZstd
}

// NewWriter returns a writer that compresses to w. The caller must Close it.
func (r Recipe) NewWriter(w io.Writer) (io.WriteCloser, error) {
	v, ok := named(r.Encoder)
	switch {
	case !ok:
		return nil, fmt.Errorf("the encoder %q is not known", r.Encoder)
	case v.family == goGzip && !hasGo126():
		return nil, errOtherGo
	case v.family == klauspostZstd:
		// More goroutines would not change the output.
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.EncoderLevel(v.level)), zstd.WithEncoderConcurrency(1))
	}
	if _, err := w.Write(r.Header); err != nil {
		return nil, err
	}
	var body io.WriteCloser
	var err error
	switch v.family {
	case goGzip:
		body, err = flate.NewWriter(w, v.level)
	case klauspostGzip:
		body, err = kflate.NewWriter(w, v.level)
	case zlibGzip:
		body, err = newZlibWriter(w, v.level)
	case pigzGzip:
		body, err = newPigzWriter(w, v.level)
	default: // pgzip writes the header and the trailer itself
		z, err := pgzip.NewWriterLevel(&skipper{w: w, skip: pgzipHeader}, v.level)
		if err != nil {
			return nil, err
		}
		return z, z.SetConcurrency(v.block, 1)
	}
	return &gzipWriter{w: w, body: body}, err
}

// errOtherGo is the error of a build whose Go cannot compress a layer to upstream's bytes.
var errOtherGo = errors.New("this build has another version of Go's gzip encoder than the layer was compressed with (Go 1.26): use the command that wrote the file")

// go126 is the sha256 of what Go 1.26 makes of the sample of hasGo126, all levels in turn.
const go126 = "8cccd7d0bed058e47a1f4dd3481c7cdf5d259f5702d57e6d42bb9831c53aacde"

// hasGo126 reports whether the compress/flate of this build gives the bytes that Go 1.26 gives. Go does not promise it for other
// versions, and go.mod names only the oldest one.
var hasGo126 = sync.OnceValue(func() bool {
	sample, x := []byte(nil), uint32(1)
	for len(sample) < 100_000 {
		x = x*1664525 + 1013904223 // a linear congruential generator: any fixed text with repetitions would do
		sample = fmt.Appendf(sample, "usr/lib/%d/file%d %x\n", x>>28, x>>20, x)
	}
	sum := sha256.New()
	for _, level := range gzipLevels {
		z, err := flate.NewWriter(sum, level)
		if err != nil {
			return false
		}
		_, _ = z.Write(sample) // a hash returns no error
		_ = z.Close()
	}
	return hex.EncodeToString(sum.Sum(nil)) == go126
})

// pgzipHeader is the size of the header that pgzip writes without a name, comment or extra
// field.
const pgzipHeader = 10

type skipper struct {
	w    io.Writer
	skip int
}

func (s *skipper) Write(p []byte) (int, error) {
	n := min(s.skip, len(p))
	if s.skip -= n; n == len(p) {
		return n, nil
	}
	written, err := s.w.Write(p[n:])
	return n + written, err
}

type gzipWriter struct {
	w    io.Writer
	body io.WriteCloser
	crc  uint32
	size uint32
}

func (g *gzipWriter) Write(p []byte) (int, error) {
	g.crc = crc32.Update(g.crc, crc32.IEEETable, p)
	g.size += uint32(len(p))
	return g.body.Write(p)
}

func (g *gzipWriter) Close() error {
	if err := g.body.Close(); err != nil {
		return err
	}
	var trailer [8]byte
	binary.LittleEndian.PutUint32(trailer[:4], g.crc)
	binary.LittleEndian.PutUint32(trailer[4:], g.size)
	_, err := g.w.Write(trailer[:])
	return err
}

// maxHeader limits the header of a gzip blob: a name and a comment are short.
const maxHeader = 512

var errHeader = errors.New("not a gzip header of at most 512 bytes")

// gzipHeaderSize returns the size of the gzip header at the beginning of b (RFC 1952).
func gzipHeaderSize(b []byte) (int, error) {
	const (
		hasCRC = 1 << (iota + 1)
		hasExtra
		hasName
		hasComment
	)
	if len(b) < 10 || b[0] != 0x1f || b[1] != 0x8b || b[2] != 8 {
		return 0, errHeader
	}
	flags, n := b[3], 10
	if flags&hasExtra != 0 {
		if len(b) < n+2 {
			return 0, errHeader
		}
		n += 2 + int(binary.LittleEndian.Uint16(b[n:]))
	}
	for _, field := range []byte{hasName, hasComment} {
		if flags&field == 0 {
			continue
		}
		if n > len(b) {
			return 0, errHeader
		}
		end := slices.Index(b[n:], 0)
		if end < 0 {
			return 0, errHeader
		}
		n += end + 1
	}
	if flags&hasCRC != 0 {
		n += 2
	}
	if n > len(b) || n > maxHeader {
		return 0, errHeader
	}
	return n, nil
}

// CheckHeader checks that header is exactly the header of a gzip blob.
func CheckHeader(header []byte) error {
	n, err := gzipHeaderSize(header)
	if err == nil && n != len(header) {
		err = errHeader
	}
	return err
}

package encoder

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"airlift/internal/interrupt"
)

// Version changes when Find may find something else than before. A cache of its results depends on it.
// Version 2 stored that no encoder gives a blob, too, when reading was interrupted.
func Version() string {
	if !hasGo126() {
		return "3, without " + goGzip
	}
	return "3"
}

// prefix is how much of the blob is compared with every encoder. It has several blocks of
// each encoder but pgzip.
const prefix = 256 << 10

// An Opener opens content from its beginning.
type Opener func() (io.ReadCloser, error)

// Find returns the recipe that compresses the layer to exactly the bytes of blob. Without an
// error, ok is false if no encoder does.
func Find(ctx context.Context, blob, layer Opener) (r Recipe, ok bool, err error) {
	head, err := readHead(ctx, blob)
	if err != nil {
		return r, false, err
	}
	for _, c := range candidates(head) {
		same, err := compare(ctx, c, opened(head), layer, len(head) == prefix)
		if err == nil && same && len(head) == prefix {
			same, err = compare(ctx, c, blob, layer, false)
		}
		if same || err != nil {
			return c, same && err == nil, err
		}
	}
	return Recipe{}, false, nil
}

func opened(b []byte) Opener {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

func readHead(ctx context.Context, blob Opener) ([]byte, error) {
	r, err := blob()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	head, err := io.ReadAll(io.LimitReader(interrupt.Reader(ctx, r), prefix))
	return head, err
}

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// candidates lists the recipes to try, the most probable first.
func candidates(head []byte) (list []Recipe) {
	n, err := gzipHeaderSize(head)
	switch {
	case bytes.HasPrefix(head, zstdMagic):
		for _, name := range Names() {
			if strings.HasPrefix(name, klauspostZstd) {
				list = append(list, Recipe{Encoder: name})
			}
		}
		return list
	case err != nil:
		return nil
	}
	for _, name := range Names() {
		if family, _ := options(name); HasHeader(name) && (family != goGzip || hasGo126()) {
			list = append(list, Recipe{Encoder: name, Header: bytes.Clone(head[:n])})
		}
	}
	// Encoders write a hint of their level to the field XFL.
	wanted := map[byte]int{2: 9, 4: 1}[head[8]]
	rank := func(r Recipe) int {
		_, numbers := options(r.Encoder)
		if wanted != 0 && numbers[0] == wanted || wanted == 0 && numbers[0] != 9 && numbers[0] != 1 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(x, y Recipe) int { return rank(x) - rank(y) })
	return list
}

var (
	errDiffers = errors.New("the output differs")
	errEnough  = errors.New("the output is as long as what it is compared with")
)

// compare reports whether the recipe compresses the layer to the bytes of blob. If partly is
// set, blob has only the first bytes.
func compare(ctx context.Context, r Recipe, blob, layer Opener, partly bool) (bool, error) {
	want, err := blob()
	if err != nil {
		return false, err
	}
	defer want.Close()
	content, err := layer()
	if err != nil {
		return false, err
	}
	defer content.Close()
	in := &interrupt.Input{Reader: interrupt.Reader(ctx, content)}
	c := &comparer{want: &interrupt.Input{Reader: want}, partly: partly, buf: make([]byte, 64<<10)}
	err = compress(r, c, in)
	c.mu.Lock()
	defer c.mu.Unlock()
	// The output for a part of the layer differs, too. So an error precedes what was compared.
	switch {
	case in.Err != nil:
		return false, in.Err
	case c.want.Err != nil:
		return false, c.want.Err
	case err != nil && !errors.Is(err, errDiffers) && !errors.Is(err, errEnough):
		return false, err
	case c.differs:
		return false, nil
	case c.enough:
		return true, nil
	}
	// The encoder is finished. The blob must be, too.
	n, _ := io.ReadFull(c.want, c.buf[:1])
	return n == 0 && c.want.Err == nil, c.want.Err
}

// compress writes the compressed layer to w. It stops at an error of w.
func compress(r Recipe, w *comparer, layer io.Reader) error {
	z, err := r.NewWriter(w)
	if err != nil {
		return err
	}
	// Small writes find a difference early.
	buf := make([]byte, 128<<10)
	for err == nil && !w.done() {
		var n int
		n, err = layer.Read(buf)
		if n > 0 {
			if _, werr := z.Write(buf[:n]); werr != nil && err == nil {
				err = werr
			}
		}
	}
	if err == io.EOF {
		err = nil
	}
	// Also after an error: pgzip and zstd have goroutines.
	if cerr := z.Close(); err == nil {
		err = cerr
	}
	return err
}

// A comparer compares what is written with want. An encoder may write from its own
// goroutine, and after an error.
type comparer struct {
	want    *interrupt.Input
	buf     []byte
	partly  bool
	mu      sync.Mutex
	differs bool
	enough  bool
}

// done reports whether more output is useless.
func (c *comparer) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.differs || c.enough || c.want.Err != nil
}

func (c *comparer) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for written := 0; written < len(p); {
		switch {
		case c.want.Err != nil:
			return written, c.want.Err
		case c.differs:
			return written, errDiffers
		case c.enough:
			return written, errEnough
		}
		part := p[written:min(len(p), written+len(c.buf))]
		n, err := io.ReadFull(c.want, c.buf[:len(part)])
		switch {
		case c.want.Err != nil:
		case !bytes.Equal(part[:n], c.buf[:n]):
			c.differs = true
		case err != nil && c.partly:
			c.enough = true
		case err != nil:
			c.differs = true // the blob is shorter
		default:
			written += n
		}
	}
	return len(p), nil
}

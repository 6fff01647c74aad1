package encoder

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
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
		for _, v := range variants() {
			if v.family == klauspostZstd {
				list = append(list, Recipe{Encoder: v.String()})
			}
		}
		return list
	case err != nil:
		return nil
	}
	// Encoders write a hint of their level to the field XFL.
	wanted := map[byte]int{2: 9, 4: 1}[head[8]]
	var others []Recipe
	for _, v := range variants() {
		r := Recipe{Encoder: v.String(), Header: bytes.Clone(head[:n])}
		switch {
		case v.family == klauspostZstd, v.family == goGzip && !hasGo126():
		case v.level == wanted, wanted == 0 && v.level != 9 && v.level != 1:
			list = append(list, r)
		default:
			others = append(others, r)
		}
	}
	return append(list, others...)
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
	c := &comparer{want: &interrupt.Input{Reader: want}, partly: partly, buf: make([]byte, 64<<10)}
	z, err := r.NewWriter(c)
	if err == errDiffers || err == errEnough { // its header
		return false, nil
	}
	if err != nil {
		return false, err
	}
	in := interrupt.Reader(ctx, content)
	buf := make([]byte, 128<<10) // small writes find a difference early
	var readErr error
	for err == nil && readErr == nil && c.result() == nil {
		var n int
		n, readErr = in.Read(buf)
		if n > 0 {
			_, err = z.Write(buf[:n])
		}
	}
	// Also after an error: pgzip and zstd have goroutines.
	err = cmp.Or(err, z.Close())
	// The output for a part of the layer differs, too. So an error precedes what was compared.
	if readErr != nil && readErr != io.EOF {
		return false, readErr
	}
	switch result := c.result(); {
	case result == errDiffers, result == errEnough:
		return result == errEnough, nil
	case cmp.Or(result, err) != nil:
		return false, cmp.Or(result, err)
	}
	// The encoder is finished. The blob must be, too.
	n, _ := io.ReadFull(c.want, c.buf[:1])
	return n == 0 && c.want.Err == nil, c.want.Err
}

// A comparer compares what is written with want. An encoder may write from its own
// goroutine, and after an error.
type comparer struct {
	want   *interrupt.Input
	partly bool // want has only the first bytes
	buf    []byte
	mu     sync.Mutex
	err    error // errDiffers, errEnough, or why want cannot be read
}

// result returns why more output is useless.
func (c *comparer) result() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *comparer) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for written := 0; written < len(p) && c.err == nil; {
		part := p[written:min(len(p), written+len(c.buf))]
		n, err := io.ReadFull(c.want, c.buf[:len(part)])
		switch {
		case c.want.Err != nil:
			c.err = c.want.Err
		case !bytes.Equal(part[:n], c.buf[:n]), err != nil && !c.partly: // the blob is shorter
			c.err = errDiffers
		case err != nil:
			c.err = errEnough
		}
		written += n
	}
	if c.err != nil {
		return 0, c.err
	}
	return len(p), nil
}

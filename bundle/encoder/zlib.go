package encoder

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	zlib "modernc.org/z/lib"
)

// bufferSize is the size in bytes of the buffers from and to zlib.
const bufferSize = 128 << 10

// zlibVersion is the version of zlib whose translation is linked. zlib checks only the first number.
// The tests compare with Debian's zlib 1.2.13, which compresses to the same bytes.
const zlibVersion = "1.2.11"

// memLevel is zlib's default, which bsdtar, Python and pigz use.
const memLevel = 8

// A deflater is a stream of zlib's deflate, without a header and a trailer. Its memory is not the
// garbage collector's: close must be called.
type deflater struct {
	w       io.Writer
	tls     *libc.TLS
	stream  uintptr
	in, out uintptr
}

// newDeflater returns a deflater with a window of 15 bits.
func newDeflater(w io.Writer, level int) (*deflater, error) {
	tls := libc.NewTLS()
	d := &deflater{w: w, tls: tls}
	d.stream = libc.Xcalloc(tls, 1, types.Size_t(unsafe.Sizeof(zlib.Z_stream{})))
	d.in, d.out = libc.Xmalloc(tls, bufferSize), libc.Xmalloc(tls, bufferSize)
	version, err := libc.CString(zlibVersion)
	if err != nil || d.stream == 0 || d.in == 0 || d.out == 0 {
		d.free()
		return nil, errors.New("no memory for zlib")
	}
	defer libc.Xfree(tls, version)
	const windowBits = -15 // negative: without zlib's header
	if code := zlib.XdeflateInit2_(tls, d.stream, int32(level), zlib.Z_DEFLATED, windowBits, memLevel, zlib.Z_DEFAULT_STRATEGY, version, int32(unsafe.Sizeof(zlib.Z_stream{}))); code != zlib.Z_OK {
		d.free()
		return nil, fmt.Errorf("deflateInit2 returned %d", code)
	}
	return d, nil
}

// at returns a pointer to zlib's memory, which never moves.
func at(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

func (d *deflater) free() {
	for _, p := range []uintptr{d.stream, d.in, d.out} {
		libc.Xfree(d.tls, p)
	}
	d.tls.Close()
}

func (d *deflater) close() {
	zlib.XdeflateEnd(d.tls, d.stream)
	d.free()
}

// compress compresses p and flushes as zlib's constant requires.
func (d *deflater) compress(p []byte, flush int32) error {
	s := (*zlib.Z_stream)(at(d.stream))
	for {
		n := copy(unsafe.Slice((*byte)(at(d.in)), bufferSize), p)
		p = p[n:]
		now := int32(zlib.Z_NO_FLUSH)
		if len(p) == 0 {
			now = flush
		}
		s.Fnext_in, s.Favail_in = d.in, uint32(n)
		if err := d.drain(s, now); err != nil || len(p) == 0 {
			return err
		}
	}
}

func (d *deflater) drain(s *zlib.Z_stream, flush int32) error {
	for {
		s.Fnext_out, s.Favail_out = d.out, bufferSize
		if code := zlib.Xdeflate(d.tls, d.stream, flush); code < 0 && code != zlib.Z_BUF_ERROR { // no progress was possible
			return fmt.Errorf("deflate returned %d", code)
		}
		done := unsafe.Slice((*byte)(at(d.out)), bufferSize-int(s.Favail_out))
		if _, err := d.w.Write(done); err != nil {
			return err
		}
		if s.Favail_out != 0 {
			return nil
		}
	}
}

// A zlibWriter compresses a stream as one call of zlib's deflate does.
type zlibWriter struct{ d *deflater }

func newZlibWriter(w io.Writer, level int) (*zlibWriter, error) {
	d, err := newDeflater(w, level)
	return &zlibWriter{d}, err
}

func (z *zlibWriter) Write(p []byte) (int, error) {
	if err := z.d.compress(p, zlib.Z_NO_FLUSH); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (z *zlibWriter) Close() error {
	defer z.d.close()
	return z.d.compress(nil, zlib.Z_FINISH)
}

const (
	pigzBlock      = 128 << 10 // pigz's default
	pigzDictionary = 32 << 10  // the window of deflate
)

// A pigzWriter compresses blocks as pigz does on several processors: each by itself, with the end of
// the block before it as its dictionary. On one processor, pigz gives the same bytes from level 4 on.
type pigzWriter struct {
	d          *deflater
	block      []byte // not compressed yet
	dictionary []byte // the end of the block before
}

func newPigzWriter(w io.Writer, level int) (*pigzWriter, error) {
	d, err := newDeflater(w, level)
	return &pigzWriter{d: d}, err
}

func (z *pigzWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(z.block) == pigzBlock { // another one follows
			if err := z.next(false); err != nil {
				return 0, err
			}
		}
		m := min(pigzBlock-len(z.block), len(p))
		z.block = append(z.block, p[:m]...)
		p = p[m:]
	}
	return n, nil
}

func (z *pigzWriter) Close() error {
	defer z.d.close()
	return z.next(true)
}

func (z *pigzWriter) next(last bool) error {
	d := z.d
	if code := zlib.XdeflateReset(d.tls, d.stream); code != zlib.Z_OK {
		return fmt.Errorf("deflateReset returned %d", code)
	}
	if n := len(z.dictionary); n > 0 {
		copy(unsafe.Slice((*byte)(at(d.in)), bufferSize), z.dictionary)
		if code := zlib.XdeflateSetDictionary(d.tls, d.stream, d.in, uint32(n)); code != zlib.Z_OK {
			return fmt.Errorf("deflateSetDictionary returned %d", code)
		}
	}
	if last {
		return d.compress(z.block, zlib.Z_FINISH)
	}
	if err := d.compress(z.block, zlib.Z_BLOCK); err != nil {
		return err
	}
	if err := z.align(); err != nil {
		return err
	}
	z.dictionary = append(z.dictionary[:0], z.block[max(0, len(z.block)-pigzDictionary):]...)
	z.block = z.block[:0]
	return nil
}

// align ends a block at a byte's end: with empty static blocks of ten bits, or with an empty stored
// block if the number of bits is odd.
func (z *pigzWriter) align() error {
	bits, err := z.pending()
	switch {
	case err != nil:
		return err
	case bits&1 != 0:
		return z.d.compress(nil, zlib.Z_SYNC_FLUSH)
	case bits == 0:
		return nil
	}
	for bits != 0 {
		if code := zlib.XdeflatePrime(z.d.tls, z.d.stream, 10, 2); code != zlib.Z_OK {
			return fmt.Errorf("deflatePrime returned %d", code)
		}
		if bits, err = z.pending(); err != nil {
			return err
		}
	}
	return z.d.compress(nil, zlib.Z_BLOCK)
}

// pending returns how many bits of the last byte deflate has not written yet.
func (z *pigzWriter) pending() (bits int32, err error) {
	if code := zlib.XdeflatePending(z.d.tls, z.d.stream, 0, z.d.in); code != zlib.Z_OK {
		return 0, fmt.Errorf("deflatePending returned %d", code)
	}
	return *(*int32)(at(z.d.in)) & 7, nil
}

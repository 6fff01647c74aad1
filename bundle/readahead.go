package bundle

import (
	"errors"
	"io"
	"slices"
)

const (
	// chunkSize is the size in bytes of a chunk, which the unpacking goroutine passes
	// to the reader. It fits into a core's second-level cache.
	chunkSize = 256 << 10

	// chunksAhead limits how many chunks are unpacked before they are read. 2 MiB keep
	// the decoder busy while the reader waits for some milliseconds. That is little
	// compared with the decoder's window.
	chunksAhead = 8
)

// A chunk is a part of an entry's content. The first chunk of each entry is empty
// and announces the entry.
type chunk struct {
	buf  []byte // returned to the free list when data has been read
	data []byte
	last bool  // the entry is complete
	err  error // instead of data: the error that ends the stream, or io.EOF
}

// readAhead is a goroutine that unpacks entries before the caller asks for them.
type readAhead struct {
	unpacker *unpacker
	chunks   chan chunk
	free     chan []byte // buffers that no chunk uses
	quit     chan struct{}
}

// startReadAhead starts with the first part. It discards the content of entries for
// which unwanted returns true, and does not read parts that have only such entries.
// unwanted may be nil.
func startReadAhead(u *unpacker, entries []Entry, unwanted func(Entry) bool) *readAhead {
	a := &readAhead{
		unpacker: u,
		chunks:   make(chan chunk, 2*chunksAhead),
		free:     make(chan []byte, chunksAhead),
		quit:     make(chan struct{}),
	}
	all := make([]byte, chunksAhead*chunkSize)
	for ; len(all) > 0; all = all[chunkSize:] {
		a.free <- all[:chunkSize:chunkSize]
	}
	skip := make([]bool, len(entries))
	for i, e := range entries {
		skip[i] = unwanted != nil && unwanted(e)
	}
	go a.run(entries, skip, unwanted == nil)
	return a
}

// stop ends the goroutine and waits until it has.
func (a *readAhead) stop() {
	close(a.quit)
	for range a.chunks {
	}
}

// run always ends with an error; io.EOF means success.
func (a *readAhead) run(entries []Entry, skip []bool, everything bool) {
	defer close(a.chunks)
	err := a.parts(entries, skip, everything)
	if err == nil {
		err = io.EOF
	}
	a.send(chunk{err: err})
}

// parts reads all parts of the payload, or only the parts with wanted entries.
func (a *readAhead) parts(entries []Entry, skip []bool, everything bool) error {
	if a.unpacker.verify {
		if err := a.head(); err != nil {
			return err
		}
	}
	for name, entries := range partsOf(entries) {
		n := len(entries)
		if (n > 0 || name == ImagesPart) && (everything || slices.Contains(skip[:n], false)) {
			if err := a.part(name, entries, skip[:n]); err != nil {
				return err
			}
		}
		skip = skip[n:]
	}
	return nil
}

// head verifies the head part, whose content is not passed on.
func (a *readAhead) head() error {
	u := a.unpacker
	if err := u.begin(u.file.part(HeadPart)); err != nil {
		return err
	}
	for _, e := range []Entry{manifestEntry(u.file.trailer), u.file.Installer()} {
		if err := u.pass(e); err != nil {
			return err
		}
	}
	return u.end()
}

// part reads one part completely.
func (a *readAhead) part(name string, entries []Entry, skip []bool) error {
	if err := a.unpacker.begin(a.unpacker.file.part(name)); err != nil {
		return err
	}
	for i, e := range entries {
		if err := a.entry(e, skip[i]); err != nil {
			return err
		}
	}
	return a.unpacker.end()
}

// errLeft means that the stream was closed.
var errLeft = errors.New("the stream was closed")

// entry passes on the content of e, or discards it.
func (a *readAhead) entry(e Entry, skip bool) error {
	if err := a.unpacker.open(e); err != nil {
		return err
	}
	if !skip && !a.send(chunk{}) {
		return errLeft
	}
	for {
		var buf []byte
		select {
		case buf = <-a.free:
		case <-a.quit:
			return errLeft
		}
		n, err := fill(a.unpacker, buf)
		if err != nil && err != io.EOF {
			return err
		}
		if skip {
			a.free <- buf
		} else if !a.send(chunk{buf: buf, data: buf[:n], last: err == io.EOF}) {
			return errLeft
		}
		if err == io.EOF {
			return nil
		}
	}
}

// send returns false when the stream was closed.
func (a *readAhead) send(p chunk) bool {
	select {
	case a.chunks <- p:
		return true
	case <-a.quit:
		return false
	}
}

// fill reads until buf is full or r has no more.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}

package bundle

import (
	"errors"
	"io"
	"slices"
)

const (
	// pieceSize is what passes from the unpacking goroutine to the reading one
	// at a time, in bytes. It fits into a core's second-level cache.
	pieceSize = 256 << 10

	// piecesAhead bounds how far unpacking may get ahead of reading. 2 MiB keep
	// the decoder busy while a reader waits some milliseconds for something else,
	// and are little beside the decoder's window.
	piecesAhead = 8
)

// A piece is a part of an entry's content. The first one has none: it says that
// the entry stands in its place.
type piece struct {
	buf  []byte // to be given back when data has been read
	data []byte
	last bool  // the entry is complete
	err  error // instead of data: what ends the stream, io.EOF included
}

// ahead is a goroutine that unpacks entries before somebody asks for them.
type ahead struct {
	unpacker *unpacker
	pieces   chan piece
	free     chan []byte // buffers that no piece holds
	quit     chan struct{}
}

// startAhead begins with the first part. Those of entries that unwanted names
// are passed over, and parts that hold no others are left out; it may be nil.
func startAhead(u *unpacker, entries []Entry, unwanted func(Entry) bool) *ahead {
	a := &ahead{
		unpacker: u,
		pieces:   make(chan piece, 2*piecesAhead),
		free:     make(chan []byte, piecesAhead),
		quit:     make(chan struct{}),
	}
	all := make([]byte, piecesAhead*pieceSize)
	for ; len(all) > 0; all = all[pieceSize:] {
		a.free <- all[:pieceSize:pieceSize]
	}
	skip := make([]bool, len(entries))
	for i, e := range entries {
		skip[i] = unwanted != nil && unwanted(e)
	}
	go a.run(entries, skip, unwanted == nil)
	return a
}

// stop ends the goroutine and waits until it has.
func (a *ahead) stop() {
	close(a.quit)
	for range a.pieces {
	}
}

// run ends with an error in any case; io.EOF is the good one.
func (a *ahead) run(entries []Entry, skip []bool, everything bool) {
	defer close(a.pieces)
	err := a.parts(entries, skip, everything)
	if err == nil {
		err = io.EOF
	}
	a.send(piece{err: err})
}

// parts reads the payload, or what is wanted of it.
func (a *ahead) parts(entries []Entry, skip []bool, everything bool) error {
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

// head verifies the part that nobody reads here.
func (a *ahead) head() error {
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

// part reads one part from end to end.
func (a *ahead) part(name string, entries []Entry, skip []bool) error {
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

// errLeft ends what nobody listens to any more.
var errLeft = errors.New("the stream was left")

// entry passes on e's content, unless it is to be skipped.
func (a *ahead) entry(e Entry, skip bool) error {
	if err := a.unpacker.open(e); err != nil {
		return err
	}
	if !skip && !a.send(piece{}) {
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
		} else if !a.send(piece{buf: buf, data: buf[:n], last: err == io.EOF}) {
			return errLeft
		}
		if err == io.EOF {
			return nil
		}
	}
}

// send returns false when nobody listens any more.
func (a *ahead) send(p piece) bool {
	select {
	case a.pieces <- p:
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

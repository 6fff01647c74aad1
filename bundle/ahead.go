package bundle

import "io"

const (
	// pieceSize is what passes from the unpacking goroutine to the reading one
	// at a time, in bytes. It fits into a core's second-level cache, where the
	// decoder left it and the digest finds it.
	pieceSize = 256 << 10

	// piecesAhead bounds how far unpacking may get ahead of reading. 4 MiB keep
	// the decoder busy while a reader waits some milliseconds for something else,
	// and are little beside the decoder's window.
	piecesAhead = 16
)

// A piece is a part of an entry's content. The first one has none: it says that
// the entry stands in its place.
type piece struct {
	buf  []byte // to be given back when data has been read
	data []byte
	last bool  // the entry is complete and verified
	err  error // instead of data: what ends the stream, io.EOF included
}

// ahead is a goroutine that unpacks and verifies entries before somebody asks
// for them.
type ahead struct {
	unpacker *unpacker
	pieces   chan piece
	free     chan []byte // buffers that no piece holds
	quit     chan struct{}
}

// startAhead begins with the first of entries. Those that unwanted names are
// passed over; it may be nil.
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
	// What nobody reads is the installer, before the entries, and whatever is
	// unwanted. If nothing is, the installer is verified like the rest.
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

func (a *ahead) run(entries []Entry, skip []bool, verify bool) {
	defer close(a.pieces)
	if err := a.unpacker.pass(a.unpacker.file.Installer(), verify); err != nil {
		a.send(piece{err: err})
		return
	}
	for i, e := range entries {
		if !a.entry(e, skip[i]) {
			return
		}
	}
	a.send(piece{err: a.unpacker.end()})
}

// entry passes on e's content, unless it is to be skipped. It returns false
// when that was the end.
func (a *ahead) entry(e Entry, skip bool) bool {
	err := a.unpacker.open(e, !skip)
	if err == nil && !skip && !a.send(piece{}) {
		return false
	}
	for err == nil {
		var buf []byte
		select {
		case buf = <-a.free:
		case <-a.quit:
			return false
		}
		var n int
		n, err = fill(a.unpacker, buf)
		switch {
		case err != nil && err != io.EOF:
		case skip:
			a.free <- buf
		case !a.send(piece{buf: buf, data: buf[:n], last: err == io.EOF}):
			return false
		}
	}
	if err == io.EOF {
		return true
	}
	a.send(piece{err: err})
	return false
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

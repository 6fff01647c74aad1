package ondemand

import (
	"context"
	"io"
	"os"
	"sync"
)

// A spool is a file that one goroutine writes, and others read at the same time.
type spool struct {
	mu      sync.Mutex
	changed *sync.Cond
	file    *os.File // nil before the first byte
	size    int64    // bytes written
	ended   bool
	err     error // why it ended early
}

func newSpool() *spool {
	s := &spool{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// begin sets the file. It must precede Write.
func (s *spool) begin(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = f
}

func (s *spool) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size += int64(n)
	s.changed.Broadcast()
	return n, err
}

// end tells the readers that the file is complete, or why it will not be.
func (s *spool) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.err = true, err
	}
	s.changed.Broadcast()
}

func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
	}
}

// available waits for bytes that follow the offset at. It returns the offset of their end, and io.EOF at the end of
// the file. Of a file with total bytes, the last byte is held back until its digest is known.
func (s *spool) available(ctx context.Context, at, total int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for waits := false; ; s.changed.Wait() {
		size := s.size
		if !s.ended {
			size = min(size, total-1)
		}
		switch {
		case s.err != nil:
			return 0, s.err
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case at < size:
			return size, nil
		case s.ended:
			return 0, io.EOF
		case !waits:
			waits = true
			defer context.AfterFunc(ctx, s.wake)()
		}
	}
}

func (s *spool) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

// reader returns a reader from an offset on, of a file that will have total bytes.
func (s *spool) reader(ctx context.Context, at, total int64) io.Reader {
	return &spoolReader{ctx, s, at, total}
}

type spoolReader struct {
	ctx       context.Context
	spool     *spool
	at, total int64
}

func (r *spoolReader) Read(p []byte) (int, error) {
	end, err := r.spool.available(r.ctx, r.at, r.total)
	if err != nil || len(p) == 0 {
		return 0, err
	}
	n, err := r.spool.file.ReadAt(p[:min(int64(len(p)), end-r.at)], r.at)
	r.at += int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // the file has become shorter
	}
	return n, err
}

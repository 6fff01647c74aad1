package ondemand

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"airlift/bundle"
)

// A pass reads a bundle once, as far as a job needs an entry that lies ahead. There is one pass at a time, because a
// decoder needs up to 128 MiB of memory, the window of the format. Measured on a bundle of 2 GB with that window, ten
// nodes with three streams each, two processors: one pass, 196 MiB at most, and 48 MiB when idle. The mutex of the
// Store guards its fields.
type pass struct {
	file   *bundle.File
	at     int           // index of the last entry that was opened; -1 at the beginning
	jobs   map[*job]bool // whose entries were not read to the end
	over   bool          // it accepts no more jobs
	cancel context.CancelCauseFunc
	ctx    context.Context
	wake   chan struct{} // has an element if jobs were added or finished
	ended  chan struct{} // closed when the file is no longer read
}

// idle is how long a pass waits for another job when no blob is being made. The decoder keeps its memory meanwhile.
const idle = time.Second

// admit begins the work for the jobs that wait, as far as that is possible. If no bundle is being read, the oldest
// job decides which is next. The caller has the mutex.
func (s *Store) admit() {
	for n := 0; n < len(s.waiting); {
		j := s.waiting[n]
		if p := s.pass; p != nil && (p.over || p.ctx.Err() != nil || p.file != j.blob.File || p.at >= j.at) {
			n++
			continue
		}
		switch err := s.reserve(j); {
		case err == errLater:
			n++
		case err != nil:
			s.finish(j, err) // admits the rest
			return
		default:
			s.waiting = append(s.waiting[:n], s.waiting[n+1:]...)
			if s.pass == nil {
				s.begin(j.blob.File)
			}
			s.pass.jobs[j] = true
			close(j.begun)
		}
	}
	if s.pass != nil {
		select {
		case s.pass.wake <- struct{}{}:
		default:
		}
	}
}

func (s *Store) begin(f *bundle.File) {
	p := &pass{file: f, at: -1, jobs: map[*job]bool{}, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(s.ctx)
	s.pass = p
	s.work.Go(func() { s.run(p) })
}

// run reads the bundle, and then begins the next pass if a job waits for one.
func (s *Store) run(p *pass) {
	defer close(p.ended)
	s.Log.Debug("a pass through a bundle begins", "bundle", p.file.Path())
	err := s.read(p)
	if p.ctx.Err() != nil {
		err = context.Cause(p.ctx)
	}
	s.mu.Lock()
	p.over = true
	for j := range p.jobs {
		s.finish(j, cmp.Or(err, errMissing))
	}
	s.mu.Unlock()
	p.cancel(nil)
	debug.FreeOSMemory() // the window, before the next pass needs one
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass = nil
	s.admit()
}

// read passes on the entries that jobs want. Entries that no job wants at the beginning may be wanted when the pass
// reaches them.
func (s *Store) read(p *pass) error {
	m, err := p.file.Manifest()
	if err != nil {
		return err
	}
	at := map[string]int{}
	for n, e := range m.Entries {
		at[e.Name] = n
	}
	isBlob := func(e bundle.Entry) bool { return strings.HasPrefix(e.Name, bundle.BlobDir) }
	err = p.file.Each(p.ctx, isBlob, func(e bundle.Entry, content bundle.Content) error {
		if jobs := s.reach(p, at[e.Name]); len(jobs) > 0 {
			s.pour(p, content, jobs)
		}
		if !s.continues(p) {
			return errOver
		}
		return nil
	})
	if err == errOver {
		return nil
	}
	return err
}

// errOver ends a pass when no job needs an entry that lies ahead.
var errOver = errors.New("no blob is needed any more")

// reach moves the pass to an entry, and returns the jobs that want it.
func (s *Store) reach(p *pass, at int) (jobs []*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.at = at
	for j := range p.jobs {
		if j.at == at {
			j.working = true
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// continues reports whether a job needs an entry that lies ahead. While blobs are being made, it waits for one: a
// client that pulls an image asks for the next layer when it has the one before.
func (s *Store) continues(p *pass) bool {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for expired := false; ; {
		s.mu.Lock()
		more := len(p.jobs) > 0
		over := !more && (len(s.waiting) > 0 || expired && len(s.jobs) == 0)
		p.over = over
		s.mu.Unlock()
		if more || over {
			return more
		}
		select {
		case <-p.wake:
			expired = false
		case <-timer.C:
			expired = true
		case <-p.ctx.Done():
			return false
		}
		timer.Reset(idle)
	}
}

// pour makes the blobs of one entry from its content. The encoders read the content from the disk and not from the
// decoder, so that the decoder's memory is free as soon as possible, and entries that follow need not wait.
func (s *Store) pour(p *pass, content io.Reader, jobs []*job) {
	var out []io.Writer
	var stored []*maker
	var layer *rawLayer
	for _, j := range jobs {
		if j.blob.Source.Compresses() {
			if layer == nil {
				layer = s.newRawLayer()
				out = append(out, &quiet{w: layer.spool, err: &layer.err})
			}
			layer.users.Add(1)
			s.work.Go(func() { s.compress(j, layer) })
			continue
		}
		m := s.newMaker(j)
		stored, out = append(stored, m), append(out, &quiet{w: m, err: &m.err})
	}
	_, err := io.CopyBuffer(io.MultiWriter(out...), content, make([]byte, bufferSize))
	s.mu.Lock()
	for _, j := range jobs {
		delete(p.jobs, j)
	}
	s.mu.Unlock()
	if layer != nil {
		layer.end(cmp.Or(layer.err, err))
		layer.release()
	}
	for _, m := range stored {
		m.end(err)
	}
}

// compress makes a blob from an uncompressed layer.
func (s *Store) compress(j *job, layer *rawLayer) {
	defer layer.release()
	select {
	case s.encoders <- struct{}{}:
		defer func() { <-s.encoders }()
	case <-j.ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.finish(j, j.ctx.Err())
		return
	}
	s.Log.Debug("a layer is compressed", "digest", j.blob.Source.Digest)
	m := s.newMaker(j)
	_, err := io.CopyBuffer(m, layer.reader(j.ctx, 0, maxLayer), make([]byte, bufferSize))
	m.end(err)
}

// A rawLayer is an uncompressed layer on the disk without a name. It disappears when its last user releases it.
type rawLayer struct {
	*spool
	users atomic.Int32
	err   error
}

const maxLayer = 1 << 40 // of the file format, in bytes

func (s *Store) newRawLayer() *rawLayer {
	l := &rawLayer{spool: newSpool()}
	l.users.Add(1)
	var f *os.File
	if f, l.err = s.layers.create(); l.err == nil {
		l.begin(f)
		l.err = os.Remove(f.Name())
	}
	return l
}

func (l *rawLayer) release() {
	if l.users.Add(-1) == 0 {
		l.close()
	}
}

// A quiet writer keeps the first error, so that it does not end the other writers of an entry.
type quiet struct {
	w   io.Writer
	err *error
}

func (q *quiet) Write(p []byte) (int, error) {
	if *q.err == nil {
		_, *q.err = q.w.Write(p)
	}
	return len(p), nil
}

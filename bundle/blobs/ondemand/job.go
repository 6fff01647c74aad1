package ondemand

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"slices"

	"airlift/bundle"
	"airlift/bundle/blobs"
)

// A job makes one blob for all who want it. The mutex of the Store guards the fields below it.
type job struct {
	blob   Blob
	at     int // index of the entry in the bundle's manifest
	ctx    context.Context
	cancel context.CancelFunc // nobody wants the blob any more
	spool  *spool
	begun  chan struct{} // closed when a pass will read the entry, or with refused

	refused  error // why no work began
	wanted   int   // by how many
	reserved int64 // bytes
	working  bool  // a goroutine has the content of the entry, and calls finish
	finished bool
}

// join returns the job for a blob, which the caller must leave. It returns nil if the blob is complete.
func (s *Store) join(b Blob) (*job, error) {
	m, err := b.File.Manifest()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(m.Entries, func(e bundle.Entry) bool { return e.Name == b.Source.Entry() })
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[b.Source.Digest]; j != nil {
		j.wanted++
		return j, nil
	}
	switch {
	case s.ctx.Err() != nil:
		return nil, errClosed
	case s.impossible[b.Source.Digest]:
		return nil, ErrImpossible
	case at < 0:
		return nil, errMissing
	case s.directory(b).has(b.Source.Digest):
		return nil, nil
	}
	j := &job{blob: b, at: at, spool: newSpool(), begun: make(chan struct{}), wanted: 1}
	j.ctx, j.cancel = context.WithCancel(s.ctx)
	s.jobs[b.Source.Digest] = j
	s.waiting = append(s.waiting, j)
	s.admit()
	return j, nil
}

// leave ends the interest of one caller in a job.
func (s *Store) leave(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.wanted--
	switch {
	case j.wanted > 0:
	case j.finished:
		j.spool.close()
	case j.working:
		j.cancel()
		s.forget(j)
	default:
		s.finish(j, context.Canceled)
	}
}

func (j *job) wait(ctx context.Context) error {
	_, err := j.spool.available(ctx, math.MaxInt64, 0)
	if err == io.EOF {
		err = nil
	}
	return err
}

// forget lets a later caller begin a new job for the blob, and the pass end if it has no other.
func (s *Store) forget(j *job) {
	if s.jobs[j.blob.Source.Digest] == j {
		delete(s.jobs, j.blob.Source.Digest)
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w *job) bool { return w == j })
	if p := s.pass; p != nil && p.jobs[j] {
		delete(p.jobs, j)
		if len(p.jobs) == 0 {
			p.cancel(errClosed)
		}
	}
}

// finish ends a job that is complete, or that failed. The caller has the mutex.
func (s *Store) finish(j *job, err error) {
	s.forget(j)
	if j.reserved > 0 {
		s.layers.release(j.reserved)
	}
	j.cancel()
	j.finished = true
	select {
	case <-j.begun:
	default:
		j.refused = err
		close(j.begun)
	}
	j.spool.end(err)
	if j.wanted == 0 {
		j.spool.close()
	}
	if errors.Is(err, blobs.ErrDiffers) {
		s.impossible[j.blob.Source.Digest] = true
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		s.Log.Warn("a blob was not made", "digest", j.blob.Source.Digest, "bundle", j.blob.File.Path(), "error", err)
	}
	s.admit()
}

// reserve reserves room for the job: for the blob, and for the layer that is compressed.
func (s *Store) reserve(j *job) error {
	if j.blob.Document {
		return nil
	}
	need := j.blob.Source.Size
	if j.blob.Source.Compresses() {
		m, err := j.blob.File.Manifest()
		if err != nil {
			return err
		}
		need += m.Entries[j.at].Size
	}
	if err := s.layers.reserve(need); err != nil {
		return err
	}
	j.reserved = need
	return nil
}

// A maker writes the blob of a job to its spool, and keeps it when it is complete.
type maker struct {
	s    *Store
	job  *job
	file *os.File
	out  *bufio.Writer
	blob *blobs.Writer
	err  error
}

// bufferSize is how much an encoder writes at a time, in bytes. All readers wake up for it.
const bufferSize = 256 << 10

func (s *Store) newMaker(j *job) *maker {
	m := &maker{s: s, job: j}
	if m.file, m.err = s.directory(j.blob).create(); m.err != nil {
		return m
	}
	j.spool.begin(m.file)
	m.out = bufio.NewWriterSize(j.spool, bufferSize)
	m.blob, m.err = j.blob.Source.NewWriter(m.out)
	return m
}

func (m *maker) Write(p []byte) (int, error) {
	if err := cmp.Or(m.err, m.job.ctx.Err()); err != nil {
		return 0, err
	}
	return m.blob.Write(p)
}

// end completes the blob, or discards it if there was an error.
func (m *maker) end(err error) {
	err = cmp.Or(m.err, err)
	if m.blob != nil {
		err = cmp.Or(err, m.blob.Close())
	}
	if err == nil {
		err = m.out.Flush()
	}
	if err == nil {
		err = m.s.directory(m.job.blob).place(m.file, m.job.blob.Source.Descriptor)
	}
	if err != nil && m.file != nil {
		os.Remove(m.file.Name())
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.finish(m.job, err)
}

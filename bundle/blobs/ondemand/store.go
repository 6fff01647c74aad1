package ondemand

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"airlift/bundle"
	"airlift/bundle/blobs"
)

var (
	// ErrImpossible means that this release cannot make the blob.
	ErrImpossible = errors.New("this release cannot make the blob")

	errClosed  = errors.New("the bundle is no longer served")
	errMissing = errors.New("the bundle has no entry for the blob")
)

// Options are the options of a Store.
type Options struct {
	// Dir is the directory of the blobs. The Store creates it, and removes unknown files in it. One process may use
	// it at a time.
	Dir string
	// Limit is the size in bytes up to which layers are kept in Dir, with what is needed to make others.
	Limit int64
	// Encoders is how many layers are compressed at a time; 0 is half the processors without one for the decoder.
	Encoders int
	Log      *slog.Logger
}

// A Blob is a blob of a bundle. File has the entry of the source.
type Blob struct {
	Source *blobs.Source
	File   *bundle.File
	// Document is set for indexes, manifests and configs. They are kept until Retain.
	Document bool
}

// A Store makes blobs. Its methods may be called at the same time.
type Store struct {
	Options
	documents, layers *directory
	ctx               context.Context
	cancel            context.CancelFunc
	encoders          chan struct{} // has an element for each layer that is being compressed
	work              sync.WaitGroup

	mu         sync.Mutex
	jobs       map[string]*job // not finished, by digest
	waiting    []*job          // the jobs for which no work began, the oldest first
	pass       *pass           // nil if no bundle is read
	impossible map[string]bool // digests
}

// New returns a Store. Open must precede its other methods.
func New(o Options) *Store {
	if o.Encoders == 0 {
		o.Encoders = max(1, runtime.GOMAXPROCS(0)/2-1)
	}
	s := &Store{
		Options:   o,
		documents: &directory{path: filepath.Join(o.Dir, "documents")},
		layers:    &directory{path: filepath.Join(o.Dir, "layers"), limit: o.Limit},
		encoders:  make(chan struct{}, o.Encoders),
		jobs:      map[string]*job{}, impossible: map[string]bool{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Open creates the directory and finds the blobs of an earlier process. It may be repeated.
func (s *Store) Open() error { return errors.Join(s.documents.open(), s.layers.open()) }

// Close ends all work and waits until it has ended. Readers get an error.
func (s *Store) Close() {
	s.cancel()
	s.Retain(nil, nil)
	s.work.Wait()
}

func (s *Store) directory(b Blob) *directory {
	if b.Document {
		return s.documents
	}
	return s.layers
}

// Get returns the content of a blob, which may not be made yet. It waits until the work for the blob begins, or ctx
// ends. Content does not depend on ctx.
func (s *Store) Get(ctx context.Context, b Blob) (*Content, error) {
	for {
		if f := s.directory(b).read(b.Source.Descriptor); f != nil {
			return &Content{Descriptor: b.Source.Descriptor, file: f}, nil
		}
		j, err := s.join(b)
		if err != nil {
			return nil, err
		}
		if j == nil {
			continue // it was complete in the meantime
		}
		select {
		case <-j.begun:
			if j.refused != nil {
				s.leave(j)
				return nil, j.refused
			}
			return &Content{Descriptor: b.Source.Descriptor, job: j, store: s}, nil
		case <-ctx.Done():
			s.leave(j)
			return nil, context.Cause(ctx)
		}
	}
}

// Prepare makes the blobs that are not kept yet, in one pass through each bundle, however long it takes.
func (s *Store) Prepare(ctx context.Context, list []Blob) error {
	var jobs []*job
	defer func() {
		for _, j := range jobs {
			s.leave(j)
		}
	}()
	for _, b := range list {
		if f := s.directory(b).read(b.Source.Descriptor); f != nil {
			f.Close()
			continue
		}
		j, err := s.join(b)
		if err != nil {
			return err
		}
		if j != nil {
			jobs = append(jobs, j)
		}
	}
	for _, j := range jobs {
		if err := j.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Read returns the content of a document.
func (s *Store) Read(ctx context.Context, b Blob) ([]byte, error) {
	c, err := s.Get(ctx, b)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return io.ReadAll(c.From(ctx, 0))
}

// Retain ends the use of all other files, and waits until nothing reads them. It removes all other documents.
func (s *Store) Retain(files []*bundle.File, documents map[string]bool) {
	if s.ctx.Err() == nil {
		s.documents.retain(documents)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range slices.Clone(s.waiting) {
		if !slices.Contains(files, j.blob.File) {
			s.finish(j, errClosed)
		}
	}
	for p := s.pass; p != nil && !slices.Contains(files, p.file); p = s.pass {
		p.cancel(errClosed)
		s.mu.Unlock()
		<-p.ended
		s.mu.Lock()
	}
}

// Content is the content of a blob. Several goroutines may read it. The caller must Close it.
type Content struct {
	bundle.Descriptor
	file  *os.File // complete; nil if the blob is being made
	job   *job
	store *Store
}

// From returns a reader from an offset on. It waits for what is not made yet. An error means that the blob cannot be
// completed: whatever was read of it is to be discarded. All bytes are only returned if the digest matches.
func (c *Content) From(ctx context.Context, offset int64) io.Reader {
	if c.file != nil {
		return io.NewSectionReader(c.file, offset, c.Size-offset)
	}
	return c.job.spool.reader(ctx, offset, c.Size)
}

// Close frees the content. The work for a blob that nobody reads any more ends.
func (c *Content) Close() {
	if c.file != nil {
		c.file.Close()
		return
	}
	c.store.leave(c.job)
}

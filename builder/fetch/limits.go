package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Limits for answers of sites and registries, which may be hostile. An answer with a
// descriptor must have exactly the descriptor's size.
const (
	// maxAnswer is the maximum size in bytes of manifests, tokens and error documents, whose size
	// is not known in advance. It is also the largest manifest that registries must accept.
	maxAnswer = 4 << 20
	// maxText is the limit for checksum and version files, which are a few lines.
	maxText = 1 << 20
	// maxFile is the limit for a published file. The largest, the kubelet, has 126 MB.
	maxFile = 4 << 30

	// Compressed data may unpack to this many times its size plus the slack, and
	// never to more than maxUnpacked.
	maxRatio       = 200
	unpackedSlack  = 64 << 20
	maxUnpacked    = 128 << 30
	stallAfter     = time.Minute
	minimumAdvance = 64 << 10
)

func maxUnpackedOf(compressed int64) int64 {
	if compressed > maxUnpacked/maxRatio {
		return maxUnpacked
	}
	return min(maxUnpacked, compressed*maxRatio+unpackedSlack)
}

// LimitUnpacked limits the decompressed content of r, called what in messages, by its
// compressed size. Reading more returns a *SizeError.
func LimitUnpacked(r io.Reader, what string, compressed int64) io.Reader {
	limit := maxUnpackedOf(compressed)
	return &limited{r: r, left: limit, err: &SizeError{what,
		fmt.Sprintf("unpacks to more than %d bytes, the limit for %d compressed bytes", limit, compressed)}}
}

// limited returns err at the first byte over the limit.
type limited struct {
	r    io.Reader
	left int64
	err  error
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, l.err
	}
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n - 1, l.err
	}
	return n, err
}

type limitKey struct{}

// Allow sets the size limit for the answer to a request with this context.
func Allow(ctx context.Context, n int64) context.Context {
	return context.WithValue(ctx, limitKey{}, n)
}

var errStalled = errors.New("the connection delivered no data")

// roundTrip sends req through base. Reading the answer fails if it is larger than the
// request's context allows, or if no data arrives for too long.
func roundTrip(base http.RoundTripper, req *http.Request, patience time.Duration) (*http.Response, error) {
	limit, ok := req.Context().Value(limitKey{}).(int64)
	if !ok {
		limit = maxAnswer
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	w := &watch{ctx: ctx, cancel: cancel, after: patience, url: Shown(req.URL)}
	w.timer = time.AfterFunc(patience, func() { cancel(errStalled) })
	sent := req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		sent.Body = &sending{ReadCloser: req.Body, watch: w}
		w.sending.Store(true)
	}
	resp, err := base.RoundTrip(sent)
	w.sending.Store(false)
	w.timer.Stop()
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired { // to a request over http
		resp.Body.Close()
		err = &ProxyError{Code: resp.StatusCode}
	}
	if err != nil {
		err = explainProxy(req.URL, w.explain(err))
		cancel(nil)
		return nil, err
	}
	if resp.StatusCode >= 300 {
		limit = maxAnswer // a redirect or an error has its own document
	}
	if req.Method != http.MethodHead && resp.ContentLength > limit {
		resp.Body.Close()
		cancel(nil)
		return nil, &SizeError{w.url, fmt.Sprintf("announces %d bytes, more than the limit of %d", resp.ContentLength, limit)}
	}
	resp.Body = &body{
		limited: limited{r: &watched{resp.Body, w}, left: limit,
			err: &SizeError{w.url, fmt.Sprintf("sends more than the limit of %d bytes", limit)}},
		Closer: resp.Body, watch: w,
	}
	return resp, nil
}

type body struct {
	limited
	io.Closer
	watch *watch
}

func (b *body) Close() error {
	err := b.Closer.Close()
	b.watch.cancel(nil)
	return err
}

type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	after  time.Duration
	url    string
	// sending is set until an answer arrives.
	sending atomic.Bool
}

// A sending is the content of a request. An upload may take long, but not without progress.
type sending struct {
	io.ReadCloser
	watch *watch
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.watch.sending.Load() {
		s.watch.timer.Reset(s.watch.after)
	}
	return n, err
}

func (w *watch) explain(err error) error {
	if err != nil && err != io.EOF && context.Cause(w.ctx) == errStalled {
		return fmt.Errorf("%w for %v: %s", errStalled, w.after, w.url)
	}
	return err
}

// watched runs the timer only during Read, because a slow local disk is not the site's
// fault.
type watched struct {
	r io.Reader
	w *watch
}

func (r *watched) Read(p []byte) (int, error) {
	r.w.timer.Reset(r.w.after)
	n, err := r.r.Read(p)
	r.w.timer.Stop()
	return n, r.w.explain(err)
}

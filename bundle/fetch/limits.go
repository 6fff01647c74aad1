package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Limits of what is read from a site or a registry, which may be hostile. What
// has a descriptor has exactly its size; the rest has these.
const (
	// maxAnswer holds for every answer whose size is not known beforehand:
	// manifests, token and error documents. Registries need not accept larger
	// manifests.
	maxAnswer = 4 << 20
	// maxText holds for checksum and version files, which are a few lines.
	maxText = 1 << 20
	// maxFile holds for a published file. The largest, the kubelet, has 126 MB.
	maxFile = 4 << 30

	// What is compressed may become this many times as large, plus the slack,
	// and never more than the ceiling.
	maxRatio       = 200
	unpackedSlack  = 64 << 20
	maxUnpacked    = 128 << 30
	stallAfter     = time.Minute
	minimumAdvance = 64 << 10
)

// maxUnpackedOf is how large something of that compressed size may become.
func maxUnpackedOf(compressed int64) int64 {
	if compressed > maxUnpacked/maxRatio {
		return maxUnpacked
	}
	return min(maxUnpacked, compressed*maxRatio+unpackedSlack)
}

// LimitUnpacked returns what r decompresses, called what in messages, up to the
// limit for something that has compressed bytes; more is a *SizeError.
func LimitUnpacked(r io.Reader, what string, compressed int64) io.Reader {
	limit := maxUnpackedOf(compressed)
	return &limited{r: r, left: limit, err: &SizeError{what,
		fmt.Sprintf("has more than %d bytes, the most that is accepted of something that has %d bytes compressed", limit, compressed)}}
}

// limited fails with err at the first byte too many.
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

// allow lets the answer to a request with the context have up to n bytes.
func allow(ctx context.Context, n int64) context.Context {
	return context.WithValue(ctx, limitKey{}, n)
}

var errStalled = errors.New("the connection went silent")

// roundTrip sends req through base. The answer's content ends with an error
// when it is larger than the request's context allows, and when nothing comes
// for too long, in the answer's head or later.
func roundTrip(base http.RoundTripper, req *http.Request, patience time.Duration) (*http.Response, error) {
	limit, ok := req.Context().Value(limitKey{}).(int64)
	if !ok {
		limit = maxAnswer
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	w := &watch{ctx: ctx, cancel: cancel, after: patience, url: req.URL.Redacted()}
	w.timer = time.AfterFunc(patience, func() { cancel(errStalled) })
	resp, err := base.RoundTrip(req.WithContext(ctx))
	w.timer.Stop()
	if err != nil {
		err = w.explain(err)
		cancel(nil)
		return nil, err
	}
	if resp.StatusCode >= 300 {
		limit = maxAnswer // a redirect or an error has a text of its own
	}
	if req.Method != http.MethodHead && resp.ContentLength > limit {
		resp.Body.Close()
		cancel(nil)
		return nil, &SizeError{w.url, fmt.Sprintf("announces %d bytes, more than the %d accepted", resp.ContentLength, limit)}
	}
	resp.Body = &body{
		limited: limited{r: &watched{resp.Body, w}, left: limit,
			err: &SizeError{w.url, fmt.Sprintf("sends more than the %d bytes accepted", limit)}},
		Closer: resp.Body, watch: w,
	}
	return resp, nil
}

// A body is an answer's content.
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

// A watch ends a request that goes silent.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	after  time.Duration
	url    string
}

func (w *watch) explain(err error) error {
	if err != nil && err != io.EOF && context.Cause(w.ctx) == errStalled {
		return fmt.Errorf("%w for %v: %s", errStalled, w.after, w.url)
	}
	return err
}

// watched is watched while it is read, and only then: a slow disk is no fault
// of the site.
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

package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"airlift/internal/dialer"
)

const (
	// dialTimeout limits a connection to a server, and answerTimeout its answer: a server that is down costs
	// little time, and one that is busy has enough.
	dialTimeout   = 5 * time.Second
	answerTimeout = 30 * time.Second
)

// newTransport returns a transport that speaks HTTP/1.1 to verified servers. It follows no redirects.
func newTransport(trust *tls.Config) *http.Transport {
	trust = trust.Clone()
	trust.MinVersion = max(trust.MinVersion, tls.VersionTLS12)
	only := new(http.Protocols)
	only.SetHTTP1(true)
	return &http.Transport{
		TLSClientConfig: trust, Protocols: only, DialContext: dial, Proxy: http.ProxyFromEnvironment,
		TLSHandshakeTimeout: 2 * dialTimeout, ResponseHeaderTimeout: answerTimeout, IdleConnTimeout: time.Minute,
		DisableCompression: true,
	}
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return dialer.Dial(ctx, network, address)
}

// A refusal is an answer that a server will repeat.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

func refuse(format string, args ...any) error { return &refusal{fmt.Errorf(format, args...)} }

// errStalled is why a response ends that brings no bytes.
var errStalled = errors.New("no bytes arrived for some time")

type stream struct {
	body   io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	next   int64 // offset of the next byte
	left   int64 // bytes after it
}

// request asks the current server for the bytes from an offset on.
func (r *Reader) request(ctx context.Context, at int64) error {
	s := &stream{next: at, left: min(chunk, r.options.Size-at)}
	s.ctx, s.cancel = context.WithCancelCause(r.ctx)
	defer context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })()
	resp, err := r.ask(s.ctx, http.MethodGet, fmt.Sprintf("bytes=%d-%d", at, at+s.left-1))
	if err == nil {
		if err = r.check(resp, at, s.left); err == nil {
			s.body = resp.Body
			r.stream = s
			return nil
		}
		resp.Body.Close()
	}
	s.cancel(nil)
	return err
}

// ask sends a request to the current server. ranges is the header Range, "" for none.
func (r *Reader) ask(ctx context.Context, method, ranges string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+r.server()+"/bundles/"+r.options.ID, nil)
	if err != nil {
		return nil, refuse("%w", err)
	}
	req.Header.Set("If-Match", r.etag())
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	if r.options.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.options.Token)
	}
	resp, err := r.http.RoundTrip(req)
	if unverified := (*tls.CertificateVerificationError)(nil); errors.As(err, &unverified) {
		return nil, refuse("its certificate is not one of this cluster: %w", unverified.Err)
	}
	return resp, err
}

func (r *Reader) etag() string { return `"` + r.options.ID + `"` }

// check accepts only the answer with exactly this range of exactly this bundle.
func (r *Reader) check(resp *http.Response, at, size int64) error {
	if resp.StatusCode != http.StatusPartialContent {
		return status(resp)
	}
	want := fmt.Sprintf("bytes %d-%d/%d", at, at+size-1, r.options.Size)
	if got := resp.Header.Get("Content-Range"); got != want {
		return refuse("it sent %q instead of %q", got, want)
	}
	if resp.ContentLength != size {
		return refuse("it announced %d bytes instead of %d", resp.ContentLength, size)
	}
	return r.checkIdentity(resp)
}

// checkIdentity accepts the bundle's own bytes only.
func (r *Reader) checkIdentity(resp *http.Response) error {
	if got := resp.Header.Get("ETag"); got != r.etag() {
		return refuse("it has another file: ETag %s", got)
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" {
		return refuse("it sent the content encoding %q", coding)
	}
	return nil
}

var errCredential = errors.New("it does not accept this host's credential")

// status returns the error for an answer without the bytes.
func status(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound:
		return refuse("it does not have this bundle (%s)", resp.Status)
	case code == http.StatusPreconditionFailed:
		return refuse("it has another bundle (%s)", resp.Status)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return refuse("%w (%s)", errCredential, resp.Status)
	case code == http.StatusTooManyRequests || code >= 500:
		return fmt.Errorf("it returned %s", resp.Status)
	}
	return refuse("it returned %s", resp.Status)
}

// read reads bytes that have arrived. It waits at most the time stall for them.
func (s *stream) read(ctx context.Context, b []byte, stall time.Duration) (int, error) {
	defer context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })()
	defer time.AfterFunc(stall, func() { s.cancel(errStalled) }).Stop()
	n, err := s.body.Read(b[:min(int64(len(b)), s.left)])
	s.next += int64(n)
	s.left -= int64(n)
	if s.left == 0 {
		return n, nil
	}
	if cause := context.Cause(s.ctx); err != nil && cause != nil {
		err = cause
	} else if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// close ends the response. The connection can be used again if the response was complete.
func (s *stream) close() {
	if s.left == 0 {
		_, _ = s.body.Read(make([]byte, 1)) // its end
	}
	s.body.Close()
	s.cancel(nil)
}

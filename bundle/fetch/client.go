// Package fetch downloads files, verified and resumable, into a cache that
// several builds may share.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	// attempts without a single new byte before a download is given up.
	attempts = 5
	// A connection that delivers nothing for this long is replaced.
	stallAfter = time.Minute
	// Checksum and version files are a few lines; an error page is not
	// worth reading further.
	maxText = 1 << 20
)

// A Client downloads over HTTP.
type Client struct {
	HTTP  *http.Client
	Cache *Cache
	// Refresh asks sites again for what the cache remembers of them.
	Refresh bool
	// Note, if set, is told in a sentence why nothing seems to happen.
	Note func(string)

	// backoff is how long to wait at first after a failure, and at most.
	backoff, maxBackoff time.Duration
	stallAfter          time.Duration
}

// New returns a client that keeps what it downloads in cache and sends its
// requests through transport, which follows no redirects itself.
func New(cache *Cache, transport http.RoundTripper) *Client {
	return &Client{
		HTTP:    &http.Client{Transport: transport},
		Cache:   cache,
		backoff: time.Second / 2, maxBackoff: 15 * time.Second,
		stallAfter: stallAfter,
	}
}

// Transport returns a transport for long downloads: no limit on the whole,
// but on every wait for a site to say something.
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.ResponseHeaderTimeout = time.Minute
	t.MaxIdleConnsPerHost = 8
	return t
}

// A statusError is an answer other than the one asked for.
type statusError struct {
	url    string
	resp   *http.Response // for its headers; the body is closed
	status string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s answered %s", e.url, e.status) }

var errStalled = errors.New("the connection went silent")

// check turns an answer's status into an error, or nil for 200 and 206.
func check(url string, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		return nil
	case http.StatusNotFound, http.StatusGone:
		return &MissingError{URL: url}
	}
	return &statusError{url, resp, resp.Status}
}

// retry runs try until it succeeds, fails for good, or has failed several
// times in a row without advancing.
func (c *Client) retry(ctx context.Context, try func() (advanced bool, err error)) error {
	for failed := 1; ; failed++ {
		advanced, err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if advanced {
			failed = 1
		}
		var status *statusError
		var resp *http.Response
		if errors.As(err, &status) {
			resp = status.resp
		}
		if !temporary(ctx, resp, err) {
			return err
		}
		if failed == attempts {
			return fmt.Errorf("gave up after %d attempts: %w", attempts, err)
		}
		wait := min(retryablehttp.DefaultBackoff(c.backoff, c.maxBackoff, failed-1, resp), c.maxBackoff)
		c.note("%v; trying again in %v", err, wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (c *Client) note(format string, args ...any) {
	if c.Note != nil {
		c.Note(fmt.Sprintf(format, args...))
	}
}

// temporary reports whether asking again may help.
func temporary(ctx context.Context, resp *http.Response, err error) bool {
	var missing *MissingError
	var mismatch *MismatchError
	var local *localError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return false // the name does not exist, or there is no network
	case errors.As(err, &missing), errors.As(err, &mismatch), errors.As(err, &local):
		return false
	case resp != nil:
		again, _ := retryablehttp.DefaultRetryPolicy(ctx, resp, nil)
		return again || resp.StatusCode == http.StatusRequestTimeout
	case errors.Is(err, errStalled), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	again, _ := retryablehttp.DefaultRetryPolicy(ctx, nil, err)
	return again
}

// A localError is this machine's own: a full disk is no reason to ask again.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// Text downloads a small text file.
func (c *Client) Text(ctx context.Context, url string) (string, error) {
	var text string
	err := c.retry(ctx, func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		resp, err := c.HTTP.Do(req)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if err := check(url, resp); err != nil {
			return false, err
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxText))
		text = string(b)
		return false, err
	})
	return text, err
}

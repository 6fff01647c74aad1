// Package fetch downloads and verifies files. It resumes downloads, and keeps them in a
// cache that several builds may share.
package fetch

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// attempts is the number of attempts without progress before a request fails.
const attempts = 5

// A Client downloads over HTTP.
type Client struct {
	HTTP  *http.Client
	Cache *Cache
	// Refresh requests facts again instead of using the cached ones.
	Refresh bool
	// RetryWait is the wait after the first failure of a request. The next waits are longer.
	RetryWait time.Duration
	// Note, if set, is called with the reason why a download waits.
	Note func(string)

	mirrors *Mirrors
	// maxWait is the longest wait between two attempts, unless the site asks for more.
	maxWait time.Duration
	// maxRetryAfter is the longest wait that a site may ask for.
	maxRetryAfter time.Duration
}

// New returns a client that stores downloads in cache and sends requests through
// mirrors.
func New(cache *Cache, mirrors *Mirrors) *Client {
	return &Client{
		HTTP:          &http.Client{Transport: mirrors},
		Cache:         cache,
		RetryWait:     time.Second / 2,
		mirrors:       mirrors,
		maxWait:       15 * time.Second,
		maxRetryAfter: 5 * time.Minute,
	}
}

// Transport returns a transport for long downloads. It limits each wait for an answer,
// but not the whole download.
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	useProxies(t)
	t.DialContext = (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.ResponseHeaderTimeout = time.Minute
	t.MaxIdleConnsPerHost = 8
	return t
}

// Recall returns what Remember stored under key in a build with the same mirrors.
func (c *Client) Recall(key string) (string, bool) { return c.Cache.Recall(key + c.mirrors.suffix()) }

// Remember stores a fact that does not change: a published checksum, the digest of a
// release's tag. It holds for the same mirrors only.
func (c *Client) Remember(key, value string) error {
	return c.Cache.Remember(key+c.mirrors.suffix(), value)
}

func check(url string, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		return nil
	case http.StatusNotFound, http.StatusGone:
		return &MissingError{URL: url}
	}
	status := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	return &StatusError{url, resp.StatusCode, status, hostOf(resp), resp.Header.Get("Retry-After")}
}

// hostOf returns the host that answered: a mirror, or where the site redirects to.
func hostOf(resp *http.Response) string {
	if resp.Request == nil {
		return ""
	}
	return resp.Request.URL.Host
}

// retry calls try until it succeeds, fails permanently, or fails several times in a row
// without progress.
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
		cause := err
		if !temporary(ctx, err) {
			return err
		}
		if failed == attempts {
			return Final(fmt.Errorf("gave up after %d attempts: %w", attempts, err))
		}
		wait, err := c.wait(err, failed)
		if err != nil {
			return err
		}
		c.note("%v; retrying in %v", cause, wait)
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

func temporary(ctx context.Context, err error) bool {
	var missing *MissingError
	var mismatch *MismatchError
	var size *SizeError
	var redirect *RedirectError
	var final *finalError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	var status *StatusError
	var proxy *ProxyError
	switch {
	case errors.As(err, &proxy):
		return temporaryStatus(ctx, proxy.Code)
	case errors.As(err, &dns) && dns.IsNotFound:
		return false // the name does not exist, or there is no network
	case errors.As(err, &missing), errors.As(err, &mismatch), errors.As(err, &size),
		errors.As(err, &redirect), errors.As(err, &final),
		errors.As(err, &certificate), errors.As(err, &notTLS):
		return false
	case errors.As(err, &status):
		return temporaryStatus(ctx, status.Code)
	case errors.Is(err, errStalled), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	again, _ := retryablehttp.DefaultRetryPolicy(ctx, nil, err)
	return again
}

func temporaryStatus(ctx context.Context, code int) bool {
	if code == http.StatusInsufficientStorage {
		return false
	}
	again, _ := retryablehttp.DefaultRetryPolicy(ctx, &http.Response{StatusCode: code}, nil)
	return again || code == http.StatusRequestTimeout
}

// A Question is a request for a small document.
type Question struct {
	URL    string
	Accept string // the header, if not empty
	// JSON, if not empty, is sent with POST. The request must not change anything, because it
	// may be repeated.
	JSON []byte
	// Max is the size limit of the answer; 0 means the usual limit.
	Max int64
	// HTTP replaces the client's own HTTP client, for sites that need credentials.
	HTTP *http.Client
}

// Ask returns the answer to a question and its source.
func (c *Client) Ask(ctx context.Context, q Question) (answer []byte, source Source, err error) {
	if q.HTTP == nil {
		q.HTTP = c.HTTP
	}
	if q.Max == 0 {
		q.Max = maxAnswer
	}
	err = c.retry(ctx, func() (bool, error) {
		answer, source, err = c.askOnce(Allow(ctx, q.Max), q)
		return false, err
	})
	return answer, source, err
}

func (c *Client) askOnce(ctx context.Context, q Question) ([]byte, Source, error) {
	method := http.MethodGet
	if len(q.JSON) > 0 {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, q.URL, bytes.NewReader(q.JSON))
	if err != nil {
		return nil, Source{}, err
	}
	if len(q.JSON) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.Accept != "" {
		req.Header.Set("Accept", q.Accept)
	}
	source := c.mirrors.Source(req.URL)
	follow := redirects{mirrors: c.mirrors}
	client := *q.HTTP
	client.CheckRedirect = follow.check
	resp, err := client.Do(req)
	if err != nil {
		return nil, source, err
	}
	defer resp.Body.Close()
	source.Redirects = follow.sites
	if err := check(q.URL, resp); err != nil {
		return nil, source, err
	}
	b, err := io.ReadAll(resp.Body)
	if err == nil {
		err = NotAPage(q.URL, b)
	}
	return b, source, err
}

// Text downloads a small text file.
func (c *Client) Text(ctx context.Context, url string) (string, Source, error) {
	b, source, err := c.Ask(ctx, Question{URL: url, Max: maxText})
	return string(b), source, err
}

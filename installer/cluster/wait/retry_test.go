package wait_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"
	"time"

	"airlift/installer/cluster/wait"
)

// A server that is too slow is an outage, which passes. One that cannot be reached, or that refuses, is not.
func TestOutages(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	get := func(c *http.Client, url string) error {
		resp, err := c.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	const short = 50 * time.Millisecond
	for name, c := range map[string]struct {
		err    error
		outage bool
	}{
		"no handshake":        {get(&http.Client{Transport: &http.Transport{TLSHandshakeTimeout: short}}, "https://"+silent.Addr().String()), true},
		"no answer":           {get(&http.Client{Timeout: short}, server.URL), true},
		"nobody listens":      {get(&http.Client{}, "https://"+closed.Addr().String()), true},
		"no connection":       {&url.Error{Op: "Get", URL: "https://10.0.0.1:6443", Err: &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}}, false},
		"another certificate": {get(&http.Client{}, httptestTLS(t)), false},
		"another error":       {errors.New("the server refuses"), false},
	} {
		if c.err == nil || wait.IsOutage(fmt.Errorf("applying an object: %w", c.err)) != c.outage {
			t.Errorf("%s: %v: an outage: %t", name, c.err, !c.outage)
		}
	}
}

func httptestTLS(t *testing.T) string {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s.URL
}

// An outage ends the wait of nobody who was interrupted.
func TestRetryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := wait.Retry(ctx, func() error {
		calls++
		if calls == 2 {
			cancel()
		}
		return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443", Err: context.DeadlineExceeded}
	})
	if !errors.Is(err, context.DeadlineExceeded) || calls != 2 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

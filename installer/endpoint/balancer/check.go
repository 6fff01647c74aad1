package balancer

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"time"

	"airlift/installer/cluster/health"
)

// NewCheck returns a function that requests /readyz of an API server. An API server that answers is alive
// unless it returns an error of its own (5xx): 401 and 403 mean that it allows no anonymous requests, 429
// that it has much to do. It keeps one connection per API server, because a TLS handshake costs the API
// server more than the answer: also if the answer comes too late, so that checks do not keep a slow host slow.
func NewCheck(config func() (*tls.Config, error)) func(context.Context, netip.AddrPort) error {
	transport := &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialTLS(ctx, network, address, config)
		},
		ForceAttemptHTTP2:  true, // a request that is given up does not close the connection
		MaxConnsPerHost:    1,
		IdleConnTimeout:    10 * time.Second, // of a removed API server
		DisableCompression: true,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: handshakeTimeout},
	}
	return func(ctx context.Context, address netip.AddrPort) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address.String()+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return fmt.Errorf("checking /readyz: %w", err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
		if err != nil {
			return fmt.Errorf("checking /readyz: %w", err)
		}
		if resp.StatusCode >= http.StatusInternalServerError {
			return fmt.Errorf("checking /readyz: %s: %s", resp.Status, health.FailedChecks(body))
		}
		return nil
	}
}

const (
	// handshakeTimeout is net/http's limit of a TLS handshake. A slow host needs more for one than a check may take.
	handshakeTimeout = 10 * time.Second
	// pingAfter is how long a connection is silent before it is tried. A connection to a host without power is closed
	// after this and handshakeTimeout.
	pingAfter = 2 * time.Second
)

// dialTLS has time limits of its own: it continues without the check that began it, for the next one.
func dialTLS(ctx context.Context, network, address string, config func() (*tls.Config, error)) (net.Conn, error) {
	c, err := config()
	if err != nil {
		return nil, err
	}
	c = c.Clone()
	c.ServerName, c.NextProtos = health.ServerName, []string{"h2", "http/1.1"}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handshakeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, c) // the timeout of the dialer in a tls.Dialer would be for the handshake, too
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// keepChecking checks a backend until ctx ends.
func (b *Balancer) keepChecking(ctx context.Context, be *backend) {
	for ctx.Err() == nil {
		began := time.Now()
		b.mu.Lock()
		limit := be.limit()
		b.mu.Unlock()
		err := b.checkOnce(ctx, be.address, limit)
		if ctx.Err() != nil {
			return
		}
		pause := b.observe(be, err)
		select {
		case <-time.After(pause - time.Since(began)):
		case <-be.recheck:
		case <-ctx.Done():
		}
	}
}

func (b *Balancer) checkOnce(ctx context.Context, address netip.AddrPort, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	err := b.check(ctx, address)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// observe takes in a check, closes connections that became useless by it, and returns the time from this
// check to the next.
func (b *Balancer) observe(be *backend, err error) time.Duration {
	b.mu.Lock()
	before := be.state
	changed := be.observe(err)
	state, pause := be.state, be.pause(rand.Float64())
	var open []*connection
	if changed {
		open = b.takeUseless()
	}
	b.mu.Unlock()
	closeAll(open)
	switch {
	case changed && state == Down:
		b.options.Log.Warn("API server is down", "address", be.address, "error", err)
	case changed && state == Ready && before != Failing:
		b.options.Log.Info("API server is ready", "address", be.address)
	}
	return pause
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

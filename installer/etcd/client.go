// Package etcd manages the members of a stacked etcd cluster: it adds and
// removes members, and checks whether the cluster survives a removal.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"airlift/installer/timeline"
	"airlift/internal/dialer"
	"airlift/internal/documents/pemfile"
)

// How long to wait for an answer.
const (
	// callTimeout limits one call; an election takes about a second, longer
	// on a slow disk.
	callTimeout = 5 * time.Second
	// DefaultTimeout is kubeadm's for all attempts of one operation (etcdAPICall).
	DefaultTimeout = 2 * time.Minute
	// pollInterval is the pause between two attempts.
	pollInterval = 500 * time.Millisecond
	// keepAlive detects a host that was switched off; without it, a connection
	// to such a host stays open for minutes.
	keepAlive        = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// Report is called with each new state that a wait sees.
type Report func(state string)

// Client is a connection to an etcd cluster. Close ends it.
type Client struct {
	api    *clientv3.Client
	tls    *tls.Config
	report Report
	// Timeout limits all attempts of one operation.
	Timeout time.Duration
}

// TLS reads a client certificate and the CA that verifies the members, from PEM
// files. Without a name, there is no certificate, and the CAs are the host's.
func TLS(caFile, certFile, keyFile string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		ca, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("reading etcd's CA: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("reading etcd's CA: %s: %w", caFile, pemfile.Explain(ca, pemfile.Certificate))
		}
	}
	if certFile != "" && keyFile != "" {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("reading etcd's client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// Connect creates a client for a cluster. endpoints are client URLs of at least
// one member ("https://10.1.2.3:2379"), of which at least one must answer. The
// client lives until Close, also after ctx has ended. report may be nil.
func Connect(ctx context.Context, endpoints []string, cfg *tls.Config, report Report) (*Client, error) {
	if report == nil {
		report = func(string) {}
	}
	api, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: cfg,
		DialOptions: dialer.Options(ctx), DialTimeout: callTimeout, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveTimeout,
		// It would log elections, for which Client waits anyway.
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	c := &Client{api: api, tls: cfg, report: report, Timeout: DefaultTimeout}
	// A learner refuses most calls, and a dead member costs time: use only
	// voting members that answer.
	if err := c.chooseEndpoints(ctx, endpoints); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the client's connections.
func (c *Client) Close() error { return c.api.Close() }

// try runs call until it succeeds, fails permanently, or Timeout has passed.
func (c *Client) try(ctx context.Context, what string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	last := ""
	span := timeline.Wait(ctx, "etcd", what)
	defer span.End()
	for {
		one, done := context.WithTimeout(ctx, callTimeout)
		err := call(one)
		done()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && !retryable(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			span.Saw(last)
			c.report(what + ": " + last)
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			last = cmp.Or(last, err.Error())
			if context.Cause(ctx) == context.DeadlineExceeded {
				return fmt.Errorf("%s: gave up after %s; last seen: %s", what, c.Timeout.Round(time.Second), last)
			}
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

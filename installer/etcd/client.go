// Package etcd manages the members of the etcd cluster that the control planes
// of a Kubernetes cluster carry: it lets a new one in, takes one out, and says
// what taking it out would do to the rest.
package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"airlift/installer/timeline"
)

// How long to wait for an answer.
const (
	// callTimeout bounds one question to the cluster; an election takes
	// about a second, a slow disk some more.
	callTimeout = 5 * time.Second
	// DefaultTimeout is kubeadm's for all tries of one operation (etcdAPICall).
	DefaultTimeout = 2 * time.Minute
	// pollInterval is the pause between two tries.
	pollInterval = 500 * time.Millisecond
	// keepAlive finds a host that was switched off: without it a connection
	// to one lasts for minutes (seconds are the values of kubeadm's clients).
	keepAlive        = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// Report is told about each new state that a wait sees.
type Report func(state string)

// Client talks to an etcd cluster. Close ends it.
type Client struct {
	api    *clientv3.Client
	tls    *tls.Config
	report Report
	// Timeout bounds all tries of one operation.
	Timeout time.Duration
}

// TLS reads a client's certificate and the CA that the members are checked
// with. The paths are of PEM files.
func TLS(caFile, certFile, keyFile string) (*tls.Config, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("reading etcd's CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("reading etcd's CA: %s holds no certificate", caFile)
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading etcd's client certificate: %w", err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// Connect makes a client for a cluster. endpoints are client URLs of one or
// more of its members ("https://10.1.2.3:2379"); the others are learned from
// those. Members that do not answer do no harm while one does. The client
// lives until Close, whatever becomes of ctx. report may be nil.
func Connect(ctx context.Context, endpoints []string, cfg *tls.Config, report Report) (*Client, error) {
	if report == nil {
		report = func(string) {}
	}
	api, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: cfg,
		DialTimeout: callTimeout, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveTimeout,
		// What it would log, an election that is under way, is waited for.
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	c := &Client{api: api, tls: cfg, report: report, Timeout: DefaultTimeout}
	// A learner that is among the endpoints refuses everything, a dead
	// member costs time: ask only those that answer.
	if err := c.chooseEndpoints(ctx, endpoints); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the client's connections.
func (c *Client) Close() error { return c.api.Close() }

// try runs call until it succeeds, fails for good, or Timeout has passed.
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
		if ctx.Err() == nil && !mayHeal(err) {
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
			if last == "" {
				last = err.Error()
			}
			if context.Cause(ctx) == context.DeadlineExceeded {
				return fmt.Errorf("%s: waited %s; last: %s", what, c.Timeout.Round(time.Second), last)
			}
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

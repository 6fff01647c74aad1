package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"airlift/internal/dialer"
	"airlift/internal/fault"
)

const (
	// reachAttempt limits one connection, reachPause is the pause between two attempts.
	reachAttempt = 5 * time.Second
	reachPause   = time.Second
)

// CheckReach returns why a host that is to join does not reach the endpoint of the cluster, if it reaches an API server at
// its own address. A join would wait longer for the endpoint, and could not know that. The endpoint has limit to answer: an
// address that moves is nowhere for some seconds.
func CheckReach(ctx context.Context, endpoint string, servers []string, limit time.Duration) error {
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		return fault.New(fault.Usage, "the endpoint %q is not HOST:PORT", endpoint)
	}
	if a, err := netip.ParseAddr(host); len(servers) == 0 || slices.Contains(servers, endpoint) || err == nil && a.IsLoopback() {
		return nil
	}
	for began := time.Now(); ; {
		failed := connects(ctx, endpoint)
		if failed == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("connecting to %s: %w", endpoint, context.Cause(ctx))
		}
		if time.Since(began) >= limit {
			return explainReach(ctx, endpoint, servers, failed, limit)
		}
		select {
		case <-time.After(reachPause):
		case <-ctx.Done():
		}
	}
}

func explainReach(ctx context.Context, endpoint string, servers []string, failed error, limit time.Duration) error {
	for _, s := range servers {
		if connects(ctx, s) == nil {
			return fault.New(fault.Failure, "this host reaches the API server %s, but in %s not the cluster's endpoint %s: %w", s, limit, endpoint, shortDialError(failed)).
				Hint("if a control plane has that address, a switch, a hypervisor or a firewall drops it: allow it there (ARP inspection, port security, filters of MAC or IP addresses); if it is a load balancer, point it at the API servers")
		}
	}
	return nil // join knows more causes
}

// connects opens a connection and closes it.
func connects(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, reachAttempt)
	defer cancel()
	conn, err := dialer.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// shortDialError is the cause of a failed connection, without the address.
func shortDialError(err error) error {
	var errno syscall.Errno
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.EHOSTUNREACH):
		return errors.New("no host answers for that address")
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer in time")
	}
	return err
}

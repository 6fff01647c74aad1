package remote

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
)

// Probe finds a server that has the bundle, and asks each at most once. The error lists what each server
// answered.
func (r *Reader) Probe(ctx context.Context) error {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	said := map[string]error{}
	for range r.servers {
		server := r.server()
		if said[server] = r.probe(ctx); said[server] == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.current++
	}
	return r.failure("finding the bundle "+r.options.ID, said)
}

func (r *Reader) probe(ctx context.Context) error {
	resp, err := r.ask(ctx, http.MethodHead, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return status(resp)
	}
	if resp.ContentLength != r.options.Size {
		return refuse("its file has %d bytes instead of %d", resp.ContentLength, r.options.Size)
	}
	return r.checkIdentity(resp)
}

// Answers returns an error if no service answers at HOST:PORT. It sends no credential and does not verify the
// server, because the cluster's CA is not known yet.
func Answers(ctx context.Context, server string) error {
	transport := newTransport(&tls.Config{InsecureSkipVerify: true})
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+server+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it returned %s", resp.Status)
	}
	return nil
}

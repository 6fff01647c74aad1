package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// requestTimeout bounds a request at a socket, with its response.
const requestTimeout = 15 * time.Second

// notRunning are the errors of a socket that nobody listens at.
var notRunning = []error{unix.ECONNREFUSED, unix.ENOENT}

// Listen listens for requests of this host at a Unix socket, in a directory that systemd creates for root alone.
func Listen(socket string) (net.Listener, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening for requests of this host: %w", err)
	}
	return l, nil
}

// Serve answers requests at the socket until ctx ends.
func Serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Query returns the state of the process that listens at a socket, which it answers to GET /status as JSON; nil if no process
// does.
func Query[T any](ctx context.Context, socket string) (*T, error) {
	resp, err := Request(ctx, socket, http.MethodGet, "/status")
	if resp == nil || err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	state := new(T)
	return state, json.NewDecoder(resp.Body).Decode(state)
}

// Request sends a request to the process that listens at a socket. The response is nil if no process does.
func Request(ctx context.Context, socket, method, target string) (*http.Response, error) {
	client := http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://host"+target, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if slices.ContainsFunc(notRunning, func(e error) bool { return errors.Is(err, e) }) {
		return nil, nil
	}
	return resp, err
}

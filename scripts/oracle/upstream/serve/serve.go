// Package serve serves the sites that a bundle is built from on loopback: registry.k8s.io,
// ghcr.io, dl.k8s.io and github.com, with their redirects, checksum files and errors.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Mirror is a site and the URL at which it is served here.
type Mirror struct{ Host, URL string }

// Server is a running set of sites.
type Server struct {
	Mirrors []Mirror
	servers []*http.Server
	failed  chan error
}

// Start listens and serves. The first site gets the address; the other sites use the following
// ports, or free ports if the port is 0. The targets of redirects have the host name localhost, so
// that a redirect leads to another host, as on the real sites. The access log, which may be nil,
// gets one line per request: method, host, path, status and bytes.
func Start(listen string, c Content, accessLog io.Writer) (*Server, error) {
	sites := c.sites()
	addresses, err := spread(listen, len(sites))
	if err != nil {
		return nil, err
	}
	s := &Server{failed: make(chan error, 1)}
	listeners := make([]net.Listener, len(addresses))
	at := make(locations)
	for i, site := range sites {
		if listeners[i], err = net.Listen("tcp", addresses[i]); err != nil {
			for _, l := range listeners[:i] {
				l.Close()
			}
			return nil, fmt.Errorf("serving %s: %w", site.host, err)
		}
		at[site.host] = "http://" + listeners[i].Addr().String()
		if site.cdn {
			_, port, _ := net.SplitHostPort(listeners[i].Addr().String())
			at[site.host] = "http://" + redirectedHost + ":" + port
		} else {
			s.Mirrors = append(s.Mirrors, Mirror{site.host, at[site.host]})
		}
	}
	log := &accessLogger{w: accessLog}
	for i, site := range sites {
		handler, err := site.handler(at)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, fmt.Errorf("serving %s: %w", site.host, err)
		}
		server := &http.Server{Handler: log.wrap(site.host, handler), ReadHeaderTimeout: 10 * time.Second}
		s.servers = append(s.servers, server)
		go func() {
			if err := server.Serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				select {
				case s.failed <- fmt.Errorf("serving %s: %w", site.host, err):
				default: // the first failure is enough
				}
			}
		}()
	}
	return s, nil
}

// Wait returns when ctx ends, after it closed all connections, or when a site fails.
func (s *Server) Wait(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
	case err = <-s.failed:
	}
	for _, server := range s.servers {
		server.Close()
	}
	return err
}

// redirectedHost is the host name in redirects. It must differ from the sites' address, and
// it must be a name: go-containerregistry does not follow a redirect from one host to the
// private IP address of another.
const redirectedHost = "localhost"

// spread returns the addresses of n sites; the first is listen.
func spread(listen string, n int) ([]string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("reading the address %q: %w", listen, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%q is not a loopback address: the served components are only for tests on this machine", host)
	}
	first, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("reading the port of %q: %w", listen, err)
	}
	var addresses []string
	for i := range uint64(n) {
		p := uint64(0)
		if first != 0 {
			p = first + i
		}
		addresses = append(addresses, net.JoinHostPort(host, strconv.FormatUint(p, 10)))
	}
	return addresses, nil
}

type accessLogger struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *accessLogger) wrap(host string, next http.Handler) http.Handler {
	if l.w == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		counted := &countingWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(counted, req)
		l.mu.Lock()
		defer l.mu.Unlock()
		fmt.Fprintf(l.w, "%s %s %s %d %d\n", req.Method, host, req.URL.Path, counted.status, counted.bytes)
	})
}

type countingWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (c *countingWriter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

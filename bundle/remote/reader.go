package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"airlift/internal/fault"
)

// Options say which bundle is read, and from where.
type Options struct {
	ID   string // of the bundle: sha256 of its trailer, in hex
	Size int64  // of the whole bundle in bytes
	// Servers returns the addresses, HOST:PORT, in the order in which they are tried. It is called again before
	// all are tried again.
	Servers func() []string
	// TLS verifies the servers, with a name that only they have, and may have a client certificate.
	TLS *tls.Config
	// Token is sent as a bearer token to servers that TLS has verified; "" for none.
	Token string
	// Wrap wraps the transport, for a log of requests; it may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Report receives a line when another server or another attempt is needed; it may be nil.
	Report func(line string)
}

// A Reader reads the bundle. Several goroutines may use it, one after the other: sequential reads need one
// response of a server for each chunk.
type Reader struct {
	options Options
	http    http.RoundTripper
	idle    func() // closes idle connections
	ctx     context.Context
	cancel  context.CancelFunc
	stall   time.Duration
	pause   time.Duration // before the second round, twice that before the third, and so on

	turn    chan struct{} // holds a value while a goroutine reads; guards what follows
	servers []string
	current int     // the server in use
	stream  *stream // open response, or nil
	last    []byte  // what was read last
	lastAt  int64
}

const (
	// chunk is the size of one range in bytes: about the content of 0.1 s on a fast network. Only its rest is
	// in flight when a caller needs no more.
	chunk = 8 << 20
	// stallTime is how long a server may send nothing.
	stallTime = 30 * time.Second
	// firstPause and rounds bound the attempts: all servers are tried 8 times within about a minute, and
	// then the read fails. So a restart of a control plane does not end it.
	firstPause = 500 * time.Millisecond
	maxPause   = 15 * time.Second
	rounds     = 8
	// maxLast limits what is kept of the last read. Readers of a part read its first piece twice.
	maxLast = 1 << 20
)

// Open returns a Reader. It connects to no server yet. When ctx is cancelled, reads fail. The caller must call Close.
func Open(ctx context.Context, o Options) (*Reader, error) {
	if o.TLS == nil || o.TLS.InsecureSkipVerify || o.TLS.ServerName == "" {
		return nil, errors.New("reading a bundle from a server needs a configuration of TLS that verifies it by its name")
	}
	transport := newTransport(o.TLS)
	r := &Reader{
		options: o, http: transport, idle: transport.CloseIdleConnections, stall: stallTime, pause: firstPause, turn: make(chan struct{}, 1),
	}
	if o.Wrap != nil {
		r.http = o.Wrap(transport)
	}
	if r.servers = o.Servers(); len(r.servers) == 0 {
		return nil, fault.New(fault.Failure, "no control plane is known from which the bundle can be read").Hint(hint)
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r, nil
}

// Close closes all connections. Reads then fail.
func (r *Reader) Close() error {
	r.cancel()
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.drop()
	r.idle()
	return nil
}

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(b []byte, at int64) (int, error) {
	if at < 0 {
		return 0, errors.New("reading at a negative offset")
	}
	n := int(min(int64(len(b)), max(0, r.options.Size-at)))
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	if err := r.ReadVerified(r.ctx, b[:n], at, func([]byte) bool { return true }); err != nil {
		return 0, err
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// ReadVerified reads len(b) bytes at an offset. It reads bytes that do not match again, from each server, and
// continues at another server after an error. The error lists what each server answered.
func (r *Reader) ReadVerified(ctx context.Context, b []byte, at int64, matches func([]byte) bool) error {
	if at < 0 || at+int64(len(b)) > r.options.Size {
		return fmt.Errorf("bytes %d to %d are not in the bundle of %d bytes", at, at+int64(len(b))-1, r.options.Size)
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.has(b, at) && matches(b) {
		return nil
	}
	if err := r.read(ctx, b, at, matches); err != nil {
		return err
	}
	if len(b) <= maxLast {
		r.last, r.lastAt = append(r.last[:0], b...), at
	}
	return nil
}

// has copies bytes of the last read to b. It returns false if they were not all in it.
func (r *Reader) has(b []byte, at int64) bool {
	from := at - r.lastAt
	if from < 0 || from+int64(len(b)) > int64(len(r.last)) {
		return false
	}
	copy(b, r.last[from:])
	return true
}

func (r *Reader) read(ctx context.Context, b []byte, at int64, matches func([]byte) bool) error {
	t := attempts{at: at, size: len(b), said: map[string]error{}}
	n, mixed := 0, false // mixed means that two servers sent the bytes
	for {
		more, err := r.fill(ctx, b[n:], at+int64(n))
		n += more
		switch {
		case err == nil && matches(b):
			return nil
		case err == nil && mixed: // read all of them from this server
			n, mixed = 0, false
			continue
		case err == nil:
			n, err = 0, refuse("bytes %d to %d do not match their sha256", at, at+int64(len(b))-1)
		}
		mixed = n > 0
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		if err := r.next(ctx, &t, err); err != nil {
			return err
		}
	}
}

// fill reads from the current server. It returns how many bytes it has read, also with an error.
func (r *Reader) fill(ctx context.Context, b []byte, at int64) (n int, err error) {
	if r.stream != nil && r.stream.next != at {
		r.drop()
	}
	for n < len(b) {
		if r.stream == nil {
			if err := r.request(ctx, at+int64(n)); err != nil {
				return n, err
			}
		}
		more, err := r.stream.read(ctx, b[n:], r.stall)
		n += more
		if err != nil {
			return n, err
		}
		if r.stream.left == 0 {
			r.drop() // the response is complete, so the connection stays
		}
	}
	return n, nil
}

func (r *Reader) drop() {
	if r.stream != nil {
		r.stream.close()
		r.stream = nil
	}
}

type attempts struct {
	at    int64
	size  int
	said  map[string]error // the last error of each server
	tried int              // servers tried in this round
	round int
}

// next moves to the next server after an error, or returns the error about all of them.
func (r *Reader) next(ctx context.Context, t *attempts, err error) error {
	r.drop()
	server := r.server()
	t.said[server] = err
	r.current++
	t.tried++
	if t.tried < len(r.servers) {
		r.report("%s: %v; reading from %s", server, err, r.server())
		return nil
	}
	t.round++
	if t.round == rounds || t.hopeless() {
		return r.failure(fmt.Sprintf("reading bytes %d to %d of the bundle", t.at, t.at+int64(t.size)-1), t.said)
	}
	r.report("%s: %v; trying again", server, err)
	select {
	case <-time.After(min(r.pause<<(t.round-1), maxPause)):
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	if servers := r.options.Servers(); len(servers) > 0 {
		r.servers = servers
	}
	t.tried = 0
	return nil
}

// hopeless reports whether no server will answer otherwise.
func (t *attempts) hopeless() bool {
	for _, err := range t.said {
		if final := (*refusal)(nil); !errors.As(err, &final) {
			return false
		}
	}
	return true
}

func (r *Reader) server() string { return r.servers[r.current%len(r.servers)] }

func (r *Reader) report(format string, args ...any) {
	if r.options.Report != nil {
		r.options.Report(fmt.Sprintf(format, args...))
	}
}

// hint is for errors about all servers.
const hint = "run 'registry enable' of the whole file on a control plane, or use the whole file on this host"

// hintToken is for a token that a server does not accept.
const hintToken = "create a new token on a control plane: ./install token create --print-join-command"

// failure returns the error that lists what each server answered.
func (r *Reader) failure(doing string, said map[string]error) error {
	var list bytes.Buffer
	help := hint
	for _, server := range r.servers {
		err := said[server]
		if err != nil {
			fmt.Fprintf(&list, "\n  - %s: %v", server, err)
		}
		if errors.Is(err, errCredential) && r.options.Token != "" {
			help = hintToken
		}
	}
	return fault.New(fault.Failure, "%s from the cluster's control planes:%s", doing, &list).Hint(help)
}

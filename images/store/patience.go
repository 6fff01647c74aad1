package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	versionapi "github.com/containerd/containerd/api/services/version/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Patience says how long containerd may take. A fixed time for each call would
// be too short for a large layer on a slow disk, or too long to notice a
// containerd that hangs. So a call that has not been answered for a while is
// followed by a question that is never slow; only if that is not answered
// either, containerd hangs.
type Patience struct {
	// Silence is how long a call may go without an answer before containerd is
	// asked for its version, and how long it may take to answer that. It is asked
	// again as often as this time passes.
	Silence time.Duration
	// Call is how long one call may take while containerd answers others.
	Call time.Duration
}

// usualPatience is for machines ten times slower than those that Airlift is
// measured on, where every answer comes within milliseconds, and a commit of
// the largest layer within two seconds.
var usualPatience = Patience{Silence: 30 * time.Second, Call: 15 * time.Minute}

// A noAnswer is the error of a call that was given up.
type noAnswer struct {
	text string
	hung bool // containerd answers nothing at all
}

func (e *noAnswer) Error() string { return e.text }
func (e *noAnswer) Unwrap() error { return context.DeadlineExceeded }

// GRPCStatus keeps the text where containerd's clients translate errors.
func (e *noAnswer) GRPCStatus() *status.Status { return status.New(codes.DeadlineExceeded, e.text) }

// hangs says whether err is about a containerd that answers nothing.
func hangs(err error) bool {
	e := (*noAnswer)(nil)
	return errors.As(err, &e) && e.hung
}

// versionMethod asks for containerd's version, which it knows by heart.
const versionMethod = "/containerd.services.version.v1.Version/Version"

// A call is one that waits for containerd's answer.
type call struct {
	store  *Store
	name   string // "Snapshots/Commit"
	began  time.Time
	giveUp context.CancelCauseFunc // ends the call, or the stream that it is a message of
	cause  func() error            // why it was ended

	watch *time.Timer
	ctx   context.Context // ends with the call
	done  context.CancelFunc
}

// begin begins to watch a call that is made with ctx and that giveUp ends.
func (s *Store) begin(ctx context.Context, giveUp context.CancelCauseFunc, method string) *call {
	c := &call{store: s, name: callName(method), began: time.Now(), giveUp: giveUp}
	c.cause = func() error { return context.Cause(ctx) }
	c.ctx, c.done = context.WithCancel(ctx)
	c.watch = time.AfterFunc(s.patience.Silence, c.check)
	return c
}

// callName is a method without its package: "Snapshots/Commit".
func callName(method string) string {
	service, name := path.Split(method)
	service = strings.Trim(service, "/")
	return service[strings.LastIndex(service, ".")+1:] + "/" + name
}

// check runs while a call goes unanswered.
func (c *call) check() {
	for c.ctx.Err() == nil {
		var err error
		if time.Since(c.began) > c.store.patience.Call {
			err = c.unanswered("although it answers other calls", false)
		} else if !c.store.alive(c.ctx) {
			err = c.unanswered("and does not answer other calls either", true)
		}
		if err != nil && c.ctx.Err() == nil {
			c.giveUp(err)
			return
		}
		select {
		case <-c.ctx.Done():
		case <-time.After(c.store.patience.Silence):
		}
	}
}

// alive says whether containerd answers within the time of its patience. A
// connection that is broken is no silence: the call will see that itself.
func (s *Store) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.patience.Silence)
	defer cancel()
	err := s.conn.Invoke(ctx, versionMethod, &emptypb.Empty{}, &versionapi.VersionResponse{})
	return status.Code(err) != codes.DeadlineExceeded
}

// end stops watching, and returns the error of a call that ended with err.
func (c *call) end(err error) error {
	c.watch.Stop()
	c.done()
	if err == nil {
		return nil
	}
	if e := (*noAnswer)(nil); errors.As(c.cause(), &e) {
		return e
	}
	if code := status.Code(err); code == codes.DeadlineExceeded && !errors.As(err, new(*noAnswer)) {
		return c.unanswered("in the time that it had", false)
	}
	return err
}

func (c *call) unanswered(detail string, hung bool) error {
	return &noAnswer{fmt.Sprintf("containerd at %s has not answered %s for %s, %s (see why: systemctl status containerd; journalctl -u containerd)",
		c.store.socket, c.name, time.Since(c.began).Round(time.Millisecond), detail), hung}
}

// unary is the way of all calls with one answer.
func (s *Store) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithCancelCause(namespaces.WithNamespace(ctx, namespace))
	defer cancel(nil)
	c := s.begin(ctx, cancel, method)
	if method == versionMethod {
		c.watch.Stop() // it is what would be asked meanwhile
	}
	return c.end(invoke(ctx, method, req, reply, conn, opts...))
}

// stream is the way of all calls with several messages.
func (s *Store) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancelCause(namespaces.WithNamespace(ctx, namespace))
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &watchedStream{stream, s, method, ctx, cancel}, nil
}

// A watchedStream is one whose every message is waited for like an answer: how
// long the whole takes depends on what is read or written.
type watchedStream struct {
	grpc.ClientStream
	store  *Store
	method string
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (w *watchedStream) SendMsg(m any) error {
	c := w.store.begin(w.ctx, w.cancel, w.method)
	return c.end(w.ClientStream.SendMsg(m))
}

func (w *watchedStream) RecvMsg(m any) error {
	c := w.store.begin(w.ctx, w.cancel, w.method)
	err := c.end(w.ClientStream.RecvMsg(m))
	if err != nil {
		w.cancel(nil) // the stream has ended
	}
	return err
}

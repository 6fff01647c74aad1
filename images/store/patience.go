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

// Patience has the time limits for containerd's answers. One time limit for each call
// would be too short for a large layer on a slow disk, or too long to notice that
// containerd hangs. So after some time without an answer, a second call asks for
// containerd's version, which is always fast. Only if that also gets no answer, containerd
// hangs.
type Patience struct {
	// Silence is the time after which a call without an answer is followed by a request
	// for the version, and the time limit of that request. It is repeated after the same
	// time.
	Silence time.Duration
	// Call is the time limit of a call while containerd answers others.
	Call time.Duration
}

// usualPatience is enough for machines ten times slower than the benchmark machines, where every
// answer comes within milliseconds and the commit of the largest layer within two seconds.
var usualPatience = Patience{Silence: 30 * time.Second, Call: 15 * time.Minute}

// A noAnswer is the error of a call without an answer.
type noAnswer struct {
	text string
	hung bool // containerd answers nothing at all
}

func (e *noAnswer) Error() string { return e.text }
func (e *noAnswer) Unwrap() error { return context.DeadlineExceeded }

// GRPCStatus keeps the text when containerd's clients translate the error.
func (e *noAnswer) GRPCStatus() *status.Status { return status.New(codes.DeadlineExceeded, e.text) }

// hangs reports whether err means that containerd answers nothing.
func hangs(err error) bool {
	e := (*noAnswer)(nil)
	return errors.As(err, &e) && e.hung
}

// versionMethod returns containerd's version, without access to the disk.
const versionMethod = "/containerd.services.version.v1.Version/Version"

// A call is a call that waits for containerd's answer.
type call struct {
	store  *Store
	name   string // "Snapshots/Commit"
	began  time.Time
	giveUp context.CancelCauseFunc // cancels the call, or the stream of the message
	cause  func() error            // why it was cancelled

	watch *time.Timer
	ctx   context.Context // ends with the call
	done  context.CancelFunc
}

// begin starts to watch a call with the context ctx; giveUp cancels the call.
func (s *Store) begin(ctx context.Context, giveUp context.CancelCauseFunc, method string) *call {
	c := &call{store: s, name: callName(method), began: time.Now(), giveUp: giveUp}
	c.cause = func() error { return context.Cause(ctx) }
	c.ctx, c.done = context.WithCancel(ctx)
	c.watch = time.AfterFunc(s.patience.Silence, c.check)
	return c
}

// callName is a method name without its package: "Snapshots/Commit".
func callName(method string) string {
	service, name := path.Split(method)
	service = strings.Trim(service, "/")
	return service[strings.LastIndex(service, ".")+1:] + "/" + name
}

// check runs while a call has no answer.
func (c *call) check() {
	for c.ctx.Err() == nil {
		var err error
		if time.Since(c.began) > c.store.patience.Call {
			err = c.unanswered("but it answers other calls", false)
		} else if !c.store.alive(c.ctx) {
			err = c.unanswered("and it does not answer other calls either", true)
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

// alive reports whether containerd answers within Patience.Silence. It returns true for a
// broken connection, because the call itself then fails.
func (s *Store) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.patience.Silence)
	defer cancel()
	err := s.conn.Invoke(ctx, versionMethod, &emptypb.Empty{}, &versionapi.VersionResponse{})
	return status.Code(err) != codes.DeadlineExceeded
}

// end stops the watch and returns the call's error.
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
		return c.unanswered("the time limit", false)
	}
	return err
}

func (c *call) unanswered(detail string, hung bool) error {
	return &noAnswer{fmt.Sprintf("containerd at %s has not answered %s for %s, %s (find the cause with: systemctl status containerd; journalctl -u containerd)",
		c.store.socket, c.name, time.Since(c.began).Round(time.Millisecond), detail), hung}
}

// unary intercepts all calls with one answer.
func (s *Store) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithCancelCause(namespaces.WithNamespace(ctx, namespace))
	defer cancel(nil)
	c := s.begin(ctx, cancel, method)
	if method == versionMethod {
		c.watch.Stop() // this is the request that check sends
	}
	return c.end(invoke(ctx, method, req, reply, conn, opts...))
}

// stream intercepts all calls with several messages.
func (s *Store) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancelCause(namespaces.WithNamespace(ctx, namespace))
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &watchedStream{stream, s, method, ctx, cancel}, nil
}

// A watchedStream watches each message like a call, because the duration of the whole
// stream depends on its data.
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

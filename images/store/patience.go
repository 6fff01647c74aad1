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

type noAnswer struct {
	text string
	hung bool // containerd answers nothing at all
}

func (e *noAnswer) Error() string { return e.text }
func (e *noAnswer) Unwrap() error { return context.DeadlineExceeded }

// GRPCStatus keeps the text when containerd's clients translate the error.
func (e *noAnswer) GRPCStatus() *status.Status { return status.New(codes.DeadlineExceeded, e.text) }

func hangs(err error) bool {
	e := (*noAnswer)(nil)
	return errors.As(err, &e) && e.hung
}

// versionMethod returns containerd's version, without access to the disk.
const versionMethod = "/containerd.services.version.v1.Version/Version"

// watch waits for the answer to a call with the context ctx; giveUp cancels the call.
func (s *Store) watch(ctx context.Context, giveUp context.CancelCauseFunc, method string, call func() error) error {
	began := time.Now()
	service, name := path.Split(method)
	service = strings.Trim(service, "/")
	name = service[strings.LastIndex(service, ".")+1:] + "/" + name // "Snapshots/Commit"
	unanswered := func(detail string, hung bool) error {
		return &noAnswer{fmt.Sprintf("containerd at %s has not answered %s for %s, %s (find the cause with: systemctl status containerd; journalctl -u containerd)",
			s.socket, name, time.Since(began).Round(time.Millisecond), detail), hung}
	}
	waits, answered := context.WithCancel(ctx)
	check := func() {
		for waits.Err() == nil {
			var err error
			if time.Since(began) > s.patience.Call {
				err = unanswered("but it answers other calls", false)
			} else if !s.alive(waits) {
				err = unanswered("and it does not answer other calls either", true)
			}
			if err != nil && waits.Err() == nil {
				giveUp(err)
				return
			}
			select {
			case <-waits.Done():
			case <-time.After(s.patience.Silence):
			}
		}
	}
	if method != versionMethod { // which check itself calls
		defer time.AfterFunc(s.patience.Silence, check).Stop()
	}
	err := call()
	answered()
	if err == nil {
		return nil
	}
	if e := (*noAnswer)(nil); errors.As(context.Cause(ctx), &e) {
		return e
	}
	if status.Code(err) == codes.DeadlineExceeded && !errors.As(err, new(*noAnswer)) {
		return unanswered("the time limit", false)
	}
	return err
}

// alive reports whether containerd answers within Patience.Silence. It returns true for a
// broken connection, because the call itself then fails.
func (s *Store) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.patience.Silence)
	defer cancel()
	err := s.conn.Invoke(ctx, versionMethod, &emptypb.Empty{}, &versionapi.VersionResponse{})
	return status.Code(err) != codes.DeadlineExceeded
}

func (s *Store) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithCancelCause(namespaces.WithNamespace(ctx, namespace))
	defer cancel(nil)
	return s.watch(ctx, cancel, method, func() error { return invoke(ctx, method, req, reply, conn, opts...) })
}

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
	return w.store.watch(w.ctx, w.cancel, w.method, func() error { return w.ClientStream.SendMsg(m) })
}

func (w *watchedStream) RecvMsg(m any) error {
	err := w.store.watch(w.ctx, w.cancel, w.method, func() error { return w.ClientStream.RecvMsg(m) })
	if err != nil {
		w.cancel(nil) // the stream has ended
	}
	return err
}

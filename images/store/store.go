package store

import (
	"context"
	"fmt"
	"net"
	"time"

	"airlift/fault"

	"github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// Socket is where containerd listens unless its configuration says
	// otherwise.
	Socket = "/run/containerd/containerd.sock"

	// namespace is the one the CRI keeps everything in.
	namespace = "k8s.io"

	// connectTimeout bounds Connect when the caller's context has no deadline.
	// containerd serves within a second even on slow disks; the rest is for a
	// daemon that has many containers to recover.
	connectTimeout = 60 * time.Second
)

// A Store is a running containerd.
type Store struct {
	client      *client.Client
	socket      string
	version     string
	snapshotter string
	cri         bool // whether the CRI is served
}

// Connect waits until containerd answers on socket and, where it serves the
// CRI, until that is ready too. It gives up when ctx ends or, if ctx has no
// deadline, after a minute.
func Connect(ctx context.Context, socket string) (*Store, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, connectTimeout)
		defer cancel()
	}
	s := &Store{socket: socket}
	if err := poll(ctx, 50*time.Millisecond, s.dial); err != nil {
		return nil, fault.Wrap(fmt.Errorf("connecting to containerd at %s: %w", socket, err), fault.Failure,
			"see why it does not start: systemctl status containerd; journalctl -u containerd")
	}
	return s, nil
}

// dial tries to connect once.
func (s *Store) dial(ctx context.Context) error {
	// A client made before the socket is there would wait out gRPC's backoff,
	// a second at first, before it looks again.
	probe, err := new(net.Dialer).DialContext(ctx, "unix", s.socket)
	if err != nil {
		return err
	}
	probe.Close()
	s.client, err = client.New(s.socket, client.WithDefaultNamespace(namespace))
	if err != nil {
		return err
	}
	if err := s.greet(ctx); err != nil {
		s.client.Close()
		return err
	}
	return nil
}

// greet asks containerd the questions that every use of it needs answered.
func (s *Store) greet(ctx context.Context) error {
	// A socket that accepts and never answers must not eat the whole wait.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v, err := s.client.Version(ctx)
	if err != nil {
		return err
	}
	s.version = v.Version
	s.snapshotter, err = s.criSnapshotter(ctx)
	switch {
	case status.Code(err) == codes.Unimplemented:
		// A containerd with the CRI plugin disabled, as Docker ships it.
		s.cri, s.snapshotter = false, defaultSnapshotter
		return nil
	case err != nil:
		return err
	}
	s.cri = true
	return nil
}

// Close closes the connection.
func (s *Store) Close() error { return s.client.Close() }

// conn is the connection under the client, which serves the CRI as well.
func (s *Store) conn() grpc.ClientConnInterface {
	return s.client.Conn().(grpc.ClientConnInterface)
}

func (s *Store) criImages() runtime.ImageServiceClient {
	return runtime.NewImageServiceClient(s.conn())
}

func (s *Store) criRuntime() runtime.RuntimeServiceClient {
	return runtime.NewRuntimeServiceClient(s.conn())
}

// poll calls try until it returns nil. When ctx ends first, the error says so
// and carries the last answer of try.
func poll(ctx context.Context, every time.Duration, try func(context.Context) error) error {
	start := time.Now()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w after %s; last seen: %w", ctx.Err(), time.Since(start).Round(time.Millisecond), err)
		case <-time.After(every):
		}
	}
}

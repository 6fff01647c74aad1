package store

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"airlift/fault"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	sandboxapi "github.com/containerd/containerd/api/services/sandbox/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	versionapi "github.com/containerd/containerd/api/services/version/v1"
	"github.com/containerd/containerd/v2/core/content"
	contentproxy "github.com/containerd/containerd/v2/core/content/proxy"
	"github.com/containerd/containerd/v2/core/leases"
	leasesproxy "github.com/containerd/containerd/v2/core/leases/proxy"
	"github.com/containerd/containerd/v2/core/snapshots"
	snapshotsproxy "github.com/containerd/containerd/v2/core/snapshots/proxy"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

	// maxMessage is the largest message containerd sends, in bytes (its
	// defaults.DefaultMaxRecvMsgSize).
	maxMessage = 16 << 20
)

// A Store is a running containerd.
//
// It is made of containerd's API and the thin clients over it. containerd's
// client package is not used: it brings the code that pulls from registries,
// which an installer for isolated hosts must not carry.
type Store struct {
	socket      string
	conn        *grpc.ClientConn
	version     string
	snapshotter string
	hasCRI      bool

	content    content.Store
	leases     leases.Manager
	snapshots  snapshots.Snapshotter
	images     imagesapi.ImagesClient
	containers containersapi.ContainersClient
	tasks      tasksapi.TasksClient
	sandboxes  sandboxapi.StoreClient
	criImages  criapi.ImageServiceClient
	criRuntime criapi.RuntimeServiceClient
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
	var s *Store
	err := poll(ctx, 50*time.Millisecond, func(ctx context.Context) (err error) {
		s, err = dial(ctx, socket)
		return err
	})
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("connecting to containerd at %s: %w", socket, err), fault.Failure,
			"see why it does not answer: systemctl status containerd; journalctl -u containerd")
	}
	return s, nil
}

// dial tries to connect once.
func dial(ctx context.Context, socket string) (*Store, error) {
	// A connection made before the socket is there would wait out gRPC's
	// backoff, a second at first, before it looks again.
	probe, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	probe.Close()
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithUnaryInterceptor(inNamespace), grpc.WithStreamInterceptor(streamInNamespace))
	if err != nil {
		return nil, err
	}
	s := &Store{
		socket:     socket,
		conn:       conn,
		content:    contentproxy.NewContentStore(conn),
		leases:     leasesproxy.NewLeaseManager(leasesapi.NewLeasesClient(conn)),
		images:     imagesapi.NewImagesClient(conn),
		containers: containersapi.NewContainersClient(conn),
		tasks:      tasksapi.NewTasksClient(conn),
		sandboxes:  sandboxapi.NewStoreClient(conn),
		criImages:  criapi.NewImageServiceClient(conn),
		criRuntime: criapi.NewRuntimeServiceClient(conn),
	}
	if err := s.greet(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	s.snapshots = snapshotsproxy.NewSnapshotter(snapshotsapi.NewSnapshotsClient(conn), s.snapshotter)
	return s, nil
}

// greet asks containerd the questions that every use of it needs answered.
func (s *Store) greet(ctx context.Context) error {
	// A socket that accepts and never answers must not eat the whole wait.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v, err := versionapi.NewVersionClient(s.conn).Version(ctx, &emptypb.Empty{})
	if err != nil {
		return err
	}
	s.version = strings.TrimPrefix(v.Version, "v") // upstream builds have it, Debian's not
	s.snapshotter, err = s.criSnapshotter(ctx)
	if status.Code(err) == codes.Unimplemented {
		// The CRI plugin is disabled, as in the containerd that Docker ships.
		s.snapshotter = defaultSnapshotter
		return nil
	}
	s.hasCRI = err == nil
	return err
}

// Close closes the connection.
func (s *Store) Close() error { return s.conn.Close() }

func inNamespace(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(namespaces.WithNamespace(ctx, namespace), method, req, reply, conn, opts...)
}

func streamInNamespace(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return stream(namespaces.WithNamespace(ctx, namespace), desc, conn, method, opts...)
}

// poll calls try until it returns nil. When ctx ends first, the error says so
// and carries the last answer of try that was not cut off by that.
func poll(ctx context.Context, every time.Duration, try func(context.Context) error) error {
	start := time.Now()
	// The network knows that a deadline has passed before ctx says so.
	ended := func() bool {
		deadline, ok := ctx.Deadline()
		return ctx.Err() != nil || ok && !time.Now().Before(deadline)
	}
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || !ended() {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w after %s; last seen: %w", ctx.Err(), time.Since(start).Round(time.Millisecond), last)
		case <-time.After(every):
		}
	}
}

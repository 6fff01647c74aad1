package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/internal/dialer"
	"airlift/internal/fault"
)

const (
	// namespace is the namespace of the CRI.
	namespace = "k8s.io"

	// connectTimeout limits Connect if the context has no deadline. containerd answers
	// within a second even on slow disks; the rest is for a containerd that has to
	// recover many containers.
	connectTimeout = 60 * time.Second

	// firstGreeting limits the first attempt to connect. Each later attempt may take
	// twice as long as the one before.
	firstGreeting = 5 * time.Second

	// maxMessage is the maximum size of containerd's messages in bytes (its
	// defaults.DefaultMaxRecvMsgSize).
	maxMessage = 16 << 20
)

// A Store is a connection to a running containerd.
//
// It uses containerd's API and the small clients for it, but not containerd's client
// package: that has code that pulls from registries, which the installer for isolated hosts
// must not link.
type Store struct {
	socket      string
	patience    Patience
	conn        *grpc.ClientConn
	version     string
	snapshotter string
	hasCRI      bool

	unpinned     bool
	beforeNaming func(context.Context, []NameChange) error // may be nil

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

// Connect waits until containerd answers on socket and, if the CRI is enabled, until the
// CRI is ready too. It waits until ctx ends or, if ctx has no deadline, for a minute.
func Connect(ctx context.Context, socket string) (*Store, error) {
	return ConnectWith(ctx, socket, usualPatience)
}

// ConnectWith is Connect with other time limits.
func ConnectWith(ctx context.Context, socket string, patience Patience) (*Store, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, connectTimeout)
		defer cancel()
	}
	var s *Store
	var other *NotContainerdError
	limit := firstGreeting
	err := poll(ctx, 50*time.Millisecond, func(ctx context.Context) (err error) {
		// A socket that accepts but never answers must not use up the whole time, and
		// a slow containerd must get enough time to answer.
		attempt, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		limit *= 2
		s, err = dial(attempt, socket, patience)
		if errors.As(err, &other) {
			return nil
		}
		return err
	})
	if other != nil {
		return nil, other
	}
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("connecting to containerd at %s: %w", socket, err), fault.Failure,
			"find the cause with: systemctl status containerd; journalctl -u containerd")
	}
	return s, nil
}

func dial(ctx context.Context, socket string, patience Patience) (*Store, error) {
	// If the socket does not exist, gRPC would wait for its backoff, at first one
	// second, before it tries again.
	probe, err := dialer.Dial(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	probe.Close()
	s := &Store{socket: socket, patience: patience}
	conn, err := grpc.NewClient("unix://"+socket, append(dialer.Options(ctx),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithUnaryInterceptor(s.unary), grpc.WithStreamInterceptor(s.stream))...)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	s.content = contentproxy.NewContentStore(conn)
	s.leases = leasesproxy.NewLeaseManager(leasesapi.NewLeasesClient(conn))
	s.images = imagesapi.NewImagesClient(conn)
	s.containers = containersapi.NewContainersClient(conn)
	s.tasks = tasksapi.NewTasksClient(conn)
	s.sandboxes = sandboxapi.NewStoreClient(conn)
	s.criImages = criapi.NewImageServiceClient(conn)
	s.criRuntime = criapi.NewRuntimeServiceClient(conn)
	if err := s.greet(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	s.snapshots = snapshotsproxy.NewSnapshotter(snapshotsapi.NewSnapshotsClient(conn), s.snapshotter)
	return s, nil
}

// NotContainerdError is the error of Connect if another container runtime answers.
type NotContainerdError struct {
	Socket, Name, Version string
}

func (e *NotContainerdError) Error() string {
	return fmt.Sprintf("the container runtime at %s is %s %s, and images can be imported only into containerd", e.Socket, e.Name, e.Version)
}

// greet requests what every use of containerd needs.
func (s *Store) greet(ctx context.Context) error {
	v, err := versionapi.NewVersionClient(s.conn).Version(ctx, &emptypb.Empty{})
	if status.Code(err) == codes.Unimplemented {
		if cri, criErr := s.criRuntime.Version(ctx, &criapi.VersionRequest{}); criErr == nil {
			return &NotContainerdError{s.socket, cri.RuntimeName, cri.RuntimeVersion}
		}
	}
	if err != nil {
		return err
	}
	s.version = strings.TrimPrefix(v.Version, "v") // Debian's builds have no v
	s.snapshotter, err = s.criSnapshotter(ctx)
	if status.Code(err) == codes.Unimplemented {
		// The CRI plugin is disabled, as in Docker's containerd.
		s.snapshotter = defaultSnapshotter
		return nil
	}
	s.hasCRI = err == nil
	return err
}

// LeaveUnpinned makes imports leave images to the kubelet's garbage collection. Images that
// are pinned already stay pinned.
func (s *Store) LeaveUnpinned() { s.unpinned = true }

// Socket returns the path of containerd's socket.
func (s *Store) Socket() string { return s.socket }

// Close closes the connection.
func (s *Store) Close() error { return s.conn.Close() }

// poll calls try until it returns nil. If ctx ends first, the error has the last error of
// try that was not caused by that.
func poll(ctx context.Context, every time.Duration, try func(context.Context) error) error {
	start := time.Now()
	// A call can see that the deadline has passed before ctx does.
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

package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	versionapi "github.com/containerd/containerd/api/services/version/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"airlift/images/store"
)

// names fails unless an error names the call, the socket, and the commands to find the cause.
func names(t *testing.T, err error, socket string, calls ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("not a deadline: %v", err)
	}
	named := false
	for _, call := range calls {
		named = named || strings.Contains(err.Error(), "has not answered "+call+" for ")
	}
	if !named || !strings.Contains(err.Error(), "containerd at "+socket) || !strings.Contains(err.Error(), "journalctl -u containerd") {
		t.Errorf("does not name %q at %s: %v", calls, socket, err)
	}
}

// A server that accepts connections and never answers.
func TestConnectToSilence(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = store.Connect(ctx, socket)
	names(t, err, socket, "Version/Version")
}

// Every call notices a containerd that is stopped.
func TestStoppedContainerd(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	d.connect()
	patience := store.Patience{Silence: 300 * time.Millisecond, Call: time.Hour}
	s, err := store.ConnectWith(t.Context(), d.socket, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	var p imageSet
	img := image(t, "/a", layer(t, text("a", "a")), layer(t, text("big", noise(1, 6<<20))))
	p.add(t, "registry.example.com/a:1", img, index(t, img))
	importAll(t, s, &p)
	var other imageSet
	other.add(t, "registry.example.com/b:1", image(t, "/b", layer(t, text("b", noise(2, 5<<20))), layer(t, text("b", "b"))), nil)
	im, err := s.NewImporter(ctx, other.images, store.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}

	signal := func(sig syscall.Signal) {
		if err := d.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	for stat := ""; !strings.Contains(stat, ") T "); time.Sleep(time.Millisecond) {
		stat = string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))))
	}
	defer signal(syscall.SIGCONT)
	for name, test := range map[string]struct {
		call  func() error
		calls []string
	}{
		"Missing":      {func() error { _, err := s.Missing(ctx, p.images); return err }, []string{"Images/Get"}},
		"NewImporter":  {func() error { _, err := s.NewImporter(ctx, p.images, store.ImportOptions{}); return err }, []string{"Leases/Create"}},
		"Tag":          {func() error { return s.Tag(ctx, "registry.example.com/a:1", "registry.example.com/c:1") }, []string{"Images/Get"}},
		"RemoveImages": {func() error { return s.RemoveImages(ctx, []string{"registry.example.com/a:1"}) }, []string{"Images/Get"}},
		"Info":         {func() error { _, err := s.Info(ctx); return err }, []string{"RuntimeService/Status"}},
		"RemovePods":   {func() error { return s.RemovePods(ctx) }, []string{"RuntimeService/ListPodSandbox"}},
		"Importer": {func() error {
			for _, e := range other.entries {
				if err := im.Blob(ctx, e, bytes.NewReader(other.blobs[e.Name])); err != nil {
					return err
				}
			}
			_, err := im.Finish(ctx)
			return err
		}, []string{"Content/Write", "Snapshots/Prepare", "Snapshots/Commit"}},
		"given less time": {func() error {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := s.Info(ctx)
			return err
		}, []string{"RuntimeService/Status"}},
	} {
		t.Run(name, func(t *testing.T) { names(t, test.call(), d.socket, test.calls...) })
	}
	t.Run("Close", func(t *testing.T) { names(t, im.Close(ctx), d.socket, "Leases/Delete") })

	signal(syscall.SIGCONT)
	assertMissing(t, s, &p)
}

// slowly serves what Connect needs, and a list of images after a delay.
func slowly(t *testing.T, list time.Duration) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		var answer proto.Message
		switch method {
		case "/containerd.services.version.v1.Version/Version":
			answer = &versionapi.VersionResponse{Version: "2.0.0"}
		case "/containerd.services.images.v1.Images/Get":
			select {
			case <-time.After(list):
			case <-stream.Context().Done():
			}
			answer = &imagesapi.GetImageResponse{Image: &imagesapi.Image{}}
		default:
			return status.Error(codes.Unimplemented, method)
		}
		return stream.SendMsg(answer)
	}))
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return socket
}

// A slow containerd may take its time; a call that never gets an answer fails.
func TestSlowContainerd(t *testing.T) {
	var p imageSet
	p.add(t, "registry.example.com/a:1", image(t, "/a", layer(t, text("a", "a"))), nil)
	missing := func(takes time.Duration, patience store.Patience) (string, error) {
		socket := slowly(t, takes)
		s, err := store.ConnectWith(t.Context(), socket, patience)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, err = s.Missing(t.Context(), p.images)
		return socket, err
	}
	if _, err := missing(4*time.Second, store.Patience{Silence: time.Second, Call: time.Hour}); err != nil {
		t.Errorf("a slow answer: %v", err)
	}
	socket, err := missing(time.Hour, store.Patience{Silence: time.Second, Call: 2 * time.Second})
	names(t, err, socket, "Images/Get")
}

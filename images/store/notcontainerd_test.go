package store_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/images/store"
)

// crio answers as CRI-O does: it has the CRI and nothing of containerd's API.
type crio struct {
	criapi.UnimplementedRuntimeServiceServer
}

func (crio) Version(context.Context, *criapi.VersionRequest) (*criapi.VersionResponse, error) {
	return &criapi.VersionResponse{Version: "0.1.0", RuntimeName: "cri-o", RuntimeVersion: "1.28.4", RuntimeApiVersion: "v1"}, nil
}

// TestConnectToAnotherRuntime: a runtime that is not containerd is named at once. Waiting
// does not make it containerd.
func TestConnectToAnotherRuntime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "crio.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	criapi.RegisterRuntimeServiceServer(server, crio{})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	_, err = store.Connect(t.Context(), socket)
	other := (*store.NotContainerdError)(nil)
	if !errors.As(err, &other) || *other != (store.NotContainerdError{Socket: socket, Name: "cri-o", Version: "1.28.4"}) {
		t.Errorf("%v", err)
	}
}

package store

import (
	"context"
	"slices"
	"testing"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime is a CRI with containers, by ID. One without a status was removed since it was listed.
type fakeRuntime struct {
	criapi.RuntimeServiceClient
	list   []*criapi.Container
	mounts map[string][]*criapi.Mount
}

func (f fakeRuntime) ListContainers(context.Context, *criapi.ListContainersRequest, ...grpc.CallOption) (*criapi.ListContainersResponse, error) {
	return &criapi.ListContainersResponse{Containers: f.list}, nil
}

func (f fakeRuntime) ContainerStatus(_ context.Context, r *criapi.ContainerStatusRequest, _ ...grpc.CallOption) (*criapi.ContainerStatusResponse, error) {
	mounts, ok := f.mounts[r.ContainerId]
	if !ok {
		return nil, status.Error(codes.NotFound, "no container")
	}
	return &criapi.ContainerStatusResponse{Status: &criapi.ContainerStatus{Mounts: mounts}}, nil
}

// fakeContainers are containerd's own.
type fakeContainers struct {
	containersapi.ContainersClient
	list []*containersapi.Container
}

func (f fakeContainers) List(context.Context, *containersapi.ListContainersRequest, ...grpc.CallOption) (*containersapi.ListContainersResponse, error) {
	return &containersapi.ListContainersResponse{Containers: f.list}, nil
}

// A container uses its own image and the images of its image volumes; a sandbox uses an image by
// name.
func TestUsers(t *testing.T) {
	volume := func(image string) *criapi.Mount {
		return &criapi.Mount{ContainerPath: "/volume", Image: &criapi.ImageSpec{Image: image}}
	}
	s := &Store{
		criRuntime: fakeRuntime{
			list: []*criapi.Container{{Id: "1", ImageRef: "sha256:app"}, {Id: "2", ImageRef: "sha256:app"}, {Id: "3", ImageRef: "sha256:app"}},
			mounts: map[string][]*criapi.Mount{
				"1": {{ContainerPath: "/etc/hosts", HostPath: "/var/lib/hosts"}, volume("sha256:model"), volume("sha256:model")},
				"2": {volume("registry.example/data:1"), volume("sha256:app")},
			},
		},
		containers: fakeContainers{list: []*containersapi.Container{{ID: "1", Image: "registry.example/app:1"}, {ID: "sandbox", Image: "registry.example/pause:1"}}},
	}
	users, err := s.users(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		img  Image
		want int
	}{
		{Image{ID: "sha256:app", Names: []string{"registry.example/app:1"}}, 3},
		{Image{ID: "sha256:model", Names: []string{"registry.example/model:1"}}, 1},
		{Image{ID: "sha256:data", Names: []string{"registry.example/data:1", "registry.example/data@sha256:x"}}, 1},
		{Image{ID: "sha256:pause", Names: []string{"registry.example/pause:1"}}, 1},
		{Image{ID: "sha256:spare", Names: []string{"registry.example/spare:1"}}, 0},
	} {
		using := slices.DeleteFunc(slices.Clone(users), func(u user) bool { return !u.uses(c.img) })
		if len(using) != c.want {
			t.Errorf("%s: used by %+v, want %d users", c.img.Name(), using, c.want)
		}
	}
}

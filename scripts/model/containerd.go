package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	contentapi "github.com/containerd/containerd/api/services/content/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	versionapi "github.com/containerd/containerd/api/services/version/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/installer/config"
	"airlift/installer/loadbalancer/agent"
)

// An imageStore is the data of a containerd: it survives a restart.
type imageStore struct {
	mu      sync.Mutex
	content map[string]*blob
	images  map[string]*imagesapi.Image
	leases  map[string]*leasesapi.Lease
}

type blob struct {
	data   []byte
	labels map[string]string
}

func newImageStore() *imageStore {
	return &imageStore{content: map[string]*blob{}, images: map[string]*imagesapi.Image{}, leases: map[string]*leasesapi.Lease{}}
}

// has reports whether a pod can use an image.
func (s *imageStore) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.images[name] != nil
}

// remove removes one of the records of a store.
func remove[T any](s *imageStore, records map[string]T, name string) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := records[name]; !exists {
		return nil, status.Errorf(codes.NotFound, "no such record %s: not found", name)
	}
	delete(records, name)
	return &emptypb.Empty{}, nil
}

// startContainerd starts containerd. The caller holds w.mu.
func (h *Host) startContainerd() error {
	if !h.exists("usr/local/bin/containerd") {
		return fmt.Errorf("there is no containerd")
	}
	if err := errors.Join(h.put(config.ContainerdSocket, "", 0o600), h.putProcess(containerdPID, "/usr/local/bin/containerd")); err != nil {
		return err
	}
	if !h.exists("var/lib/containerd/data") {
		h.store = newImageStore()
		if err := h.put("var/lib/containerd/data", "", 0o600); err != nil {
			return err
		}
	}
	server, service := grpc.NewServer(), &containerd{host: h, store: h.store}
	versionapi.RegisterVersionServer(server, service)
	contentapi.RegisterContentServer(server, contents{store: h.store})
	imagesapi.RegisterImagesServer(server, imageRecords{store: h.store})
	leasesapi.RegisterLeasesServer(server, leaseRecords{store: h.store})
	snapshotsapi.RegisterSnapshotsServer(server, snapshots{})
	containersapi.RegisterContainersServer(server, containers{})
	tasksapi.RegisterTasksServer(server, tasks{})
	criapi.RegisterRuntimeServiceServer(server, criRuntime{host: h})
	criapi.RegisterImageServiceServer(server, criImages{host: h, store: h.store})
	l := h.world.listen(h.Name + "|" + config.ContainerdSocket)
	h.world.done.Go(func() { _ = server.Serve(l) })
	h.endRuntime = server.Stop
	return nil
}

// stopContainerd stops containerd. The containers run on.
func (h *Host) stopContainerd() {
	h.endRuntime()
	h.world.mu.Lock()
	h.endRuntime = nil
	h.world.mu.Unlock()
	_ = os.Remove(h.hostPath(config.ContainerdSocket))
}

type containerd struct {
	versionapi.UnimplementedVersionServer
	host  *Host
	store *imageStore
}

func (containerd) Version(context.Context, *emptypb.Empty) (*versionapi.VersionResponse, error) {
	return &versionapi.VersionResponse{Version: "v2.4.2"}, nil
}

type criImages struct {
	criapi.UnimplementedImageServiceServer
	host  *Host
	store *imageStore
}

func (criImages) ImageFsInfo(context.Context, *criapi.ImageFsInfoRequest) (*criapi.ImageFsInfoResponse, error) {
	return &criapi.ImageFsInfoResponse{ImageFilesystems: []*criapi.FilesystemUsage{{FsId: &criapi.FilesystemIdentifier{Mountpoint: "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"}}}}, nil
}

func (s criImages) ImageStatus(_ context.Context, r *criapi.ImageStatusRequest) (*criapi.ImageStatusResponse, error) {
	if !s.store.has(r.GetImage().GetImage()) {
		return &criapi.ImageStatusResponse{}, nil
	}
	return &criapi.ImageStatusResponse{Image: &criapi.Image{Id: r.GetImage().GetImage()}}, nil
}

func (s criImages) ListImages(context.Context, *criapi.ListImagesRequest) (*criapi.ListImagesResponse, error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	list := &criapi.ListImagesResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.store.images)) {
		if !strings.HasPrefix(name, "sha256:") {
			list.Images = append(list.Images, &criapi.Image{Id: s.store.images[name].Target.Digest, RepoTags: []string{name}})
		}
	}
	return list, nil
}

type criRuntime struct {
	criapi.UnimplementedRuntimeServiceServer
	host *Host
}

const criConfig = `{"sandboxImage":"registry.k8s.io/pause:3.10.1","cni":{"binDirs":["/opt/cni/bin"],"confDir":"/etc/cni/net.d"},"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":true}}}}}`

func (criRuntime) Status(context.Context, *criapi.StatusRequest) (*criapi.StatusResponse, error) {
	return &criapi.StatusResponse{
		Status: &criapi.RuntimeStatus{Conditions: []*criapi.RuntimeCondition{{Type: criapi.RuntimeReady, Status: true}, {Type: criapi.NetworkReady, Status: true}}},
		Info:   map[string]string{"config": criConfig},
	}, nil
}

func (criRuntime) RuntimeConfig(context.Context, *criapi.RuntimeConfigRequest) (*criapi.RuntimeConfigResponse, error) {
	return &criapi.RuntimeConfigResponse{Linux: &criapi.LinuxRuntimeConfiguration{CgroupDriver: criapi.CgroupDriver_SYSTEMD}}, nil
}

func (c criRuntime) ListPodSandbox(context.Context, *criapi.ListPodSandboxRequest) (*criapi.ListPodSandboxResponse, error) {
	c.host.world.mu.Lock()
	defer c.host.world.mu.Unlock()
	list := &criapi.ListPodSandboxResponse{}
	for _, p := range c.host.pods {
		if !p.gone {
			list.Items = append(list.Items, &criapi.PodSandbox{Id: p.sandbox, Metadata: &criapi.PodSandboxMetadata{Name: c.host.podName(p), Namespace: "kube-system", Uid: p.uid}})
		}
	}
	if p := c.host.speaker; p != nil {
		list.Items = append(list.Items, &criapi.PodSandbox{Id: p.sandbox, Metadata: &criapi.PodSandboxMetadata{Name: p.name(), Namespace: agent.Namespace, Uid: p.uid}})
	}
	slices.SortFunc(list.Items, func(a, b *criapi.PodSandbox) int { return strings.Compare(a.Id, b.Id) })
	return list, nil
}

func (h *Host) podName(p *pod) string { return p.object.Name + "-" + h.Name }

func (c criRuntime) ListContainers(context.Context, *criapi.ListContainersRequest) (*criapi.ListContainersResponse, error) {
	c.host.world.mu.Lock()
	defer c.host.world.mu.Unlock()
	list := &criapi.ListContainersResponse{}
	for _, p := range c.host.pods {
		if p.container == nil || p.gone {
			continue
		}
		one := &criapi.Container{
			Id: p.container.id, PodSandboxId: p.sandbox, Metadata: &criapi.ContainerMetadata{Name: p.object.Spec.Containers[0].Name, Attempt: p.container.attempt},
			Image: &criapi.ImageSpec{Image: p.object.Spec.Containers[0].Image}, State: criapi.ContainerState_CONTAINER_RUNNING, CreatedAt: p.container.created.UnixNano(),
			Labels: map[string]string{"io.kubernetes.pod.name": c.host.podName(p), "io.kubernetes.pod.namespace": "kube-system", "io.kubernetes.pod.uid": p.uid},
		}
		if p.container.process == nil {
			one.State = criapi.ContainerState_CONTAINER_EXITED
		}
		list.Containers = append(list.Containers, one)
	}
	if p := c.host.speaker; p != nil {
		list.Containers = append(list.Containers, &criapi.Container{Id: "container-" + p.sandbox, PodSandboxId: p.sandbox, Metadata: &criapi.ContainerMetadata{Name: agent.Namespace},
			Image: &criapi.ImageSpec{Image: pauseImage}, State: criapi.ContainerState_CONTAINER_RUNNING, CreatedAt: p.created.UnixNano(),
			Labels: map[string]string{"io.kubernetes.pod.name": p.name(), "io.kubernetes.pod.namespace": agent.Namespace, "io.kubernetes.pod.uid": p.uid}})
	}
	slices.SortFunc(list.Containers, func(a, b *criapi.Container) int { return strings.Compare(a.Id, b.Id) })
	return list, nil
}

func (c criRuntime) ContainerStatus(_ context.Context, r *criapi.ContainerStatusRequest) (*criapi.ContainerStatusResponse, error) {
	c.host.world.mu.Lock()
	defer c.host.world.mu.Unlock()
	for _, p := range c.host.pods {
		if p.container != nil && p.container.id == r.ContainerId {
			return &criapi.ContainerStatusResponse{Status: &criapi.ContainerStatus{
				ExitCode: p.container.code, Reason: "Error", StartedAt: p.container.created.UnixNano(), FinishedAt: p.container.exited.UnixNano(), LogPath: "/var/log/pods/" + p.uid + "/0.log",
			}}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

// kill ends the container of a pod that matches.
func (h *Host) kill(is func(*pod) bool, removed bool) {
	var ended []process
	h.world.mu.Lock()
	for _, p := range h.pods {
		if !is(p) {
			continue
		}
		if p.container != nil && p.container.process != nil {
			ended = append(ended, p.container.process)
			p.container.stop(137)
			h.world.note("%s: stopped %s", h.Name, p.component)
			h.world.stops(h, p.component)
		}
		p.gone = p.gone || removed
		p.since = time.Now().Add(time.Second)
	}
	h.world.mu.Unlock()
	for _, p := range ended {
		p.end()
	}
}

func (c criRuntime) StopContainer(_ context.Context, r *criapi.StopContainerRequest) (*criapi.StopContainerResponse, error) {
	c.host.stopSpeaker(strings.TrimPrefix(r.ContainerId, "container-"))
	c.host.kill(func(p *pod) bool { return p.container != nil && p.container.id == r.ContainerId }, false)
	return &criapi.StopContainerResponse{}, nil
}

func (c criRuntime) StopPodSandbox(_ context.Context, r *criapi.StopPodSandboxRequest) (*criapi.StopPodSandboxResponse, error) {
	c.host.stopSpeaker(r.PodSandboxId)
	c.host.kill(func(p *pod) bool { return p.sandbox == r.PodSandboxId }, false)
	return &criapi.StopPodSandboxResponse{}, nil
}

func (c criRuntime) RemovePodSandbox(_ context.Context, r *criapi.RemovePodSandboxRequest) (*criapi.RemovePodSandboxResponse, error) {
	c.host.stopSpeaker(r.PodSandboxId)
	c.host.kill(func(p *pod) bool { return p.sandbox == r.PodSandboxId }, true)
	return &criapi.RemovePodSandboxResponse{}, nil
}

type snapshots struct {
	snapshotsapi.UnimplementedSnapshotsServer
}

func (snapshots) List(*snapshotsapi.ListSnapshotsRequest, snapshotsapi.Snapshots_ListServer) error {
	return nil
}

type containers struct {
	containersapi.UnimplementedContainersServer
}

func (containers) List(context.Context, *containersapi.ListContainersRequest) (*containersapi.ListContainersResponse, error) {
	return &containersapi.ListContainersResponse{}, nil
}

type tasks struct {
	tasksapi.UnimplementedTasksServer
}

// writes is effect for a change of containerd's data by a command that imports images.
func (s *imageStore) writes(ctx context.Context, what string) error {
	if r := runOf(ctx); r != nil && r.imports {
		return r.effect("/var/lib/containerd: " + what)
	}
	return nil
}

type leaseRecords struct {
	leasesapi.UnimplementedLeasesServer
	store *imageStore
}

func (l leaseRecords) Create(ctx context.Context, r *leasesapi.CreateRequest) (*leasesapi.CreateResponse, error) {
	if err := l.store.writes(ctx, "lease "+r.ID); err != nil {
		return nil, err
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.store.leases[r.ID] != nil {
		return nil, status.Error(codes.AlreadyExists, "the lease exists")
	}
	lease := &leasesapi.Lease{ID: r.ID, CreatedAt: timestamppb.Now(), Labels: r.Labels}
	l.store.leases[r.ID] = lease
	return &leasesapi.CreateResponse{Lease: lease}, nil
}

func (l leaseRecords) Delete(ctx context.Context, r *leasesapi.DeleteRequest) (*emptypb.Empty, error) {
	if err := l.store.writes(ctx, "no lease "+r.ID); err != nil {
		return nil, err
	}
	return remove(l.store, l.store.leases, r.ID)
}

func (l leaseRecords) List(context.Context, *leasesapi.ListRequest) (*leasesapi.ListResponse, error) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	list := &leasesapi.ListResponse{}
	for _, id := range slices.Sorted(maps.Keys(l.store.leases)) {
		list.Leases = append(list.Leases, l.store.leases[id])
	}
	return list, nil
}

func (leaseRecords) AddResource(context.Context, *leasesapi.AddResourceRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (leaseRecords) ListResources(context.Context, *leasesapi.ListResourcesRequest) (*leasesapi.ListResourcesResponse, error) {
	return &leasesapi.ListResourcesResponse{}, nil
}

type imageRecords struct {
	imagesapi.UnimplementedImagesServer
	store *imageStore
}

func (i imageRecords) Get(_ context.Context, r *imagesapi.GetImageRequest) (*imagesapi.GetImageResponse, error) {
	i.store.mu.Lock()
	defer i.store.mu.Unlock()
	if i.store.images[r.Name] == nil {
		return nil, status.Error(codes.NotFound, "no such image: not found")
	}
	return &imagesapi.GetImageResponse{Image: i.store.images[r.Name]}, nil
}

func (i imageRecords) List(_ context.Context, r *imagesapi.ListImagesRequest) (*imagesapi.ListImagesResponse, error) {
	i.store.mu.Lock()
	defer i.store.mu.Unlock()
	list := &imagesapi.ListImagesResponse{}
	for _, name := range slices.Sorted(maps.Keys(i.store.images)) {
		image := i.store.images[name]
		matches := len(r.Filters) == 0
		for _, f := range r.Filters {
			matches = matches || f == fmt.Sprintf("target.digest==%q", image.Target.Digest) || !strings.HasPrefix(f, "target.")
		}
		if matches {
			list.Images = append(list.Images, image)
		}
	}
	return list, nil
}

func (i imageRecords) Create(ctx context.Context, r *imagesapi.CreateImageRequest) (*imagesapi.CreateImageResponse, error) {
	if err := i.store.writes(ctx, "image "+r.Image.Name); err != nil {
		return nil, err
	}
	i.store.mu.Lock()
	defer i.store.mu.Unlock()
	if i.store.images[r.Image.Name] != nil {
		return nil, status.Error(codes.AlreadyExists, "the image exists: already exists")
	}
	i.store.images[r.Image.Name] = r.Image
	return &imagesapi.CreateImageResponse{Image: r.Image}, nil
}

func (i imageRecords) Update(ctx context.Context, r *imagesapi.UpdateImageRequest) (*imagesapi.UpdateImageResponse, error) {
	if err := i.store.writes(ctx, "image "+r.Image.Name); err != nil {
		return nil, err
	}
	i.store.mu.Lock()
	defer i.store.mu.Unlock()
	was := i.store.images[r.Image.Name]
	if was == nil {
		return nil, status.Error(codes.NotFound, "no such image: not found")
	}
	now := &imagesapi.Image{Name: was.Name, Labels: maps.Clone(was.Labels), Target: was.Target}
	if now.Labels == nil {
		now.Labels = map[string]string{}
	}
	for _, field := range r.GetUpdateMask().GetPaths() {
		if label, ok := strings.CutPrefix(field, "labels."); ok {
			if v := r.Image.Labels[label]; v != "" {
				now.Labels[label] = v
			} else {
				delete(now.Labels, label)
			}
		} else if field == "target" {
			now.Target = r.Image.Target
		}
	}
	i.store.images[r.Image.Name] = now
	return &imagesapi.UpdateImageResponse{Image: now}, nil
}

func (i imageRecords) Delete(ctx context.Context, r *imagesapi.DeleteImageRequest) (*emptypb.Empty, error) {
	if err := i.store.writes(ctx, "no image "+r.Name); err != nil {
		return nil, err
	}
	return remove(i.store, i.store.images, r.Name)
}

type contents struct {
	contentapi.UnimplementedContentServer
	store *imageStore
}

func (c contents) info(digest string) (*contentapi.Info, error) {
	b := c.store.content[digest]
	if b == nil {
		return nil, status.Error(codes.NotFound, "no such content: not found")
	}
	return &contentapi.Info{Digest: digest, Size: int64(len(b.data)), Labels: b.labels, CreatedAt: timestamppb.Now(), UpdatedAt: timestamppb.Now()}, nil
}

func (c contents) Info(_ context.Context, r *contentapi.InfoRequest) (*contentapi.InfoResponse, error) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	info, err := c.info(r.Digest)
	return &contentapi.InfoResponse{Info: info}, err
}

func (c contents) Update(_ context.Context, r *contentapi.UpdateRequest) (*contentapi.UpdateResponse, error) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	b := c.store.content[r.Info.Digest]
	if b == nil {
		return nil, status.Error(codes.NotFound, "no such content: not found")
	}
	b.labels = maps.Clone(b.labels)
	if b.labels == nil {
		b.labels = map[string]string{}
	}
	maps.Copy(b.labels, r.Info.Labels)
	info, err := c.info(r.Info.Digest)
	return &contentapi.UpdateResponse{Info: info}, err
}

func (c contents) Read(r *contentapi.ReadContentRequest, s contentapi.Content_ReadServer) error {
	c.store.mu.Lock()
	b := c.store.content[r.Digest]
	c.store.mu.Unlock()
	if b == nil {
		return status.Error(codes.NotFound, "no such content: not found")
	}
	end := int64(len(b.data))
	if r.Size > 0 {
		end = min(end, r.Offset+r.Size)
	}
	return s.Send(&contentapi.ReadContentResponse{Offset: r.Offset, Data: b.data[min(r.Offset, end):end]})
}

func (contents) ListStatuses(context.Context, *contentapi.ListStatusesRequest) (*contentapi.ListStatusesResponse, error) {
	return &contentapi.ListStatusesResponse{}, nil
}

func (contents) Status(context.Context, *contentapi.StatusRequest) (*contentapi.StatusResponse, error) {
	return nil, status.Error(codes.NotFound, "no such ingest: not found")
}

func (contents) Abort(context.Context, *contentapi.AbortRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (c contents) List(*contentapi.ListContentRequest, contentapi.Content_ListServer) error {
	return nil
}

// Write stores a blob, as a stream of its parts.
func (c contents) Write(s contentapi.Content_WriteServer) error {
	var data bytes.Buffer
	for {
		m, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		answer := &contentapi.WriteContentResponse{Action: m.Action, StartedAt: timestamppb.Now(), UpdatedAt: timestamppb.Now()}
		data.Write(m.Data)
		if m.Action == contentapi.WriteAction_COMMIT {
			answer.Digest = fmt.Sprintf("sha256:%x", sha256.Sum256(data.Bytes()))
			if m.Expected != "" && m.Expected != answer.Digest {
				return status.Error(codes.FailedPrecondition, "another digest")
			}
			if err := c.store.writes(s.Context(), "content"); err != nil {
				return err
			}
			c.store.mu.Lock()
			known := c.store.content[answer.Digest] != nil
			if !known {
				c.store.content[answer.Digest] = &blob{bytes.Clone(data.Bytes()), m.Labels}
			}
			c.store.mu.Unlock()
			if known {
				return status.Error(codes.AlreadyExists, "the content exists: already exists")
			}
		}
		answer.Offset = int64(data.Len())
		if err := s.Send(answer); err != nil {
			return err
		}
		if m.Action == contentapi.WriteAction_COMMIT {
			return nil
		}
	}
}

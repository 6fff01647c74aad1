package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/errdefs/pkg/errgrpc"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An Image is an image that the kubelet can use.
type Image struct {
	ID     string   // the digest of its config
	Digest string   // of its index, or of its manifest if there is no index
	Names  []string // full names with a tag or a digest, sorted
	// Size is the size of the image's layers in the registry, in bytes, as crictl prints it.
	Size   int64
	Pinned bool
	// Kind is Kubernetes or Site if an import created all names of the image. Otherwise it is
	// empty.
	Kind string
	// Containers is the number of containers and pods that use it, running or not, also as an
	// image volume.
	Containers int
	// Sandbox is set for the image of pods.
	Sandbox bool
}

// errNoCRI is the error for a containerd that the kubelet cannot use.
var errNoCRI = errors.New("containerd's CRI plugin is disabled")

// Images lists the images that the kubelet can use.
func (s *Store) Images(ctx context.Context) ([]Image, error) {
	if !s.hasCRI {
		return nil, fmt.Errorf("listing images: %w", errNoCRI)
	}
	records, err := s.records(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.criImages.ListImages(ctx, &criapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	users, err := s.users(ctx)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, i := range list.Images {
		img := Image{ID: i.Id, Names: slices.Concat(i.RepoTags, i.RepoDigests), Size: int64(i.Size)}
		slices.Sort(img.Names)
		img.describe(records)
		img.Sandbox = sandboxName(info.SandboxImage, img.Names)
		for _, u := range users {
			if u.uses(img) {
				img.Containers++
			}
		}
		all = append(all, img)
	}
	slices.SortFunc(all, func(a, b Image) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

// Name returns the name of an image for people: the first with a tag, or else with a digest,
// or else its ID.
func (i Image) Name() string {
	for _, n := range i.Names {
		if !strings.Contains(n, "@") {
			return n
		}
	}
	if len(i.Names) > 0 {
		return i.Names[0]
	}
	return i.ID
}

// describe sets what the records of an image's names show.
func (i *Image) describe(records map[string]record) {
	kinds := map[string]bool{}
	for _, name := range append([]string{i.ID}, i.Names...) {
		r, ok := records[name]
		if !ok {
			continue
		}
		i.Digest = r.target.Digest.String()
		i.Pinned = i.Pinned || r.labels[pinnedLabel] == recordLabels[pinnedLabel]
		kinds[r.labels[importedLabel]] = true
		i.Kind = r.labels[importedLabel]
	}
	if len(kinds) > 1 {
		i.Kind = ""
	}
}

// sandboxName reports whether an image has the name of the sandbox image. If containerd does not
// report its sandbox image, every image called pause may be it.
func sandboxName(configured string, names []string) bool {
	if named, err := parse(configured); err == nil && configured != "" {
		return slices.Contains(names, named.String())
	}
	return slices.ContainsFunc(names, func(n string) bool {
		named, err := parse(n)
		return err == nil && strings.HasSuffix(named.Name(), "/pause")
	})
}

func (s *Store) records(ctx context.Context) (map[string]record, error) {
	resp, err := s.images.List(ctx, &imagesapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing image records: %w", errgrpc.ToNative(err))
	}
	records := map[string]record{}
	for _, img := range resp.Images {
		records[img.Name] = fromAPI(img)
	}
	return records, nil
}

// A user is a container: of a pod, with the ID of its image, or any other, with a name of it.
type user struct {
	id, name string
	volumes  []string // IDs or names of the images that it mounts
}

func (u user) uses(img Image) bool {
	named := func(name string) bool { return name == img.ID || slices.Contains(img.Names, name) }
	return u.id == img.ID || u.id == "" && named(u.name) || slices.ContainsFunc(u.volumes, named)
}

// users lists what uses images. A pod's container is listed by the CRI with the ID of its image,
// because another image may have the name by now. Sandboxes and containers that the CRI does not
// know have a name.
func (s *Store) users(ctx context.Context) (users []user, err error) {
	list, err := s.criRuntime.ListContainers(ctx, &criapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	known := map[string]bool{}
	for _, c := range list.Containers {
		known[c.Id] = true
		volumes, err := s.imageVolumes(ctx, c.Id)
		if err != nil {
			return nil, err
		}
		users = append(users, user{id: c.ImageRef, volumes: volumes})
	}
	others, err := s.containers.List(ctx, &containersapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", errgrpc.ToNative(err))
	}
	for _, c := range others.Containers {
		if !known[c.ID] && c.Image != "" {
			users = append(users, user{name: c.Image})
		}
	}
	return users, nil
}

// imageVolumes returns the images that a pod's container mounts, as the kubelet named them: by ID.
// Only the status of each container has them.
func (s *Store) imageVolumes(ctx context.Context, container string) (images []string, err error) {
	reply, err := s.criRuntime.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: container})
	if ignoreNotFound(err) != nil { // it may have been removed since it was listed
		return nil, fmt.Errorf("getting the status of container %s: %w", container, err)
	}
	for _, m := range reply.GetStatus().GetMounts() {
		if image := m.GetImage().GetImage(); image != "" {
			images = append(images, image)
		}
	}
	return images, nil
}

// Remove removes an image with all its names, and waits until content that no other image
// uses is removed. It does nothing if the image is used by then or has other names.
func (s *Store) Remove(ctx context.Context, img Image) error {
	all, err := s.Images(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(a Image) bool { return a.ID == img.ID })
	switch {
	case i < 0:
		return nil
	case all[i].Containers > 0 || !slices.Equal(all[i].Names, img.Names):
		return fmt.Errorf("removing image %s: it is in use now, or its names have changed", img.Name())
	}
	// The ID is the last: with it, an interrupted removal can be continued.
	for _, name := range append(slices.Clone(img.Names), img.ID) {
		if err := s.removeRecord(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Unpin removes the label of pinned images from all names of an image.
func (s *Store) Unpin(ctx context.Context, img Image) error {
	for _, name := range append([]string{img.ID}, img.Names...) {
		r, err := s.record(ctx, name)
		if err != nil {
			return fmt.Errorf("looking for image record %s: %w", name, err)
		}
		if r.labels[pinnedLabel] == "" {
			continue
		}
		if err := s.updateRecord(ctx, name, r.target, map[string]string{pinnedLabel: ""}); err != nil {
			return fmt.Errorf("unpinning image record %s: %w", name, err)
		}
	}
	return nil
}

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	sandboxapi "github.com/containerd/containerd/api/services/sandbox/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// podTimeout is the maximum time between the removals of two pods. Containers are
	// killed at once; the time is for the cleanup of CNI plugins.
	podTimeout = 60 * time.Second

	// podsAtOnce is the number of pods that are removed in parallel. Each needs a few
	// short processes (the shim, the CNI plugins).
	podsAtOnce = 8
)

func (s *Store) listPods(ctx context.Context) ([]*criapi.PodSandbox, error) {
	list, err := s.criRuntime.ListPodSandbox(ctx, &criapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return list.Items, nil
}

// Pods lists the pods of the CRI, running or not, as namespace/name.
func (s *Store) Pods(ctx context.Context) ([]string, error) {
	if !s.hasCRI {
		return nil, nil
	}
	list, err := s.listPods(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range list {
		names = append(names, pod.GetMetadata().GetNamespace()+"/"+pod.GetMetadata().GetName())
	}
	slices.Sort(names)
	return names, nil
}

// RemovePods stops and removes all pods and their containers. The kubelet must be stopped,
// or it starts them again.
//
// If the CRI cannot remove a pod, for example because its CNI plugin is missing, its
// containers are killed and deleted through containerd. The CRI may list such pods until
// containerd is restarted, and changes of their CNI plugin outside the pod's network
// namespace remain.
func (s *Store) RemovePods(ctx context.Context) error {
	if !s.hasCRI {
		return nil
	}
	criErr := s.removeSandboxes(ctx)
	if ctx.Err() != nil || criErr == nil || hangs(criErr) {
		return criErr
	}
	if err := s.killContainers(ctx); err != nil {
		return errors.Join(criErr, err)
	}
	return nil
}

// removeSandboxes removes the pods through the CRI, as the kubelet does.
func (s *Store) removeSandboxes(ctx context.Context) error {
	list, err := s.listPods(ctx)
	if err != nil {
		return err
	}
	// Many pods on a slow machine may take long, as long as their number decreases.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(podTimeout, func() { cancel(fmt.Errorf("no pod was removed within %s", podTimeout)) })
	defer stalled.Stop()
	errs := make([]error, len(list))
	var group errgroup.Group
	group.SetLimit(podsAtOnce)
	for i, pod := range list {
		group.Go(func() error {
			err := s.removeSandbox(ctx, pod.Id)
			if err == nil {
				stalled.Reset(podTimeout)
			} else if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			if err != nil {
				errs[i] = fmt.Errorf("removing pod %s/%s: %w", pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), err)
			}
			return nil
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// RemovePod stops and removes one pod and its containers, if it exists. The kubelet must be
// stopped, or it starts them again.
func (s *Store) RemovePod(ctx context.Context, namespace, name string) error {
	list, err := s.listPods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range list {
		if pod.GetMetadata().GetNamespace() != namespace || pod.GetMetadata().GetName() != name {
			continue
		}
		if err := s.removeSandbox(ctx, pod.Id); err != nil {
			return fmt.Errorf("removing pod %s/%s: %w", namespace, name, err)
		}
	}
	return nil
}

func (s *Store) removeSandbox(ctx context.Context, id string) error {
	if _, err := s.criRuntime.StopPodSandbox(ctx, &criapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	_, err := s.criRuntime.RemovePodSandbox(ctx, &criapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// killContainers deletes the remaining pods without the CRI. Other containers in the CRI's
// namespace do not have its label and stay.
func (s *Store) killContainers(ctx context.Context) error {
	list, err := s.containers.List(ctx, &containersapi.ListContainersRequest{Filters: []string{`labels."io.cri-containerd.kind"`}})
	if err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	var errs []error
	for _, c := range list.Containers {
		if err := s.killContainer(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("killing container %s: %w", c.ID, err))
		}
	}
	// Since 1.7 containerd also has records of sandboxes.
	sandboxes, err := s.sandboxes.List(ctx, &sandboxapi.StoreListRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented {
		errs = append(errs, fmt.Errorf("listing sandboxes: %w", err))
	}
	for _, sandbox := range sandboxes.GetList() {
		_, err := s.sandboxes.Delete(ctx, &sandboxapi.StoreDeleteRequest{SandboxID: sandbox.SandboxID})
		if ignoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting sandbox %s: %w", sandbox.SandboxID, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) killContainer(ctx context.Context, c *containersapi.Container) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	_, err := s.tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: c.ID, Signal: uint32(unix.SIGKILL), All: true})
	if ignoreNotFound(err) != nil {
		return err
	}
	if _, err := s.tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: c.ID}); ignoreNotFound(err) != nil {
		return err
	}
	if _, err := s.tasks.Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: c.ID}); ignoreNotFound(err) != nil {
		return err
	}
	// The container's snapshot is garbage collected with it.
	if _, err := s.containers.Delete(ctx, &containersapi.DeleteContainerRequest{ID: c.ID}); ignoreNotFound(err) != nil {
		return err
	}
	var spec specs.Spec
	if err := json.Unmarshal(c.Spec.GetValue(), &spec); err != nil {
		return fmt.Errorf("decoding its spec: %w", err)
	}
	return removeNetNS(&spec)
}

// ignoreNotFound returns nil for an object that no longer exists.
func ignoreNotFound(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// removeNetNS removes the network namespace that the CRI created for a pod. A pod on the
// host's network has none; the containers of a pod share one.
func removeNetNS(spec *specs.Spec) error {
	if spec.Linux == nil {
		return nil
	}
	for _, ns := range spec.Linux.Namespaces {
		// The prefix is the CRI's (containerd's pkg/netns).
		if ns.Type != specs.NetworkNamespace || !strings.HasPrefix(filepath.Base(ns.Path), "cni-") {
			continue
		}
		err := unix.Unmount(ns.Path, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmounting network namespace %s: %w", ns.Path, err)
		}
		if err := os.Remove(ns.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

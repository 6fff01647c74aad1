package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// podTimeout bounds the removal of one pod through the CRI. Containers
	// are killed at once; the time is for CNI plugins that have to tidy up.
	podTimeout = 30 * time.Second

	// podsAtOnce is how many pods are removed at a time. Each one is a few
	// short processes (the shim, the CNI plugins).
	podsAtOnce = 8
)

// RemovePods stops and removes all pods with their containers. The kubelet
// must be stopped, or it starts them again.
//
// Pods that the CRI cannot remove (their CNI plugin is gone, say) are killed
// and deleted under it. The CRI may go on listing those until containerd is
// started anew, and what their CNI plugin did outside the pod's own network
// namespace remains.
func (s *Store) RemovePods(ctx context.Context) error {
	if !s.cri {
		return nil
	}
	criErr := s.removeSandboxes(ctx)
	if ctx.Err() != nil || criErr == nil {
		return criErr
	}
	if err := s.killContainers(ctx); err != nil {
		return errors.Join(criErr, err)
	}
	return nil
}

// removeSandboxes removes the pods as the kubelet would.
func (s *Store) removeSandboxes(ctx context.Context) error {
	list, err := s.criRuntime().ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	errs := make([]error, len(list.Items))
	var group errgroup.Group
	group.SetLimit(podsAtOnce)
	for i, pod := range list.Items {
		group.Go(func() error {
			if err := s.removeSandbox(ctx, pod.Id); err != nil {
				errs[i] = fmt.Errorf("removing pod %s/%s: %w", pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), err)
			}
			return nil
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (s *Store) removeSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	if _, err := s.criRuntime().StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	_, err := s.criRuntime().RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// killContainers deletes what pods are left, bypassing the CRI.
func (s *Store) killContainers(ctx context.Context) error {
	containers, err := s.client.Containers(ctx)
	if err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	var errs []error
	for _, c := range containers {
		if err := killContainer(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("killing container %s: %w", c.ID(), err))
		}
	}
	// Since 1.7 containerd has records of sandboxes beside their containers.
	sandboxes, err := s.client.SandboxStore().List(ctx)
	if err != nil && !errdefs.IsNotImplemented(err) {
		errs = append(errs, fmt.Errorf("listing sandboxes: %w", err))
	}
	for _, sandbox := range sandboxes {
		if err := s.client.SandboxStore().Delete(ctx, sandbox.ID); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting sandbox %s: %w", sandbox.ID, err))
		}
	}
	return errors.Join(errs...)
}

func killContainer(ctx context.Context, c client.Container) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	spec, err := c.Spec(ctx)
	if err != nil {
		return err
	}
	task, err := c.Task(ctx, nil)
	if err == nil {
		_, err = task.Delete(ctx, client.WithProcessKill)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	err = c.Delete(ctx, client.WithSnapshotCleanup)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return removeNetNS(spec)
}

// removeNetNS removes the network namespace that the CRI made for a pod. A pod
// on the host's network has none, and the pod's containers share one.
func removeNetNS(spec *oci.Spec) error {
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

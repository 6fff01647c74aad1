package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"
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
// must be stopped, or it starts them again. Pods that the CRI cannot remove
// (a CNI plugin that is gone, say) are killed and deleted under it; what their
// network left on the host remains then.
func (s *Store) RemovePods(ctx context.Context) error {
	if !s.cri {
		return nil
	}
	criErr := s.removeSandboxes(ctx)
	if ctx.Err() != nil {
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

// killContainers deletes what containers are left, bypassing the CRI.
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
	return errors.Join(errs...)
}

func killContainer(ctx context.Context, c client.Container) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
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
	return nil
}

package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Container is a container of a pod, running or not.
type Container struct {
	ID        string
	Namespace string // of the pod
	Pod       string
	PodUID    string // another one for each version of a static pod's manifest
	Name      string
	Created   time.Time
	Exited    bool
	// Unstarted is set before the runtime starts the process. StopContainer does not stop such a container.
	Unstarted bool
	// Attempt counts the starts of the container in this pod: 0 for the first.
	Attempt uint32
	// Image is the image's name in the pod, or the ID of its image.
	Image string
}

// An Exit is how a container ended.
type Exit struct {
	Code     int32
	Reason   string // "Error", "OOMKilled", "StartError", …
	Message  string // of the runtime, mostly empty
	Started  time.Time
	Finished time.Time
	LogPath  string // the container's log file
}

// Labels that the kubelet sets (k8s.io/kubelet/pkg/types).
const (
	podNameLabel      = "io.kubernetes.pod.name"
	podNamespaceLabel = "io.kubernetes.pod.namespace"
	podUIDLabel       = "io.kubernetes.pod.uid"
)

// Containers lists the containers of the kubelet's pods. Of the exited containers, the kubelet
// keeps the newest attempt of each.
func (s *Store) Containers(ctx context.Context) ([]Container, error) {
	if !s.hasCRI {
		return nil, nil
	}
	list, err := s.criRuntime.ListContainers(ctx, &criapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	var containers []Container
	for _, c := range list.Containers {
		containers = append(containers, Container{
			ID: c.Id, Namespace: c.Labels[podNamespaceLabel], Pod: c.Labels[podNameLabel], PodUID: c.Labels[podUIDLabel],
			Name: c.GetMetadata().GetName(), Created: time.Unix(0, c.CreatedAt), Exited: c.State == criapi.ContainerState_CONTAINER_EXITED,
			Unstarted: c.State == criapi.ContainerState_CONTAINER_CREATED,
			Attempt:   c.GetMetadata().GetAttempt(), Image: cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage()),
		})
	}
	return containers, nil
}

// Exit returns how a container ended.
func (s *Store) Exit(ctx context.Context, id string) (Exit, error) {
	reply, err := s.criRuntime.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return Exit{}, fmt.Errorf("getting the status of container %s: %w", id, err)
	}
	c := reply.GetStatus()
	return Exit{
		Code: c.GetExitCode(), Reason: c.GetReason(), Message: c.GetMessage(),
		Started: time.Unix(0, c.GetStartedAt()), Finished: time.Unix(0, c.GetFinishedAt()), LogPath: c.GetLogPath(),
	}, nil
}

// StopContainer stops a container: its process gets the signal to end and this time before it is
// killed. The kubelet starts the container of a running pod again.
func (s *Store) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := s.criRuntime.StopContainer(ctx, &criapi.StopContainerRequest{ContainerId: id, Timeout: int64(grace / time.Second)})
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("stopping container %s: %w", id, err)
	}
	return nil
}

package status

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/images/store"
	"airlift/installer/cluster/health"
	"airlift/installer/endpoint"
	"airlift/installer/gpucheck"
	"airlift/installer/node"
	"airlift/installer/redact"
	"airlift/installer/registry"
	"airlift/installer/runtimecheck"
	"airlift/installer/serving"
	"airlift/installer/staticpod"
)

// A Component is a process of the node: a unit of systemd, or a container.
type Component struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"` // unit, static-pod or pod
	Version string `json:"version,omitempty"`
	State   string `json:"state"` // running, exited, missing, or systemd's state of a unit
	// Since is when it started, or when it ended.
	Since    *time.Time `json:"since,omitempty"`
	Restarts uint32     `json:"restarts"`
	Healthy  bool       `json:"healthy"`
	Reason   string     `json:"reason,omitempty"` // if it is not healthy
}

// Kinds of components.
const (
	unit      = "unit"
	staticPod = "static-pod"
	pod       = "pod"
)

// systemNamespaces have the containers of the cluster's components.
var systemNamespaces = []string{"kube-system", "kube-flannel"}

func (r *Reader) readComponents(ctx context.Context) (found result, err error) {
	var list []Component
	var mu sync.Mutex
	var wg sync.WaitGroup
	add := func(c Component) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, c)
	}
	wg.Go(func() { add(r.kubelet(ctx)) })
	wg.Go(func() { add(r.containerd(ctx)) })
	if node.FileExists(r.Host, endpoint.SettingsPath) {
		wg.Go(func() { add(r.endpointService(ctx)) })
	}
	if node.FileExists(r.Host, registry.SettingsPath) {
		wg.Go(func() { add(r.service(ctx, strings.TrimSuffix(registry.Unit, ".service"))) })
	}
	if node.FileExists(r.Host, serving.SettingsPath) {
		wg.Go(func() { add(r.service(ctx, strings.TrimSuffix(serving.Unit, ".service"))) })
	}
	var fromContainers []Component
	wg.Go(func() { fromContainers, err = r.containers(ctx) })
	var files []runtimecheck.Problem
	wg.Go(func() { files, _ = node.ContainerdFiles(ctx, r.Host) }) // the component containerd shows that it does not answer
	wg.Wait()
	slices.SortFunc(list, func(a, b Component) int { return cmp.Compare(a.Name, b.Name) })
	list = append(list, fromContainers...)
	found.set = func(s *Status) { s.Components = list }
	for _, c := range list {
		if c.Healthy {
			continue
		}
		fix := "see its log below /var/log/pods"
		if c.Kind == unit {
			fix = "systemctl status " + c.Name + "; journalctl -u " + c.Name + " -e"
		}
		found.problem(fix, "%s is not healthy: %s", c.Name, c.Reason)
	}
	for _, p := range files {
		if p.Warning {
			found.warn(p.Fix, "%s", p.Message).Name = ContainerdFiles
		} else {
			found.problem(p.Fix, "after its next start, containerd would not serve this node: %s", p.Message).Name = ContainerdFiles
		}
	}
	for _, p := range gpucheck.OnHost(r.Host.Path("/")) {
		if !p.Minor {
			found.warn(p.Fix, "%s", p.Message).Name = GPU
		}
	}
	return found, err
}

func (r *Reader) service(ctx context.Context, name string) Component {
	c := Component{Name: name, Kind: unit, Version: node.BinaryVersion(ctx, r.Host, name)}
	state, err := r.Host.Systemd().Unit(ctx, name+".service")
	if err != nil {
		c.State, c.Reason = "unknown", oneLine(err)
		return c
	}
	c.State, c.Restarts = state.Sub, state.Restarts
	if !state.Since.IsZero() {
		c.Since = &state.Since
	}
	switch {
	case state.Load == "not-found":
		c.State, c.Reason = "missing", "there is no unit "+name+".service"
	case !state.Running():
		c.Reason = "its unit is " + state.String()
		if state.Exit != nil {
			c.Since = &state.Exit.Finished
		}
	default:
		c.Healthy = true
	}
	return c
}

func (r *Reader) kubelet(ctx context.Context) Component {
	c := r.service(ctx, "kubelet")
	settings, err := node.KubeletConfiguration(r.Host)
	if err != nil {
		settings = &kubeletv1.KubeletConfiguration{} // a kubelet with a damaged file does not run
	}
	if url := node.KubeletHealth(settings); c.Healthy && url != "" {
		if err := health.Check(ctx, url); err != nil {
			c.Healthy, c.Reason = false, oneLine(err)
		}
	}
	return c
}

func (r *Reader) containerd(ctx context.Context) Component {
	c := r.service(ctx, "containerd")
	if c.State == "missing" {
		socket, _ := node.RuntimeSocket(r.Host)
		c.Reason = "there is no unit containerd.service; the kubelet uses the container runtime at " + socket
	}
	runtime, err := node.OpenRuntime(ctx, r.Host)
	if err != nil {
		if c.Healthy {
			c.Healthy, c.Reason = false, oneLine(err)
		}
		return c
	}
	defer runtime.Close()
	info, err := runtime.Info(ctx)
	switch {
	case err != nil:
		c.Healthy, c.Reason = false, oneLine(err)
		return c
	case !info.CRI:
		c.Healthy, c.Reason = false, "its CRI plugin is disabled"
	case !info.Runtime.Ready:
		c.Healthy, c.Reason = false, "it is not ready to run containers: "+info.Runtime.Message
	case c.State == "missing": // it runs without a unit of this name
		c.State, c.Healthy, c.Reason = "running", true, ""
	}
	c.Version = info.Version
	return c
}

// containers lists the static pods of this node and the containers of the cluster's
// components, whether they run or not.
func (r *Reader) containers(ctx context.Context) (list []Component, err error) {
	newest := map[string]store.Container{}
	starts := map[string]uint32{}
	health := r.health(ctx)
	runtime, err := node.OpenRuntime(ctx, r.Host)
	var all []store.Container
	if err == nil {
		defer runtime.Close()
		all, err = runtime.Containers(ctx)
	}
	for _, k := range all {
		static := slices.ContainsFunc(r.node.Pods, func(p *staticpod.Pod) bool { return runs(p, k) })
		if !static && !slices.Contains(systemNamespaces, k.Namespace) {
			continue
		}
		id := k.Namespace + "/" + k.Pod + "/" + k.Name
		starts[id] = max(starts[id], k.Attempt)
		if have, ok := newest[id]; !ok || have.Created.Before(k.Created) {
			newest[id] = k
		}
	}
	unknown := func(c *Component) {
		c.State, c.Reason = "unknown", oneLine(err)
	}
	seen := map[string]bool{}
	for _, p := range r.node.Pods {
		c := Component{Name: p.Name, Kind: staticPod, Version: tag(p.Image), State: "missing", Reason: "the kubelet has not started it"}
		switch {
		case p.Err != nil:
			c.Reason = oneLine(p.Err)
		case err != nil:
			unknown(&c)
		}
		for id, k := range newest {
			if runs(p, k) {
				seen[id] = true
				r.describe(ctx, runtime, k, &c)
			}
		}
		// The health check needs no container runtime.
		if p.Err == nil && p.Health != "" && (c.Healthy || err != nil) {
			if failed := health(p.Name); failed != nil {
				c.Healthy, c.Reason = false, oneLine(failed)
			} else {
				c.State, c.Healthy, c.Reason = "running", true, ""
			}
		}
		list = append(list, c)
	}
	var others []Component
	for id, k := range newest {
		if seen[id] {
			continue
		}
		c := Component{Name: k.Name, Kind: pod, Restarts: starts[id]}
		if done := r.describe(ctx, runtime, k, &c); !done {
			others = append(others, c)
		}
	}
	slices.SortFunc(others, func(a, b Component) int { return cmp.Compare(a.Name, b.Name) })
	if err != nil && r.node.Role == node.ControlPlane {
		err = nil // the health checks of the static pods show more, and containerd's row has the reason
	}
	return append(list, others...), err
}

// runs reports whether a container is the first one of a static pod. The user's own static pods may
// have other names than their files.
func runs(p *staticpod.Pod, k store.Container) bool {
	if p.Err != nil { // it cannot be read, and may be one of kubeadm's
		return slices.Contains(systemNamespaces, k.Namespace) && k.Name == p.Name && strings.HasPrefix(k.Pod, p.Name+"-")
	}
	return k.Namespace == p.Namespace && k.Name == p.Container && strings.HasPrefix(k.Pod, p.Pod+"-")
}

// health starts the health checks of the static pods, which do not need the container runtime.
// The result waits for the check of one.
func (r *Reader) health(ctx context.Context) func(name string) error {
	checks := map[string]chan error{}
	for _, p := range r.node.Pods {
		if p.Err != nil || p.Health == "" {
			continue
		}
		done := make(chan error, 1)
		checks[p.Name] = done
		go func() { done <- health.Check(ctx, p.Health) }()
	}
	return func(name string) error { return <-checks[name] }
}

// describe sets the runtime's facts about a container. done reports that the container has ended as
// intended, such as a container that prepares a pod.
func (r *Reader) describe(ctx context.Context, runtime *store.Store, k store.Container, c *Component) (done bool) {
	exit, err := runtime.Exit(ctx, k.ID)
	if err != nil {
		c.State, c.Reason = "unknown", oneLine(err)
		return false
	}
	c.Version = cmp.Or(c.Version, tag(k.Image))
	c.Restarts = max(c.Restarts, k.Attempt)
	if !k.Exited {
		c.State, c.Healthy, c.Reason, c.Since = "running", true, "", &exit.Started
		return false
	}
	c.State, c.Since, c.Healthy = "exited", &exit.Finished, false
	c.Reason = fmt.Sprintf("it exited with code %d", exit.Code)
	if exit.Reason != "" && exit.Reason != "Error" && exit.Reason != "Completed" {
		c.Reason += " (" + exit.Reason + ")"
	}
	if lines := redact.LogTail(r.Host.Path(exit.LogPath), 1); len(lines) > 0 {
		c.Reason += "; the last line of its log: " + lines[0]
	}
	return exit.Code == 0
}

func tag(image string) string {
	image, _, _ = strings.Cut(path.Base(image), "@")
	_, version, _ := strings.Cut(image, ":")
	if len(version) == 64 { // an ID
		return ""
	}
	return version
}

package status

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/images/store"
	"airlift/installer/cluster/health"
	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/redact"
	"airlift/installer/registry"
	"airlift/installer/render"
	"airlift/installer/staticpod"
	"airlift/internal/childprocess"
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
	if r.node.role == NoNode {
		return found, notHere{"this host is not a node of a cluster"}
	}
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
	if exists(r.Host, endpoint.SettingsPath) {
		wg.Go(func() { add(r.endpointService(ctx)) })
	}
	if exists(r.Host, registry.SettingsPath) {
		wg.Go(func() { add(r.service(ctx, strings.TrimSuffix(registry.Unit, ".service"))) })
	}
	var fromContainers []Component
	wg.Go(func() { fromContainers, err = r.containers(ctx) })
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
	return found, err
}

func (r *Reader) service(ctx context.Context, name string) Component {
	c := Component{Name: name, Kind: unit, Version: r.BinaryVersion(ctx, name)}
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
	if url := kubeletHealth(r.Host); c.Healthy && url != "" {
		if err := health.Check(ctx, url); err != nil {
			c.Healthy, c.Reason = false, oneLine(err)
		}
	}
	return c
}

// kubeletHealth returns the URL of the kubelet's health check on this host, or "" if its configuration
// disables the check.
func kubeletHealth(h *host.Host) string {
	written := struct {
		HealthzPort        *int32 `json:"healthzPort"`
		HealthzBindAddress string `json:"healthzBindAddress"`
	}{}
	if data, err := os.ReadFile(h.Path(KubeletConfigFile(h))); err == nil {
		_ = yaml.Unmarshal(data, &written) // a kubelet with a file that is not YAML does not run
	}
	port := int32(config.KubeletHealthzPort)
	if written.HealthzPort != nil {
		port = *written.HealthzPort
	}
	if port == 0 {
		return ""
	}
	return "http://" + net.JoinHostPort(cmp.Or(written.HealthzBindAddress, "127.0.0.1"), strconv.Itoa(int(port))) + "/healthz"
}

func (r *Reader) containerd(ctx context.Context) Component {
	c := r.service(ctx, "containerd")
	if c.State == "missing" {
		socket, _ := RuntimeSocket(r.Host)
		c.Reason = "there is no unit containerd.service; the kubelet uses the container runtime at " + socket
	}
	runtime, err := r.runtime(ctx)
	if err != nil {
		if c.Healthy {
			c.Healthy, c.Reason = false, oneLine(err)
		}
		return c
	}
	defer runtime.Close()
	info, err := runtime.Inventory().Info(ctx)
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

// runtime connects to the container runtime of this node.
func (r *Reader) runtime(ctx context.Context) (*store.Store, error) {
	socket, err := RuntimeSocket(r.Host)
	if err != nil {
		return nil, err
	}
	if !exists(r.Host, socket) {
		return nil, fmt.Errorf("the container runtime does not run: %s does not exist", socket)
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	return store.Connect(ctx, socket)
}

// runtimeTimeout leaves the other sources of a part some time if containerd hangs.
const runtimeTimeout = 3 * time.Second

// containers lists the static pods of this node and the containers of the cluster's
// components, whether they run or not.
func (r *Reader) containers(ctx context.Context) (list []Component, err error) {
	newest := map[string]store.Container{}
	starts := map[string]uint32{}
	health := r.health(ctx)
	runtime, err := r.runtime(ctx)
	var all []store.Container
	if err == nil {
		defer runtime.Close()
		all, err = runtime.PodRecords().Containers(ctx)
	}
	for _, k := range all {
		static := slices.ContainsFunc(r.node.pods, func(p *staticpod.Pod) bool { return runs(p, k) })
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
	for _, p := range r.node.pods {
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
	if err != nil && r.node.role == ControlPlane {
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
	for _, p := range r.node.pods {
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
	exit, err := runtime.PodRecords().Exit(ctx, k.ID)
	if err != nil {
		c.State, c.Reason = "unknown", oneLine(err)
		return false
	}
	if c.Version == "" {
		c.Version = tag(k.Image)
	}
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

var versionNumber = regexp.MustCompile(`\bv?[0-9]+\.[0-9]+\.[0-9]+[-+.~0-9A-Za-z]*`)

// BinaryVersion returns the version that an installed binary prints, or "".
func (r *Reader) BinaryVersion(ctx context.Context, name string) string {
	file := r.Host.Path("/usr/local/bin/" + name)
	if name == "runc" {
		file = r.Host.Path("/usr/local/sbin/runc")
	}
	if adopted := AdoptedKubelet(r.Host); name == "kubelet" && adopted != nil {
		file = r.Host.Path(adopted.Binary)
	}
	if _, err := os.Stat(file); err != nil {
		found, err := exec.LookPath(name)
		if err != nil {
			return ""
		}
		file = found
	}
	out, err := childprocess.Command(ctx, file, "--version").Output()
	if err != nil {
		return ""
	}
	return string(versionNumber.Find(out))
}

// endpointFlag is the kubelet's flag for the container runtime's socket.
var endpointFlag = regexp.MustCompile(`--container-runtime-endpoint[= ]"?([^\s"]+)`)

// RuntimeSocket returns the path of the socket that the kubelet's flags or its configuration
// name. Flags precede the configuration.
func RuntimeSocket(h *host.Host) (string, error) {
	flags, err := h.ReadIfExists(config.KubeletFlagsFile)
	if err != nil {
		return "", err
	}
	if adopted := AdoptedKubelet(h); adopted != nil {
		flags = []byte(strings.Join(adopted.Args, " "))
	}
	endpoint := ""
	for _, match := range endpointFlag.FindAllSubmatch(flags, -1) {
		endpoint = string(match[1]) // the last one counts
	}
	for _, path := range []string{KubeletConfigFile(h), render.KubeletInstanceConfigPath} {
		if endpoint != "" {
			break
		}
		data, err := h.ReadIfExists(path)
		if err != nil {
			return "", err
		}
		var written struct {
			ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
		}
		if err := yaml.Unmarshal(data, &written); err != nil {
			return "", fmt.Errorf("reading %s: %w", path, err)
		}
		endpoint = written.ContainerRuntimeEndpoint
	}
	if endpoint == "" {
		return config.ContainerdSocket, nil
	}
	return strings.TrimPrefix(endpoint, "unix://"), nil
}

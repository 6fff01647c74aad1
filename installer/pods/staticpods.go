package pods

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"airlift/images/store"
	"airlift/installer/cluster/health"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/staticpod"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// stopGrace is how long a component may take to end before it is killed: the kubelet's default
// for a pod.
const stopGrace = 30 * time.Second

// apiServerGrace is stopGrace of an API server, from the moment at which it accepts no more
// connections. It ends by itself only when all clients have closed their watches, or after a
// minute (ShutdownTimeout of k8s.io/apiserver), so the kubelet always waits for the whole of its
// 30 seconds. It has done all else within 0.1 seconds, on two cores; the rest of this time is for
// requests that it has not answered yet.
const apiServerGrace = 2 * time.Second

// graceOf returns how long this host's component may take to end.
func graceOf(h *host.Host, component string) time.Duration {
	if component != "kube-apiserver" {
		return stopGrace
	}
	flags, _, err := node.ReadStaticPod(h, component)
	if err != nil {
		return stopGrace
	}
	delay, err := time.ParseDuration(cmp.Or(flags["shutdown-delay-duration"], "0s"))
	if err != nil {
		return stopGrace
	}
	return min(stopGrace, delay+apiServerGrace)
}

// StaticPods changes and restarts the components of this host's control plane, one at a time:
// each is healthy before the next.
type StaticPods struct {
	*node.Machine
	watch          *Watch
	Timeout        time.Duration // limits a wait without progress
	kubeletTimeout time.Duration // limits the wait for the kubelet; 0 is the default
	begun          time.Time     // when the current component was changed or stopped
	// APIServerFollows is set if the API server is replaced right after etcd.
	APIServerFollows bool
	// Annotates is set if an annotation in a previous manifest is of no consequence: the next run writes
	// the manifest as a whole.
	Annotates bool
	Turn      *node.Turn // of this host's control plane; nil if this run goes on without it
	// IgnoresEtcd is set if the user ignores that etcd may lose its quorum.
	IgnoresEtcd bool
	// Ended, if set, is called when the old pod of a component has ended and its new manifest
	// follows.
	Ended func(ctx context.Context, component string)
	// Starts, if set, is called before another manifest of a component is written. An error keeps the
	// previous one.
	Starts func(component string) error
}

// NewStaticPods returns the StaticPods of a host.
func NewStaticPods(c *config.Config, h *host.Host, console *workflow.Console) (*StaticPods, error) {
	m := node.NewMachine(h, console)
	socket, err := node.RuntimeSocket(m.Host)
	if err != nil {
		return nil, err
	}
	return WithWatch(NewWatch(m, func() string { return socket }), c.Timeouts), nil
}

// WithWatch returns the StaticPods of the host of a run.
func WithWatch(w *Watch, limits config.Timeouts) *StaticPods {
	return &StaticPods{
		Machine: w.Machine, watch: w,
		Timeout: cmp.Or(limits.UpgradeManifests, config.DefaultUpgradeManifestsTimeout), kubeletTimeout: limits.KubeletHealthCheck,
	}
}

// Close gives up the turn of this control plane, and closes the connection to the container runtime.
func (s *StaticPods) Close() {
	s.Turn.End()
	s.Turn = nil
	s.watch.Close()
}

// Names returns the components that are static pods of this host, in the order in which they
// are changed and restarted.
func (s *StaticPods) Names() (names []string) {
	for _, name := range StaticPodOrder {
		if s.Exists(node.ManifestPath(name)) {
			names = append(names, name)
		}
	}
	return names
}

// StaticPodOrder is the order in which static pods are changed and restarted.
var StaticPodOrder = slices.Concat([]string{node.EtcdPod}, node.ControlPlaneComponents)

// WithAPIServer adds the API server to the static pods that restart, if etcd is one of them.
func WithAPIServer(names []string) []string {
	if i := slices.Index(names, node.EtcdPod); i >= 0 && !slices.Contains(names, "kube-apiserver") {
		return slices.Insert(names, i+1, "kube-apiserver")
	}
	return names
}

// Replace writes the manifest of a component's static pod, and waits until the kubelet has
// replaced the pod and the component is healthy. If that fails, it puts the manifest former
// back and waits for that. It also waits for a manifest that an interrupted run has written.
func (s *StaticPods) Replace(ctx context.Context, component string, manifest, former []byte) (changed bool, err error) {
	now, err := s.ReadManifest(component)
	if err != nil {
		return false, err
	}
	if !bytes.Equal(now, manifest) {
		if err := s.mayRestart(ctx, component); err != nil {
			return false, err
		}
	}
	before, err := s.Containers(ctx, component)
	if err != nil {
		return false, err
	}
	s.begun = time.Now()
	file := pki.File{Path: node.ManifestPath(component), Data: manifest, Mode: 0o600}
	count, grace := s.Changes, graceOf(s.Existing, component)
	if s.Annotates && now != nil && !bytes.Equal(now, manifest) {
		s.endPod(ctx, component, now, before, grace)
	}
	late, _ := s.Containers(ctx, component) // the kubelet ends them later
	if !bytes.Equal(now, manifest) {
		if err := s.prepare(ctx, component, manifest); err != nil {
			if now != nil { // without the annotation
				err = errors.Join(err, s.Write(pki.File{Path: file.Path, Data: now, Mode: file.Mode}))
			}
			return false, err
		}
	}
	// Also when ctx has ended: an annotated manifest must not stay.
	if err := s.Write(file); err != nil {
		return false, err
	}
	changed = s.Changes > count
	if ctx.Err() != nil {
		return changed, ctx.Err()
	}
	if changed && grace < stopGrace { // one that needs longer to end, or that the kubelet has started meanwhile
		if err := s.stop(ctx, late, grace); err != nil {
			return changed, err
		}
	}
	err = s.started(ctx, component, append(before, late...))
	if err == nil && component == node.EtcdPod {
		return changed, s.ReleaseEtcd(ctx, manifest)
	}
	if err == nil || ctx.Err() != nil || former == nil || bytes.Equal(former, manifest) {
		return changed, err
	}
	s.Console.Warn("%s is not healthy with its new manifest: restoring its previous manifest", component)
	return changed, s.putBack(ctx, component, former, err)
}

// prepare does what has to be done before another manifest of a component is written.
func (s *StaticPods) prepare(ctx context.Context, component string, manifest []byte) error {
	if component == node.EtcdPod { // the previous etcd has ended, so all of its data is there
		if err := s.PrepareEtcd(ctx, manifest); err != nil {
			return err
		}
	}
	if s.Starts == nil {
		return nil
	}
	return s.Starts(component)
}

// putBack writes the previous manifest of a component and waits for it. It returns an error in
// any case: why the new manifest failed, and whether the previous one works.
func (s *StaticPods) putBack(ctx context.Context, component string, former []byte, why error) error {
	before, err := s.Containers(ctx, component)
	s.begun = time.Now()
	if err == nil {
		err = s.Write(pki.File{Path: node.ManifestPath(component), Data: former, Mode: 0o600})
	}
	if err == nil {
		// The ends of the failed container do not count for the previous one.
		s.watch.Forget()
		err = s.started(ctx, component, before)
	}
	if err != nil {
		return fault.Wrap(fmt.Errorf("%w\nrestoring the previous manifest of %s: %w", why, component, err), fault.ExitCode(why), fault.Hint(why))
	}
	return fault.Wrap(fmt.Errorf("%w\nthe previous manifest of %s is restored, and it is healthy", why, component), fault.ExitCode(why), fault.Hint(why))
}

// Restart restarts components without a change of their manifests, in the order of Names.
// Each is healthy before the next is stopped.
func (s *StaticPods) Restart(ctx context.Context, components ...string) error {
	for _, name := range s.Names() {
		if !slices.Contains(components, name) {
			continue
		}
		if err := s.restart(ctx, name); err != nil {
			return fmt.Errorf("restarting %s: %w", name, err)
		}
	}
	return nil
}

// RestartOlder restarts a component, unless its container was created after a time. It waits until
// the component is healthy in any case.
func (s *StaticPods) RestartOlder(ctx context.Context, component string, than time.Time) (restarted bool, err error) {
	list, err := s.Containers(ctx, component)
	if err != nil {
		return false, err
	}
	list = slices.DeleteFunc(list, func(c store.Container) bool { return !running(c) })
	older := func(c store.Container) bool { return !c.Created.After(than) }
	if len(list) == 0 || slices.ContainsFunc(list, older) {
		return true, s.restart(ctx, component)
	}
	s.begun = time.Now()
	return false, s.waitHealthy(ctx, component)
}

func (s *StaticPods) restart(ctx context.Context, component string) error {
	if err := s.mayRestart(ctx, component); err != nil {
		return err
	}
	list, err := s.Containers(ctx, component)
	if err != nil {
		return err
	}
	if component == node.EtcdPod { // another tool may have renewed the certificates of which it has copies
		manifest, err := s.ReadManifest(component)
		if err == nil {
			err = s.PrepareEtcd(ctx, manifest)
		}
		if err != nil {
			return err
		}
	}
	// A container whose process was not started cannot be stopped. It will read everything: it is new.
	before := slices.DeleteFunc(slices.Clone(list), func(c store.Container) bool { return c.Unstarted })
	s.begun = time.Now()
	if err := s.stop(ctx, before, graceOf(s.Existing, component)); err != nil {
		return err
	}
	// The kubelet may restart a failed container only after minutes, but it starts the container of
	// a new pod sandbox at once.
	if len(before) > 0 && len(before) == len(list) && !slices.ContainsFunc(before, running) {
		if err := s.watch.Containerd.RemovePod(ctx, before[0].Namespace, before[0].Pod); err != nil {
			return err
		}
	}
	for i := range before {
		before[i].Exited = true // none of them is the new one
	}
	if err := s.waitContainer(ctx, component, func(c store.Container) bool {
		return !slices.ContainsFunc(before, func(b store.Container) bool { return b.ID == c.ID })
	}); err != nil {
		return err
	}
	return s.waitHealthy(ctx, component)
}

func running(c store.Container) bool { return !c.Exited && !c.Unstarted }

// Stale returns the components that still use the certificate in a kubeconfig from before it was
// renewed: the run that renewed it was interrupted before it restarted them.
func (s *StaticPods) Stale(ctx context.Context) (names []string, err error) {
	for _, name := range s.Names() {
		file := pki.ReadAtStart(name)
		if file == "" || !s.Exists(file) {
			continue
		}
		written, err := s.Host.Systemd().Newest([]string{file})
		if err != nil {
			return nil, err
		}
		list, err := s.Containers(ctx, name)
		if err != nil {
			return nil, err
		}
		if startedBefore(list, written, time.Now()) {
			names = append(names, name)
		}
	}
	return names, nil
}

// startedBefore reports whether one of the containers was started before a file was written. It
// ignores a file with a time in the future: after the clock was set back, no restart would be later
// than the file.
func startedBefore(list []store.Container, written, now time.Time) bool {
	return !written.After(now) && slices.ContainsFunc(list, func(c store.Container) bool { return running(c) && !c.Created.After(written) })
}

// stop stops those containers that run.
func (s *StaticPods) stop(ctx context.Context, containers []store.Container, grace time.Duration) error {
	for _, c := range containers {
		if !running(c) {
			continue
		}
		if err := s.watch.Containerd.StopContainer(ctx, c.ID, grace); err != nil {
			return err
		}
	}
	return nil
}

// started waits until a container of the component's current manifest runs, and is healthy.
// before are the containers before the manifest was written.
func (s *StaticPods) started(ctx context.Context, component string, before []store.Container) error {
	isNew, err := newContainer(s.Host, component, before)
	if err != nil {
		return err
	}
	if err := s.waitContainer(ctx, component, isNew); err != nil {
		return err
	}
	return s.waitHealthy(ctx, component)
}

// newContainer reports whether a container belongs to the current manifest of a component. before are the containers
// before it was written. The kubelet gives the pod of another manifest another UID. An interrupted run may have
// written the manifest: then the container is newer than the file.
func newContainer(h *host.Host, component string, before []store.Container) (func(store.Container) bool, error) {
	info, err := os.Stat(h.Path(node.ManifestPath(component)))
	if err != nil {
		return nil, err
	}
	return func(c store.Container) bool {
		return !c.Created.Before(info.ModTime()) ||
			!slices.ContainsFunc(before, func(b store.Container) bool { return b.PodUID == c.PodUID })
	}, nil
}

// WaitReplaced waits until the component runs with the manifest that replaced another one, and is healthy. before are
// its containers from before the manifest was written. uids asks the kubelet for the UIDs of its pods by components: it
// keeps the container if the manifest is again the one with which it has started the container.
func (s *StaticPods) WaitReplaced(ctx context.Context, component string, before []store.Container, uids func(context.Context) (map[string]string, error)) error {
	s.begun = time.Now()
	isNew, err := newContainer(s.Host, component, before)
	if err != nil {
		return err
	}
	wanted := func(c store.Container) bool {
		if isNew(c) {
			return true
		}
		if time.Since(s.begun) < settleTime {
			return false // the kubelet may not have read the manifest
		}
		list, err := uids(ctx)
		return err == nil && list[component] == c.PodUID
	}
	if err := s.waitContainer(ctx, component, wanted); err != nil {
		return err
	}
	return s.waitHealthy(ctx, component)
}

// waitContainer waits until the component has a running container that isNew accepts, and no other
// container.
func (s *StaticPods) waitContainer(ctx context.Context, component string, isNew func(store.Container) bool) error {
	return s.watch.Watched(ctx, onlyOf(component, s.begun), func(ctx context.Context) error {
		return health.WaitForContainer(ctx, component, s.Timeout, s.Report, func(ctx context.Context) (bool, string, error) {
			list, err := s.Containers(ctx, component)
			if err != nil {
				return false, err.Error(), nil
			}
			list = slices.DeleteFunc(list, func(c store.Container) bool { return c.Exited })
			switch {
			case len(list) == 0:
				return false, "no container runs", nil
			case slices.ContainsFunc(list, func(c store.Container) bool { return !isNew(c) }):
				return false, "the previous container still runs", nil
			}
			return true, "", nil
		})
	})
}

// onlyOf is the dependency of a wait for a component that is replaced. Components that use it may
// end meanwhile, and start again by themselves.
func onlyOf(component string, since time.Time) Dependency {
	return Dependency{Components: []string{component}, Only: true, since: since}
}

// Containers lists the containers of a component, running or not.
func (s *StaticPods) Containers(ctx context.Context, component string) ([]store.Container, error) {
	if err := s.watch.connect(ctx); err != nil {
		return nil, err
	}
	list, err := s.watch.Containerd.Containers(ctx)
	return slices.DeleteFunc(list, func(c store.Container) bool {
		return c.Namespace != "kube-system" || c.Name != component || !strings.HasPrefix(c.Pod, component+"-")
	}), err
}

// waitHealthy waits until the component's own health check succeeds, which its manifest names
// for the kubelet.
func (s *StaticPods) waitHealthy(ctx context.Context, component string) error {
	pod, err := staticpod.Read(s.Host.Path(node.ManifestPath(component)))
	if err != nil {
		return fmt.Errorf("reading %s: %w", node.ManifestPath(component), err)
	}
	if pod.Health == "" {
		return nil
	}
	return s.watch.Watched(ctx, onlyOf(component, s.begun), func(ctx context.Context) error {
		return health.WaitForComponent(ctx, component, pod.Health, s.Timeout, s.Report)
	})
}

// TakeTurn waits until no other control plane restarts its components, and keeps the turn of this one
// until Close. It does nothing if this run has it.
func (s *StaticPods) TakeTurn(ctx context.Context, kubeconfig string) (err error) {
	if s.Turn == nil {
		s.Turn, err = node.TakeTurn(ctx, s.Machine, s.TurnName(), kubeconfig, 0)
	}
	return err
}

// CheckOthers fails if the other control planes would not keep the cluster alive while these components
// restart: etcd would have no quorum, or no API server would be ready.
func (s *StaticPods) CheckOthers(ctx context.Context, components []string) error {
	if s.Turn != nil && slices.Contains(components, "kube-apiserver") {
		if err := s.Turn.CheckOthers(ctx); err != nil {
			return err
		}
	}
	if !slices.Contains(components, node.EtcdPod) {
		return nil
	}
	return s.CheckQuorum(ctx)
}

// mayRestart fails if a component must not be restarted now.
func (s *StaticPods) mayRestart(ctx context.Context, component string) error {
	if err := s.Turn.Confirm(ctx); err != nil {
		return err
	}
	if component != node.EtcdPod || s.IgnoresEtcd {
		return nil
	}
	return s.CheckQuorum(ctx)
}

// RestartReader restarts a component that was started before one of the files that it reads was written. After the clock was set
// back, no restart would be later than the files.
func RestartReader(ctx context.Context, s *StaticPods, component string, files []string) (restarted bool, err error) {
	if len(files) == 0 {
		return false, nil
	}
	written, err := s.Host.Systemd().Newest(files)
	if err != nil || written.After(time.Now()) {
		return false, err
	}
	restarted, err = s.RestartOlder(ctx, component, written)
	s.Changed(restarted)
	return restarted, err
}

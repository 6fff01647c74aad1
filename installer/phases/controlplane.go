package phases

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"airlift/images/store"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
)

// ControlPlane creates this node's certificates, kubeconfig files and static
// pods.
type ControlPlane struct {
	*node.Machine
	Node *Node

	// Hold reports whether a later step writes the static pod's manifest. The
	// manifests that wait for that are in held.
	Hold func(pki.File) bool
	held []pki.File
	// MayRestart fails if a component must not be restarted now. The kubelet restarts one whose manifest
	// changes.
	MayRestart func(ctx context.Context, component string) error
	// Replaced are the static pods to replace: their manifests existed and changed, or etcd
	// cannot continue with its data.
	Replaced []string
	// changed are the static pods whose manifests this run changed, with their containers from before. WaitReplaced
	// waits for them.
	changed map[string][]store.Container
}

// Desired computes what a step makes true.
type Desired = func(context.Context) (desired.List, error)

// Certs returns the named certificates, or all, except valid certificates that are already on the
// host. With an external etcd there are no etcd certificates.
func (p *ControlPlane) Certs(names ...string) Desired {
	return func(context.Context) (desired.List, error) {
		made, err := pki.Ensure(p.Node.Config, p.Files(), time.Now(), names...)
		if err != nil {
			return desired.List{}, err
		}
		p.ReportKept(made)
		return desired.List{Files: made.Files}, nil
	}
}

// Kubeconfig returns the named kubeconfig files in dir, or all of them.
func (p *ControlPlane) Kubeconfig(dir string, names ...string) Desired {
	if len(names) == 0 {
		names = pki.KubeconfigNames()
	}
	return func(context.Context) (desired.List, error) {
		made, err := pki.Kubeconfigs(p.Node.Config, redirected{p.Files(), config.KubernetesDir, dir}, time.Now(), names...)
		if err != nil {
			return desired.List{}, err
		}
		for i, f := range made.Files {
			if path.Dir(f.Path) == config.KubernetesDir {
				made.Files[i].Path = path.Join(dir, path.Base(f.Path))
			}
		}
		p.ReportKept(made)
		return desired.List{Files: made.Files, Claims: p.Node.kubeletCertDir()}, nil
	}
}

// Etcd returns the static pod of etcd and its data directory. When etcd joins an existing cluster,
// members are all its members, including this one. A newer etcd of this host keeps its manifest.
func (p *ControlPlane) Etcd(members ...render.EtcdMember) (desired.List, error) {
	pod, err := render.Etcd(p.Node.Config, members...)
	if err != nil {
		return desired.List{}, err
	}
	file, err := p.staticPodFile(pod)
	if err != nil {
		return desired.List{}, err
	}
	// A manifest that cannot be read is written again.
	if older, err := p.OlderEtcd(file.Data); err == nil && older != "" {
		p.Console.Note("etcd is not replaced: %s", older)
		if file.Data, err = p.ReadManifest(node.EtcdPod); err != nil {
			return desired.List{}, err
		}
	}
	return desired.List{Files: []pki.File{file}, Claims: p.Node.EtcdClaim()}, nil
}

// ApplyEtcd writes the static pod of etcd. first reports that etcd begins a new cluster. The caller waits for it.
func (p *ControlPlane) ApplyEtcd(ctx context.Context, l desired.List, first bool) error {
	if err := p.Node.claim(l.Claims...); err != nil {
		return err
	}
	if err := p.Host.MkdirAll(p.Node.Config.Etcd.Local.DataDir, 0o700); err != nil {
		return err
	}
	if first && etcd.FirstStartInterrupted(p.Host.Path(p.Node.Config.Etcd.Local.DataDir)) {
		p.Console.Note("etcd was interrupted at its first start: it starts again with an empty data directory")
		p.Replaced = append(p.Replaced, node.EtcdPod)
	}
	return p.changeStaticPods(ctx, l)
}

// removeInterruptedEtcd removes what the interrupted first start of etcd left. etcd must not
// run: if it was only slow, it has written entries by now, and they stay.
func (p *ControlPlane) removeInterruptedEtcd() error {
	dir := p.Node.Config.Etcd.Local.DataDir
	if !etcd.FirstStartInterrupted(p.Host.Path(dir)) {
		return nil
	}
	return p.Host.RemoveTree(path.Join(dir, "member"))
}

// StaticPods returns the named static pods, or all except etcd.
func (p *ControlPlane) StaticPods(names ...string) Desired {
	if len(names) == 0 {
		names = node.ControlPlaneComponents
	}
	return func(context.Context) (l desired.List, err error) {
		pods, err := render.ControlPlane(p.Node.Config, p.Files())
		if err != nil {
			return l, err
		}
		for _, name := range names {
			file, err := p.staticPodFile(pods[name])
			if err != nil {
				return l, err
			}
			l.Files = append(l.Files, file)
		}
		return l, nil
	}
}

// staticPodFile returns the manifest of a static pod with the user's patches applied.
func (p *ControlPlane) staticPodFile(pod *corev1.Pod) (pki.File, error) {
	pod, used, err := p.Node.Plan.Patches.Pod(pod)
	if err != nil {
		return pki.File{}, err
	}
	p.ReportPatched(pod.Name, used)
	data, err := render.YAML(pod)
	return pki.File{Path: node.ManifestPath(pod.Name), Data: data, Mode: 0o600}, err
}

// ApplyStaticPods writes static pods, and before them the other files in the list, which they read. A phase that runs alone waits
// for them.
func (p *ControlPlane) ApplyStaticPods(ctx context.Context, l desired.List) error {
	pods := l
	pods.Files = nil
	for _, f := range l.Files {
		if path.Dir(f.Path) == config.ManifestsDir {
			pods.Files = append(pods.Files, f)
		} else if err := p.Write(f); err != nil {
			return err
		}
	}
	if err := MakeAuditDir(p.Host, &p.Node.Config.Cluster); err != nil {
		return err
	}
	if err := p.changeStaticPods(ctx, pods); err != nil {
		return err
	}
	return p.WaitAlone(ctx)
}

// MakeAuditDir creates the directory of the API server's audit log. The kubelet would create it with a mode that lets other users list it.
func MakeAuditDir(h *host.Host, c *config.Cluster) error {
	log := reconfiguration.FileOf(c, "kube-apiserver", "audit-log-path")
	if log == "" {
		return nil
	}
	return h.MkdirAll(path.Dir(log), 0o700)
}

func (p *ControlPlane) changeStaticPods(ctx context.Context, l desired.List) error {
	for _, file := range l.Files {
		if err := p.changeStaticPod(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

// changeStaticPod writes a static pod. If the host runs it already with another manifest, it asks first.
func (p *ControlPlane) changeStaticPod(ctx context.Context, file pki.File) error {
	name := strings.TrimSuffix(path.Base(file.Path), ".yaml")
	now, err := p.ReadManifest(name)
	if err != nil {
		return err
	}
	if now != nil && !bytes.Equal(now, file.Data) && p.Host.Locked() {
		if err := p.MayRestart(ctx, name); err != nil {
			return err
		}
	}
	if p.Hold(file) {
		p.held = append(p.held, file)
		return nil
	}
	return p.place(ctx, file)
}

// place writes a static pod. WaitReplaced waits for it if it replaces another one.
func (p *ControlPlane) place(ctx context.Context, file pki.File) error {
	name := strings.TrimSuffix(path.Base(file.Path), ".yaml")
	now, err := p.ReadManifest(name)
	if err != nil {
		return err
	}
	if now == nil || bytes.Equal(now, file.Data) {
		return p.Write(file)
	}
	if !slices.Contains(p.Replaced, name) {
		p.Replaced = append(p.Replaced, name)
	}
	if err := p.expect(ctx, name); err != nil {
		return err
	}
	return p.Write(file)
}

// expect records the containers of a static pod before its manifest changes.
func (p *ControlPlane) expect(ctx context.Context, name string) error {
	if p.Node.Plan.OnePhase && !p.apiAnswers(ctx) {
		return nil // the kubelet may need other phases before it can replace a pod
	}
	before, err := p.pods().Containers(ctx, name)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil { // without a runtime, nothing runs
		p.Console.Debug(1, "listing the containers of %s: %v", name, err)
	}
	if p.changed == nil {
		p.changed = map[string][]store.Container{}
	}
	if _, known := p.changed[name]; !known {
		p.changed[name] = before
	}
	return nil
}

// ownAPI returns a client of this host's API server.
func (p *ControlPlane) ownAPI() (*cluster.Client, error) {
	return node.LoadClient(p.Existing, node.AdminConf, node.OwnAPIServer(p.Existing), p.Node.Config.Timeouts.KubernetesAPICall)
}

// apiAnswers reports whether this host's API server answers.
func (p *ControlPlane) apiAnswers(ctx context.Context) bool {
	client, err := p.ownAPI()
	return err == nil && client.Answers(ctx)
}

// podUIDs asks this host's kubelet for the UIDs of its static pods by components.
func (p *ControlPlane) podUIDs(ctx context.Context) (map[string]string, error) {
	client, err := p.ownAPI()
	if err != nil {
		return nil, err
	}
	return client.StaticPodUIDs(ctx, p.Node.Config.NodeRegistration.Name)
}

// pods returns the static pods of this host.
func (p *ControlPlane) pods() *pods.StaticPods {
	s := pods.WithWatch(p.Node.Watch, p.Node.Config.Timeouts)
	s.Timeout = p.Node.Config.APIServer.TimeoutForControlPlane
	return s
}

// WaitReplaced waits until the static pods whose manifests this run changed run with them, and are healthy. Until then
// the previous pods may answer.
func (p *ControlPlane) WaitReplaced(ctx context.Context) error {
	for _, name := range pods.StaticPodOrder {
		before, changed := p.changed[name]
		if !changed {
			continue
		}
		if err := p.pods().WaitReplaced(ctx, name, before, p.podUIDs); err != nil {
			return err
		}
		delete(p.changed, name)
	}
	return nil
}

// WaitAlone is WaitReplaced for a phase that runs alone. In a whole run, a later phase waits.
func (p *ControlPlane) WaitAlone(ctx context.Context) error {
	if !p.Node.Plan.OnePhase {
		return nil
	}
	return p.WaitReplaced(ctx)
}

// ReplacePods replaces static pods whose manifests changed, if the API server of
// this host, which its kubelet uses, does not answer. A kubelet that has never
// reached the API server does not stop a static pod whose manifest changed
// ("skipping delete because sources aren't ready yet"), and the new pod waits for
// the old one. A restarted kubelet starts the new pod, and does not know the old
// one.
func (p *ControlPlane) ReplacePods(ctx context.Context, local *cluster.Client) error {
	if len(p.Replaced) == 0 || p.Node.Watch.Containerd == nil || local.Answers(ctx) {
		return nil
	}
	if err := p.Host.Systemd().Stop(ctx, "kubelet.service"); err != nil {
		return err
	}
	for _, name := range p.Replaced {
		if err := p.Node.Watch.Containerd.RemovePod(ctx, "kube-system", name+"-"+p.Node.Config.NodeRegistration.Name); err != nil {
			return err
		}
		if name == node.EtcdPod {
			if err := p.removeInterruptedEtcd(); err != nil {
				return err
			}
		}
	}
	p.Replaced = nil
	return p.Host.Systemd().Start(ctx, "kubelet.service")
}

// IsAPIClient reports whether a static pod needs the API server to do anything.
// A component that starts before the API server answers fails to become the
// leader and tries again only after two seconds. A kubelet that cannot create
// the mirror pod at once tries again only after a minute.
func IsAPIClient(pod pki.File) bool {
	return pod.Path != node.EtcdManifest && pod.Path != node.APIServerManifest
}

// PlaceHeld writes the manifests that were held back.
func (p *ControlPlane) PlaceHeld(ctx context.Context) error {
	for _, file := range p.held {
		if err := p.place(ctx, file); err != nil {
			return err
		}
	}
	p.held = nil
	return nil
}

package installer

import (
	"bytes"
	"context"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// controlPlane creates this node's certificates, kubeconfig files and static
// pods.
type controlPlane struct {
	*node
	// hold reports whether a later step writes the static pod's manifest. The
	// manifests that wait for that are in held.
	hold func(pki.File) bool
	held []pki.File
	// mayRestart fails if a component must not be restarted now. The kubelet restarts one whose manifest
	// changes.
	mayRestart func(ctx context.Context, component string) error
	// replaced are the static pods to replace: their manifests existed and changed, or etcd
	// cannot continue with its data.
	replaced []string
}

// certs returns a step that creates the named certificates, or all of them.
// With an external etcd it creates no etcd certificates.
func (p *controlPlane) certs(names ...string) func(context.Context) error {
	return func(context.Context) error {
		made, err := pki.Ensure(p.config, p.files(), time.Now(), names...)
		if err != nil {
			return err
		}
		p.reportKept(made)
		return p.write(made.Files...)
	}
}

// kubeconfig returns a step that creates the named kubeconfig files in dir, or
// all of them.
func (p *controlPlane) kubeconfig(dir string, names ...string) func(context.Context) error {
	if len(names) == 0 {
		names = pki.KubeconfigNames()
	}
	return func(context.Context) error {
		if err := p.claimKubeletCertDir(); err != nil {
			return err
		}
		made, err := pki.Kubeconfigs(p.config, redirected{p.files(), config.KubernetesDir, dir}, time.Now(), names...)
		if err != nil {
			return err
		}
		for i, f := range made.Files {
			if path.Dir(f.Path) == config.KubernetesDir {
				made.Files[i].Path = path.Join(dir, path.Base(f.Path))
			}
		}
		p.reportKept(made)
		return p.write(made.Files...)
	}
}

// etcd writes the static pod of etcd. When etcd joins an existing cluster,
// members are all its members, including this one.
func (p *controlPlane) etcd(ctx context.Context, members ...render.EtcdMember) error {
	if err := p.claimEtcd(); err != nil {
		return err
	}
	if err := p.host.MkdirAll(p.config.Etcd.Local.DataDir, 0o700); err != nil {
		return err
	}
	if len(members) == 0 && etcd.FirstStartInterrupted(p.host.Path(p.config.Etcd.Local.DataDir)) {
		p.console.Note("etcd was interrupted at its first start: it starts again with an empty data directory")
		p.replaced = append(p.replaced, etcdPod)
	}
	pod, err := render.Etcd(p.config, members...)
	if err != nil {
		return err
	}
	return p.changeStaticPod(ctx, pod)
}

const etcdPod = "etcd"

// removeInterruptedEtcd removes what the interrupted first start of etcd left. etcd must not
// run: if it was only slow, it has written entries by now, and they stay.
func (p *controlPlane) removeInterruptedEtcd() error {
	dir := p.config.Etcd.Local.DataDir
	if !etcd.FirstStartInterrupted(p.host.Path(dir)) {
		return nil
	}
	return p.host.RemoveTree(path.Join(dir, "member"))
}

// staticPods returns a step that writes the named static pods, or all except
// etcd.
func (p *controlPlane) staticPods(names ...string) func(context.Context) error {
	if len(names) == 0 {
		names = controlPlaneComponents
	}
	return func(ctx context.Context) error {
		pods, err := render.ControlPlane(p.config, p.files())
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := p.changeStaticPod(ctx, pods[name]); err != nil {
				return err
			}
		}
		return nil
	}
}

// changeStaticPod writes a static pod. If the host runs it already with another manifest, it asks first.
func (p *controlPlane) changeStaticPod(ctx context.Context, pod *corev1.Pod) error {
	file, _, err := p.staticPodFile(pod)
	if err != nil {
		return err
	}
	now, err := p.readManifest(pod.Name)
	if err != nil {
		return err
	}
	if now != nil && !bytes.Equal(now, file.Data) && p.host.Locked() {
		if err := p.mayRestart(ctx, pod.Name); err != nil {
			return err
		}
	}
	return p.writeStaticPod(pod)
}

// staticPodFile returns the manifest of a static pod with the user's patches applied, and which.
func (p *controlPlane) staticPodFile(pod *corev1.Pod) (file pki.File, used []string, err error) {
	if pod, used, err = p.plan.patches.Pod(pod); err != nil {
		return file, used, err
	}
	data, err := render.YAML(pod)
	return pki.File{Path: manifestPath(pod.Name), Data: data, Mode: 0o600}, used, err
}

// writeStaticPod writes a static pod with the user's patches applied.
func (p *controlPlane) writeStaticPod(pod *corev1.Pod) error {
	file, used, err := p.staticPodFile(pod)
	if err != nil {
		return err
	}
	p.reportPatched(pod.Name, used)
	if p.hold(file) {
		p.held = append(p.held, file)
		return nil
	}
	existed, before := p.exists(file.Path), p.changes
	if err := p.write(file); err != nil {
		return err
	}
	if existed && p.changes > before && !slices.Contains(p.replaced, pod.Name) {
		p.replaced = append(p.replaced, pod.Name)
	}
	return nil
}

// replacePods replaces static pods whose manifests changed, if the API server of
// this host, which its kubelet uses, does not answer. A kubelet that has never
// reached the API server does not stop a static pod whose manifest changed
// ("skipping delete because sources aren't ready yet"), and the new pod waits for
// the old one. A restarted kubelet starts the new pod, and does not know the old
// one.
func (p *controlPlane) replacePods(ctx context.Context, local *cluster.Client) error {
	if len(p.replaced) == 0 || p.containerd == nil || local.Answers(ctx) {
		return nil
	}
	if err := p.host.Stop(ctx, "kubelet.service"); err != nil {
		return err
	}
	for _, name := range p.replaced {
		if err := p.containerd.RemovePod(ctx, "kube-system", name+"-"+p.config.NodeRegistration.Name); err != nil {
			return err
		}
		if name == etcdPod {
			if err := p.removeInterruptedEtcd(); err != nil {
				return err
			}
		}
	}
	p.replaced = nil
	return p.host.Start(ctx, "kubelet.service")
}

// isAPIClient reports whether a static pod needs the API server to do anything.
// A component that starts before the API server answers fails to become the
// leader and tries again only after two seconds. A kubelet that cannot create
// the mirror pod at once tries again only after a minute.
func isAPIClient(pod pki.File) bool {
	return pod.Path != etcdManifest && pod.Path != apiServerManifest
}

// placeHeld writes the manifests that were held back.
func (p *controlPlane) placeHeld() error {
	err := p.write(p.held...)
	p.held = nil
	return err
}

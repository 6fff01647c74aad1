package installer

import (
	"context"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// controlPlane is this node's: certificates, kubeconfig files and static pods.
type controlPlane struct {
	*node
	// hold reports whether a static pod is put in place by a later step. Those that
	// have been held are in held.
	hold func(pki.File) bool
	held []pki.File
}

// certs makes the named certificates, or all of them. With an external etcd
// there are none for etcd.
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

// kubeconfig creates the named kubeconfig files, or all of them, in dir.
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

// etcd writes the static pod of etcd. members are those of a cluster that exists
// already, with this one.
func (p *controlPlane) etcd(members ...render.EtcdMember) error {
	if err := p.claimEtcd(); err != nil {
		return err
	}
	if err := p.host.MkdirAll(p.config.Etcd.Local.DataDir, 0o700); err != nil {
		return err
	}
	pod, err := render.Etcd(p.config, members...)
	if err != nil {
		return err
	}
	return p.writeStaticPod(pod)
}

// staticPods writes the named static pods, or all of them but etcd's.
func (p *controlPlane) staticPods(names ...string) func(context.Context) error {
	if len(names) == 0 {
		names = controlPlaneComponents
	}
	return func(context.Context) error {
		pods, err := render.ControlPlane(p.config, p.files())
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := p.writeStaticPod(pods[name]); err != nil {
				return err
			}
		}
		return nil
	}
}

// writeStaticPod writes a static pod with the user's patches.
func (p *controlPlane) writeStaticPod(pod *corev1.Pod) error {
	pod, used, err := p.plan.patches.Pod(pod)
	if err != nil {
		return err
	}
	p.reportPatched(pod.Name, used)
	data, err := render.YAML(pod)
	if err != nil {
		return err
	}
	file := pki.File{Path: path.Join(config.ManifestsDir, pod.Name+".yaml"), Data: data, Mode: 0o600}
	if p.hold(file) {
		p.held = append(p.held, file)
		return nil
	}
	return p.write(file)
}

// isAPIClient reports whether a static pod can do nothing without an API server.
// Started before that answers it would take its time to start, fail to become the
// leader and not try again for two seconds; and a kubelet that cannot show it in
// the API at once does not try again for a minute.
func isAPIClient(pod pki.File) bool {
	return pod.Path != etcdManifest && pod.Path != apiServerManifest
}

// placeHeld puts the static pods in place that were held back.
func (p *controlPlane) placeHeld() error {
	err := p.write(p.held...)
	p.held = nil
	return err
}

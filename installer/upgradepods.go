package installer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// componentCerts are the certificates that are renewed before a component is replaced, as in
// kubeadm.
var componentCerts = map[string][]string{
	etcdPod:                   {"etcd-server", "etcd-peer", "etcd-healthcheck-client"},
	"kube-apiserver":          {"apiserver", "apiserver-kubelet-client", "apiserver-etcd-client", "front-proxy-client"},
	"kube-controller-manager": {"controller-manager.conf"},
	"kube-scheduler":          {"scheduler.conf"},
}

// manifests renders the new manifests of this node's static pods, with the user's patches.
func (u *Upgrade) manifests() (map[string][]byte, error) {
	pods, err := render.ControlPlane(u.config, u.files())
	if err != nil {
		return nil, err
	}
	if u.config.Etcd.External == nil && u.options.EtcdUpgrade {
		var members []render.EtcdMember
		if joined(u.existing) {
			members = writtenMembers(u.existing)
		}
		if pods[etcdPod], err = render.Etcd(u.config, members...); err != nil {
			return nil, err
		}
	}
	plans := map[string][]byte{}
	for name, pod := range pods {
		patched, used, err := u.plan.patches.Pod(pod)
		if err != nil {
			return nil, err
		}
		u.reportPatched(name, used)
		if plans[name], err = render.YAML(patched); err != nil {
			return nil, err
		}
	}
	older, err := u.olderEtcd(plans[etcdPod])
	if err != nil {
		return nil, err
	}
	if older != "" {
		u.console.Note("etcd is not replaced: %s", older)
		delete(plans, etcdPod)
	}
	return plans, nil
}

// olderEtcd returns why etcd is not replaced, if the new manifest has an older one.
func (u *Upgrade) olderEtcd(manifest []byte) (string, error) {
	now, err := u.readManifest(etcdPod)
	if err != nil || now == nil || manifest == nil {
		return "", err
	}
	is, err := imageOf(now)
	if err != nil {
		return "", err
	}
	want, err := imageOf(manifest)
	if err != nil {
		return "", err
	}
	a, b := imageVersion(is), imageVersion(want)
	if a != nil && b != nil && b.LessThan(a) {
		return fmt.Sprintf("this host has %s, and this file has the older %s", is, want), nil
	}
	return "", nil
}

// imageOf returns the image of a static pod's manifest.
func imageOf(manifest []byte) (string, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return "", err
	}
	if len(pod.Spec.Containers) == 0 {
		return "", errors.New("the manifest has no container")
	}
	return pod.Spec.Containers[0].Image, nil
}

// imageVersion returns the version in an image's tag, or nil: 3.5.16 for "…/etcd:3.5.16-0". The
// number after the dash counts builds.
func imageVersion(image string) *utilversion.Version {
	image, _, _ = strings.Cut(image, "@") // a digest
	_, tag, ok := cutLast(image, ":")
	if !ok {
		return nil
	}
	v, err := utilversion.ParseGeneric(strings.Replace(tag, "-", ".", 1))
	if err != nil {
		return nil
	}
	return v
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// replaces reports whether a component gets another manifest.
func (u *Upgrade) replaces(component string) (bool, error) {
	now, err := u.readManifest(component)
	return err == nil && !bytes.Equal(now, u.plans[component]), err
}

// controlPlane replaces the static pods whose manifests changed: etcd first, each healthy
// before the next. If one fails, all that this run replaced are restored, except etcd.
func (u *Upgrade) controlPlane(ctx context.Context) error {
	if u.pods == nil {
		u.console.Note("nothing to do: this node is not a control plane")
		return nil
	}
	if err := unfinishedWork(u.existing, u.config); err != nil { // the phase may run alone
		return err
	}
	var done []string
	for _, name := range staticPodOrder {
		if u.plans[name] == nil {
			continue
		}
		u.pods.apiServerFollows = u.apiServerIsNext(name)
		replaced, err := u.replace(ctx, name)
		if err == nil && replaced && !u.pods.apiServerFollows {
			err = u.waitAPI(ctx)
		}
		if err != nil {
			err = fmt.Errorf("upgrading %s: %w", name, err)
			if ctx.Err() != nil || errors.Is(err, cluster.ErrNoTurn) {
				return err
			}
			return u.putBack(ctx, done, err)
		}
		if replaced && name != etcdPod {
			done = append(done, name)
		}
	}
	if err := u.renewEtcd(); err != nil {
		return err
	}
	return u.renewAdmins(done)
}

// renewEtcd renews the certificates of an etcd that this upgrade does not replace, once. etcd reads
// them without a restart.
func (u *Upgrade) renewEtcd() error {
	if u.state == nil || u.state.Finished || u.state.EtcdRenewed || u.config.Etcd.External != nil || !u.options.EtcdUpgrade {
		return nil
	}
	if former, err := u.former().Read(manifestPath(etcdPod)); err != nil || former != nil {
		return err // it was replaced, after its certificates
	}
	if err := u.renew(componentCerts[etcdPod]...); err != nil {
		return err
	}
	u.state.EtcdRenewed = true
	return u.state.write(u.host)
}

// apiServerIsNext reports whether this node's API server is replaced right after a component. An API
// server whose etcd was away connects again after up to two minutes (gRPC's backoff), and no step
// before needs it.
func (u *Upgrade) apiServerIsNext(component string) bool {
	if component != etcdPod || u.plans["kube-apiserver"] == nil {
		return false
	}
	next, err := u.replaces("kube-apiserver")
	return err == nil && next
}

// replace replaces one static pod. It renews the component's certificates before.
func (u *Upgrade) replace(ctx context.Context, name string) (replaced bool, err error) {
	changes, err := u.replaces(name)
	if err != nil {
		return false, err
	}
	if !changes {
		if u.state == nil || u.state.Finished {
			return false, nil
		}
		// An interrupted run may have written it.
		previous, err := u.host.Kept(attemptName).Read(manifestPath(name))
		if err != nil || previous == nil || bytes.Equal(previous, u.plans[name]) {
			return false, err
		}
		return u.replacePod(ctx, name, previous)
	}
	if err := u.begin(); err != nil {
		return false, err
	}
	attempt := u.host.Kept(attemptName)
	for _, kept := range []host.Kept{u.former(), attempt} {
		if err := kept.Keep(manifestPath(name)); err != nil {
			return false, err
		}
	}
	previous, err := attempt.Read(manifestPath(name))
	if err != nil {
		return false, err
	}
	if err := u.renew(componentCerts[name]...); err != nil {
		return false, err
	}
	image, err := imageOf(u.plans[name])
	if err != nil {
		return false, err
	}
	u.console.Note("%s: %s", name, image)
	return u.replacePod(ctx, name, previous)
}

// replacePod replaces a static pod. If the new one fails, it gets the manifest previous back, except
// an etcd of another minor version: that may have changed its data, which the previous one cannot read.
func (u *Upgrade) replacePod(ctx context.Context, name string, previous []byte) (replaced bool, err error) {
	stays := false
	if name == etcdPod && previous != nil {
		same, err := sameEtcd(previous, u.plans[name])
		if err != nil {
			return false, err
		}
		if stays = !same; stays {
			previous = nil
		}
	}
	_, err = u.pods.Replace(ctx, name, u.plans[name], previous)
	if now, _ := u.readManifest(name); err != nil && stays && bytes.Equal(now, u.plans[name]) {
		err = fault.Wrap(fmt.Errorf("%w\nits previous manifest is not restored: the new etcd may have changed the version of its data, which the previous one cannot read", err), fault.ExitCode(err), fault.Hint(err))
	}
	return err == nil, err
}

// recordEtcd records the new etcd before the kubelet can start it.
func (u *Upgrade) recordEtcd(component string) error {
	if component != etcdPod {
		return nil
	}
	image, err := imageOf(u.plans[component])
	if err != nil {
		return err
	}
	next := *u.state
	next.EtcdStarted = image
	if err := next.write(u.host); err != nil {
		return err
	}
	u.state = &next
	return nil
}

// sameEtcd reports whether two manifests of etcd have the same minor version.
func sameEtcd(a, b []byte) (bool, error) {
	was, err := imageOf(a)
	if err != nil {
		return false, err
	}
	is, err := imageOf(b)
	return sameEtcdMinor(was, is), err
}

// sameEtcdMinor reports whether two images of etcd have the same minor version: then each can read the
// data of the other.
func sameEtcdMinor(a, b string) bool {
	v, w := imageVersion(a), imageVersion(b)
	return a == b || v != nil && w != nil && v.Major() == w.Major() && v.Minor() == w.Minor()
}

// releaseLeadership gives back the Lease of this host's controller manager, which keeps it when it ends.
// That takes workerEnd.
func (u *Upgrade) releaseLeadership(ctx context.Context, component string) {
	if component != controllerManager {
		return
	}
	name, err := os.Hostname()
	if err == nil {
		_, err = u.client.ReleaseLeadership(ctx, component, name, workerEnd)
	}
	if err != nil {
		u.console.Debug(1, "releasing the Lease of %s: %v", component, err)
	}
}

// waitAPI waits for this node's API server: etcd's restart interrupts it, too.
func (u *Upgrade) waitAPI(ctx context.Context) error {
	needs := u.localAPI()
	needs.only = true
	return u.watched(ctx, needs, func(ctx context.Context) error {
		return u.client.WaitForAPI(ctx, u.pods.timeout, u.report)
	})
}

// putBack restores the previous manifests of components, the last one first, and returns why.
func (u *Upgrade) putBack(ctx context.Context, components []string, why error) error {
	var back []string
	for _, name := range slices.Backward(components) {
		previous, err := u.host.Kept(attemptName).Read(manifestPath(name))
		if err == nil && previous != nil {
			u.crashes = newCrashes(time.Now())
			_, err = u.pods.Replace(ctx, name, previous, nil)
		}
		if err != nil {
			return fault.Wrap(fmt.Errorf("%w\nrestoring the previous manifest of %s: %w", why, name, err), fault.ExitCode(why), fault.Hint(why))
		}
		back = append(back, name)
	}
	if len(back) == 0 {
		return why
	}
	return fault.Wrap(fmt.Errorf("%w\nthe previous manifests of %s are restored too", why, strings.Join(back, ", ")), fault.ExitCode(why), fault.Hint(why))
}

// renew renews certificates. It leaves out those that another CA signs.
func (u *Upgrade) renew(names ...string) error {
	if !u.options.CertificateRenewal {
		return nil
	}
	certs, _, err := pki.Expirations(u.config, u.files())
	if err != nil {
		return err
	}
	for _, c := range certs {
		switch {
		case !slices.Contains(names, c.Name):
		case c.Missing:
			u.console.Debug(1, "%s does not exist: not renewed", c.File)
		case c.External:
			u.console.Warn("%s is managed externally, because the key of the CA %q is not on this host: not renewed", c.File, c.CA)
		default:
			made, err := pki.Renew(u.config, u.files(), time.Now(), c.Name)
			if err != nil {
				return err
			}
			for _, f := range made.Files {
				if err := u.host.RenewFile(f.Path, f.Data, f.Mode); err != nil {
					return err
				}
			}
			u.console.Debug(1, "renewed %s", c.File)
			u.changed(true)
		}
	}
	return nil
}

// renewAdmins renews the administrators' kubeconfigs after the control plane was replaced.
func (u *Upgrade) renewAdmins(replaced []string) error {
	if len(replaced) == 0 {
		return nil
	}
	if err := u.renew("admin.conf", "super-admin.conf"); err != nil {
		return err
	}
	return u.connect(u.config)
}

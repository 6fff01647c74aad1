package revision

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"airlift/installer/cluster/lease"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/installer/upgradecheck"
	"airlift/internal/fault"
)

// preparePods renders the new manifests.
func (r *Revision) preparePods() (err error) {
	r.Pods = pods.WithWatch(r.Watch, r.Config.Timeouts)
	r.Pods.Annotates, r.Pods.Ended, r.Pods.Starts = true, r.releaseLeadership, r.recordEtcd
	r.Pods.IgnoresEtcd = preflight.Ignored(upgradecheck.EtcdHealth, r.Options.IgnorePreflightErrors)
	if r.Plans, err = r.manifests(); err != nil {
		return err
	}
	// A component that does not change may have been edited by hand: it stays.
	maps.DeleteFunc(r.Plans, func(name string, _ []byte) bool { return !r.Change.Concerns(name) })
	for name, manifest := range r.Plans { // a comment, or flags in another order, are no reason for a restart
		now, err := r.ReadManifest(name)
		if err != nil {
			return err
		}
		if reconfiguration.SamePod(now, manifest) {
			r.Plans[name] = now
		}
	}
	return nil
}

// componentCerts are the certificates that are renewed before a component is replaced, as in
// kubeadm.
var componentCerts = map[string][]string{
	node.EtcdPod:              {"etcd-server", "etcd-peer", "etcd-healthcheck-client"},
	"kube-apiserver":          {"apiserver", "apiserver-kubelet-client", "apiserver-etcd-client", "front-proxy-client"},
	"kube-controller-manager": {"controller-manager.conf"},
	"kube-scheduler":          {"scheduler.conf"},
}

// manifests renders the new manifests of this node's static pods, with the user's patches.
func (r *Revision) manifests() (map[string][]byte, error) {
	plans, err := r.Rendered(r.Config, r.ReportPatched)
	if err != nil {
		return nil, err
	}
	older, err := r.OlderEtcd(plans[node.EtcdPod])
	if err != nil {
		return nil, err
	}
	if older != "" {
		r.Console.Note("etcd is not replaced: %s", older)
		delete(plans, node.EtcdPod)
	}
	return plans, nil
}

// Rendered returns the manifests of this node's static pods for a configuration. A reconfiguration keeps an etcd that is newer than the
// one of the file.
func (r *Revision) Rendered(c *config.Config, patched func(target string, files []string)) (map[string][]byte, error) {
	if r.Options.Kind == Reconfigure {
		newer, err := r.NewerEtcd(c.Images[node.EtcdPod])
		if err != nil {
			return nil, err
		}
		if newer != "" {
			with := *c
			with.Images = maps.Clone(c.Images)
			with.Images[node.EtcdPod], c = newer, &with
		}
	}
	pods, err := render.ControlPlane(c, r.Files())
	if err != nil {
		return nil, err
	}
	if c.Etcd.External == nil && r.Options.EtcdUpgrade {
		var members []render.EtcdMember
		if phases.Joined(r.Existing) {
			members = node.WrittenMembers(r.Existing)
		}
		if pods[node.EtcdPod], err = r.EtcdPod(c, members...); err != nil {
			return nil, err
		}
	}
	plans := map[string][]byte{}
	for name, pod := range pods {
		with, used, err := r.Plan.Patches.Pod(pod)
		if err != nil {
			return nil, err
		}
		patched(name, used)
		if plans[name], err = render.YAML(with); err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// Manifests returns the manifests of this node's static pods, in the order in which they are replaced.
func (r *Revision) Manifests(context.Context) (l desired.List, err error) {
	for _, name := range pods.StaticPodOrder {
		if r.Plans[name] != nil {
			l.Files = append(l.Files, pki.File{Path: node.ManifestPath(name), Data: r.Plans[name], Mode: 0o600})
		}
	}
	return l, nil
}

// Replaces reports whether a component gets another manifest.
func (r *Revision) Replaces(component string) (bool, error) {
	now, err := r.ReadManifest(component)
	return err == nil && !bytes.Equal(now, r.Plans[component]), err
}

// ReplacePods replaces the static pods whose manifests changed, and restarts those that have to read files again: etcd first, each
// healthy before the next. If one fails in an upgrade, all static pods that this run replaced are restored, except etcd; a
// reconfiguration is undone as a whole, also its files.
func (r *Revision) ReplacePods(ctx context.Context, l desired.List) error {
	if r.Pods == nil {
		r.Console.Note("nothing to do: this node is not a control plane")
		return nil
	}
	if err := cmp.Or(node.Unfinished(r.Existing), node.RotationInProgress(r.Existing, r.Config)); err != nil { // the phase may run alone
		return err
	}
	names := r.names(l)
	if len(names) > 0 {
		phases.GiveAddressAway(ctx, r.Console)
	}
	var done []string
	for _, name := range names {
		replaced, err := r.replaceOrRestart(ctx, name)
		if err != nil {
			err = fmt.Errorf("replacing %s: %w", name, err)
			if r.Options.Kind != Upgrade || ctx.Err() != nil || errors.Is(err, lease.ErrNoTurn) {
				return err
			}
			return r.putBack(ctx, done, err)
		}
		if replaced && name != node.EtcdPod {
			done = append(done, name)
		}
	}
	if err := r.renewEtcd(); err != nil {
		return err
	}
	return r.renewAdmins(done)
}

// names returns the static pods that may be replaced or restarted, in their order.
func (r *Revision) names(l desired.List) (names []string) {
	for _, name := range pods.StaticPodOrder {
		listed := slices.ContainsFunc(l.Files, func(f pki.File) bool { return f.Path == node.ManifestPath(name) })
		if listed || r.Record.IsPending(name) || slices.Contains(r.Change.Readers(), name) {
			names = append(names, name)
		}
	}
	return names
}

// replaceOrRestart replaces a static pod, or restarts one that keeps its manifest and reads files that were written. An API server
// whose etcd was away connects again after up to two minutes (gRPC's backoff): it is replaced or restarted right after etcd, and
// nothing waits for it before.
func (r *Revision) replaceOrRestart(ctx context.Context, name string) (changed bool, err error) {
	etcd := name == node.EtcdPod && r.Plans[name] != nil
	next := false
	if etcd && r.Plans["kube-apiserver"] != nil {
		next, _ = r.Replaces("kube-apiserver")
	}
	r.Pods.APIServerFollows = etcd
	replaced := false
	if r.Plans[name] != nil {
		changes, err := r.Replaces(name)
		if err != nil {
			return false, err
		}
		if replaced, err = r.replace(ctx, name); err == nil && changes {
			err = r.Restarted(name) // its container is newer than the files
		}
		if err != nil {
			return replaced, err
		}
	}
	if !replaced || r.Record.IsPending(name) {
		if replaced, err = r.Change.RestartReader(ctx, name); err != nil || !replaced {
			return replaced, err
		}
	}
	if etcd && next {
		return true, nil
	}
	if etcd {
		if err := r.Pods.Restart(ctx, "kube-apiserver"); err != nil {
			return true, err
		}
	}
	return true, r.waitAPI(ctx)
}

// renewEtcd renews the certificates of an etcd that this upgrade does not replace, once. etcd reads
// them without a restart.
func (r *Revision) renewEtcd() error {
	if !r.Unfinished() || r.Record.EtcdRenewed || r.Config.Etcd.External != nil || !r.Options.EtcdUpgrade {
		return nil
	}
	if former, err := r.former().Read(node.ManifestPath(node.EtcdPod)); err != nil || former != nil {
		return err // it was replaced, after its certificates
	}
	if err := r.renew(componentCerts[node.EtcdPod]...); err != nil {
		return err
	}
	r.Record.EtcdRenewed = true
	return r.WriteRecord()
}

// replace replaces one static pod. It renews the component's certificates before.
func (r *Revision) replace(ctx context.Context, name string) (replaced bool, err error) {
	changes, err := r.Replaces(name)
	if err != nil {
		return false, err
	}
	if !changes {
		if !r.Unfinished() {
			return false, nil
		}
		// An interrupted run may have written it.
		previous, err := r.attempt().Read(node.ManifestPath(name))
		if err != nil || previous == nil || bytes.Equal(previous, r.Plans[name]) {
			return false, err
		}
		return r.replacePod(ctx, name, previous)
	}
	if err := r.Begin(); err != nil {
		return false, err
	}
	attempt := r.attempt()
	for _, kept := range []host.Kept{r.former(), attempt} {
		if err := kept.Keep(node.ManifestPath(name)); err != nil {
			return false, err
		}
	}
	previous, err := attempt.Read(node.ManifestPath(name))
	if err != nil {
		return false, err
	}
	if err := r.renew(componentCerts[name]...); err != nil {
		return false, err
	}
	image, err := node.PodImage(r.Plans[name])
	if err != nil {
		return false, err
	}
	r.Console.Note("%s: %s", name, image)
	return r.replacePod(ctx, name, previous)
}

// replacePod replaces a static pod. If the new one fails, it gets the manifest previous back, except
// an etcd of another minor version: that may have changed its data, which the previous one cannot read.
func (r *Revision) replacePod(ctx context.Context, name string, previous []byte) (replaced bool, err error) {
	stays := false
	if name == node.EtcdPod && previous != nil {
		same, err := node.SameEtcd(previous, r.Plans[name])
		if err != nil {
			return false, err
		}
		if stays = !same; stays {
			previous = nil
		}
	}
	if r.Options.Kind != Upgrade {
		previous = nil // all of it is undone, also its files
	}
	_, err = r.Pods.Replace(ctx, name, r.Plans[name], previous)
	if now, _ := r.ReadManifest(name); err != nil && stays && bytes.Equal(now, r.Plans[name]) {
		err = fault.Wrap(fmt.Errorf("%w\nits previous manifest is not restored: the new etcd may have changed the version of its data, which the previous one cannot read", err), fault.ExitCode(err), fault.Hint(err))
	}
	return err == nil, err
}

// recordEtcd records the new etcd before the kubelet can start it.
func (r *Revision) recordEtcd(component string) error {
	if component != node.EtcdPod {
		return nil
	}
	image, err := node.PodImage(r.Plans[component])
	if err != nil {
		return err
	}
	next := *r.Record
	next.EtcdStarted = image
	if err := next.Write(r.Host); err != nil {
		return err
	}
	r.Record = &next
	return nil
}

// releaseLeadership gives back the Lease of this host's controller manager, which keeps it when it ends.
// That takes pods.WorkerEnd.
func (r *Revision) releaseLeadership(ctx context.Context, component string) {
	if component != node.ControllerManager {
		return
	}
	name, err := os.Hostname()
	if err == nil {
		_, err = lease.ReleaseLeadership(ctx, r.API.Client.API, component, name, pods.WorkerEnd)
	}
	if err != nil {
		r.Console.Debug(1, "releasing the Lease of %s: %v", component, err)
	}
}

// waitAPI waits for this node's API server: etcd's restart interrupts it, too.
func (r *Revision) waitAPI(ctx context.Context) error {
	needs := r.LocalAPI()
	needs.Only = true
	return r.Watch.Watched(ctx, needs, func(ctx context.Context) error {
		return r.API.Client.WaitForAPI(ctx, r.Pods.Timeout, r.Report)
	})
}

// putBack restores the previous manifests of components, the last one first, and returns why.
func (r *Revision) putBack(ctx context.Context, components []string, why error) error {
	var back []string
	for _, name := range slices.Backward(components) {
		previous, err := r.attempt().Read(node.ManifestPath(name))
		if err == nil && previous != nil {
			r.Watch.Forget()
			_, err = r.Pods.Replace(ctx, name, previous, nil)
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

// renew renews certificates, except certificates that an external CA signs.
func (r *Revision) renew(names ...string) error {
	if !r.Options.CertificateRenewal {
		return nil
	}
	certs, _, err := pki.Expirations(r.Config, r.Files())
	if err != nil {
		return err
	}
	for _, c := range certs {
		switch {
		case !slices.Contains(names, c.Name):
		case c.Missing:
			r.Console.Debug(1, "%s does not exist: not renewed", c.File)
		case c.External:
			r.Console.Warn("%s is managed externally, because the key of the CA %q is not on this host: not renewed", c.File, c.CA)
		default:
			made, err := pki.Renew(r.Config, r.Files(), time.Now(), c.Name)
			if err != nil {
				return err
			}
			for _, f := range made.Files {
				if err := r.Host.RenewFile(f.Path, f.Data, f.Mode); err != nil {
					return err
				}
			}
			r.Console.Debug(1, "renewed %s", c.File)
			r.Changed(true)
		}
	}
	return nil
}

// renewAdmins renews the administrators' kubeconfigs after the control plane was replaced.
func (r *Revision) renewAdmins(replaced []string) error {
	if len(replaced) == 0 {
		return nil
	}
	if err := r.renew("admin.conf", "super-admin.conf"); err != nil {
		return err
	}
	return r.Connect(r.Config)
}

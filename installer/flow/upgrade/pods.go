package upgrade

import (
	"bytes"
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

// A controlPlane is the part of an upgrade that replaces the static pods of this node.
type controlPlane struct {
	node    *phases.Node
	api     *phases.API
	options Options
	facts   *knowledge
	record  *record
	pods    *pods.StaticPods  // nil on a worker
	plans   map[string][]byte // new manifests, by component
}

// prepare renders the new manifests.
func (p *controlPlane) prepare() (err error) {
	p.pods = pods.WithWatch(p.node.Watch, p.node.Config.Timeouts)
	p.pods.Annotates, p.pods.Ended, p.pods.Starts = true, p.releaseLeadership, p.recordEtcd
	p.pods.IgnoresEtcd = preflight.Ignored(upgradecheck.EtcdHealth, p.options.IgnorePreflightErrors)
	if p.plans, err = p.manifests(); err != nil || p.facts.change == nil {
		return err
	}
	// A component that a reconfiguration does not change may have been edited by hand: it stays.
	maps.DeleteFunc(p.plans, func(name string, _ []byte) bool { return !p.facts.change.concerns(name) })
	return p.keepSame()
}

// keepSame keeps manifests that give the pods of the new ones: a comment, or flags in another order, are no reason for a restart.
func (p *controlPlane) keepSame() error {
	for name, manifest := range p.plans {
		now, err := p.node.ReadManifest(name)
		if err != nil {
			return err
		}
		if reconfiguration.SamePod(now, manifest) {
			p.plans[name] = now
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
func (p *controlPlane) manifests() (map[string][]byte, error) {
	plans, err := p.rendered(p.node.Config, p.node.ReportPatched)
	if err != nil {
		return nil, err
	}
	older, err := p.node.OlderEtcd(plans[node.EtcdPod])
	if err != nil {
		return nil, err
	}
	if older != "" {
		p.node.Console.Note("etcd is not replaced: %s", older)
		delete(plans, node.EtcdPod)
	}
	return plans, nil
}

// rendered returns the manifests of this node's static pods for a configuration.
func (p *controlPlane) rendered(c *config.Config, patched func(target string, files []string)) (map[string][]byte, error) {
	pods, err := render.ControlPlane(c, p.node.Files())
	if err != nil {
		return nil, err
	}
	if c.Etcd.External == nil && p.options.EtcdUpgrade {
		var members []render.EtcdMember
		if phases.Joined(p.node.Existing) {
			members = node.WrittenMembers(p.node.Existing)
		}
		if pods[node.EtcdPod], err = render.Etcd(c, members...); err != nil {
			return nil, err
		}
	}
	plans := map[string][]byte{}
	for name, pod := range pods {
		with, used, err := p.node.Plan.Patches.Pod(pod)
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

// desired returns the manifests of this node's static pods, in the order in which they are replaced.
func (p *controlPlane) desired(context.Context) (l desired.List, err error) {
	for _, name := range pods.StaticPodOrder {
		if p.plans[name] != nil {
			l.Files = append(l.Files, pki.File{Path: node.ManifestPath(name), Data: p.plans[name], Mode: 0o600})
		}
	}
	return l, nil
}

// replaces reports whether a component gets another manifest.
func (p *controlPlane) replaces(component string) (bool, error) {
	now, err := p.node.ReadManifest(component)
	return err == nil && !bytes.Equal(now, p.plans[component]), err
}

// upgrade replaces the static pods whose manifests changed: etcd first, each healthy before the
// next. If one fails, all static pods that this run replaced are restored, except etcd.
func (p *controlPlane) upgrade(ctx context.Context, l desired.List) error {
	if p.pods == nil {
		p.node.Console.Note("nothing to do: this node is not a control plane")
		return nil
	}
	if err := node.UnfinishedWork(p.node.Existing, p.node.Config); err != nil { // the phase may run alone
		return err
	}
	names := p.names(l)
	if len(names) > 0 {
		phases.GiveAddressAway(ctx, p.node.Console)
	}
	var done []string
	for _, name := range names {
		p.pods.APIServerFollows = p.apiServerIsNext(name)
		alone := !p.pods.APIServerFollows && name == node.EtcdPod && p.facts.change != nil && p.plans[name] != nil
		p.pods.APIServerFollows = p.pods.APIServerFollows || alone
		replaced, err := p.replaceOrRestart(ctx, name)
		if err == nil && replaced && alone {
			err = p.pods.Restart(ctx, "kube-apiserver")
		}
		if err == nil && replaced && (alone || !p.pods.APIServerFollows) {
			err = p.waitAPI(ctx)
		}
		if err != nil {
			if p.facts.change != nil { // all of it is undone, also its files
				return fmt.Errorf("changing %s: %w", name, err)
			}
			err = fmt.Errorf("upgrading %s: %w", name, err)
			if ctx.Err() != nil || errors.Is(err, lease.ErrNoTurn) {
				return err
			}
			return p.putBack(ctx, done, err)
		}
		if replaced && name != node.EtcdPod {
			done = append(done, name)
		}
	}
	if err := p.renewEtcd(); err != nil {
		return err
	}
	return p.renewAdmins(done)
}

// names returns the static pods that may be replaced or restarted, in their order.
func (p *controlPlane) names(l desired.List) (names []string) {
	for _, name := range pods.StaticPodOrder {
		listed := slices.ContainsFunc(l.Files, func(f pki.File) bool { return f.Path == node.ManifestPath(name) })
		if listed || p.record.state.IsPending(name) || p.facts.change != nil && slices.Contains(p.facts.change.carried.readers(), name) {
			names = append(names, name)
		}
	}
	return names
}

// replaceOrRestart replaces a static pod. One that keeps its manifest is restarted if it reads files that were written.
func (p *controlPlane) replaceOrRestart(ctx context.Context, name string) (bool, error) {
	replaced := false
	if p.plans[name] != nil {
		changes, err := p.replaces(name)
		if err != nil {
			return false, err
		}
		if replaced, err = p.replace(ctx, name); err == nil && changes {
			err = p.record.restarted(name) // its container is newer than the files
		}
		if err != nil || replaced && !p.record.state.IsPending(name) {
			return replaced, err
		}
	}
	if p.facts.change == nil {
		return false, nil
	}
	return p.facts.change.carried.restartReader(ctx, p.pods, name)
}

// renewEtcd renews the certificates of an etcd that this upgrade does not replace, once. etcd reads
// them without a restart.
func (p *controlPlane) renewEtcd() error {
	if !p.record.unfinished() || p.record.state.EtcdRenewed || p.node.Config.Etcd.External != nil || !p.options.EtcdUpgrade {
		return nil
	}
	if former, err := p.record.former().Read(node.ManifestPath(node.EtcdPod)); err != nil || former != nil {
		return err // it was replaced, after its certificates
	}
	if err := p.renew(componentCerts[node.EtcdPod]...); err != nil {
		return err
	}
	p.record.state.EtcdRenewed = true
	return p.record.write()
}

// apiServerIsNext reports whether this node's API server is replaced right after a component. An API
// server whose etcd was away connects again after up to two minutes (gRPC's backoff), and no step
// before needs it. A reconfiguration that changes only etcd restarts the API server after it.
func (p *controlPlane) apiServerIsNext(component string) bool {
	if component != node.EtcdPod || p.plans["kube-apiserver"] == nil {
		return false
	}
	next, err := p.replaces("kube-apiserver")
	return err == nil && next
}

// replace replaces one static pod. It renews the component's certificates before.
func (p *controlPlane) replace(ctx context.Context, name string) (replaced bool, err error) {
	changes, err := p.replaces(name)
	if err != nil {
		return false, err
	}
	if !changes {
		if !p.record.unfinished() {
			return false, nil
		}
		// An interrupted run may have written it.
		previous, err := p.record.attempt().Read(node.ManifestPath(name))
		if err != nil || previous == nil || bytes.Equal(previous, p.plans[name]) {
			return false, err
		}
		return p.replacePod(ctx, name, previous)
	}
	if err := p.record.begin(); err != nil {
		return false, err
	}
	attempt := p.record.attempt()
	for _, kept := range []host.Kept{p.record.former(), attempt} {
		if err := kept.Keep(node.ManifestPath(name)); err != nil {
			return false, err
		}
	}
	previous, err := attempt.Read(node.ManifestPath(name))
	if err != nil {
		return false, err
	}
	if err := p.renew(componentCerts[name]...); err != nil {
		return false, err
	}
	image, err := node.PodImage(p.plans[name])
	if err != nil {
		return false, err
	}
	p.node.Console.Note("%s: %s", name, image)
	return p.replacePod(ctx, name, previous)
}

// replacePod replaces a static pod. If the new one fails, it gets the manifest previous back, except
// an etcd of another minor version: that may have changed its data, which the previous one cannot read.
func (p *controlPlane) replacePod(ctx context.Context, name string, previous []byte) (replaced bool, err error) {
	stays := false
	if name == node.EtcdPod && previous != nil {
		same, err := node.SameEtcd(previous, p.plans[name])
		if err != nil {
			return false, err
		}
		if stays = !same; stays {
			previous = nil
		}
	}
	if p.facts.change != nil {
		previous = nil // all of it is undone, also its files
	}
	_, err = p.pods.Replace(ctx, name, p.plans[name], previous)
	if now, _ := p.node.ReadManifest(name); err != nil && stays && bytes.Equal(now, p.plans[name]) {
		err = fault.Wrap(fmt.Errorf("%w\nits previous manifest is not restored: the new etcd may have changed the version of its data, which the previous one cannot read", err), fault.ExitCode(err), fault.Hint(err))
	}
	return err == nil, err
}

// recordEtcd records the new etcd before the kubelet can start it.
func (p *controlPlane) recordEtcd(component string) error {
	if component != node.EtcdPod {
		return nil
	}
	image, err := node.PodImage(p.plans[component])
	if err != nil {
		return err
	}
	return p.record.startEtcd(image)
}

// releaseLeadership gives back the Lease of this host's controller manager, which keeps it when it ends.
// That takes pods.WorkerEnd.
func (p *controlPlane) releaseLeadership(ctx context.Context, component string) {
	if component != node.ControllerManager {
		return
	}
	name, err := os.Hostname()
	if err == nil {
		_, err = lease.ReleaseLeadership(ctx, p.api.Client.API, component, name, pods.WorkerEnd)
	}
	if err != nil {
		p.node.Console.Debug(1, "releasing the Lease of %s: %v", component, err)
	}
}

// waitAPI waits for this node's API server: etcd's restart interrupts it, too.
func (p *controlPlane) waitAPI(ctx context.Context) error {
	needs := p.node.LocalAPI()
	needs.Only = true
	return p.node.Watch.Watched(ctx, needs, func(ctx context.Context) error {
		return p.api.Client.Waits().WaitForAPI(ctx, p.pods.Timeout, p.node.Report)
	})
}

// putBack restores the previous manifests of components, the last one first, and returns why.
func (p *controlPlane) putBack(ctx context.Context, components []string, why error) error {
	var back []string
	for _, name := range slices.Backward(components) {
		previous, err := p.record.attempt().Read(node.ManifestPath(name))
		if err == nil && previous != nil {
			p.node.Watch.Forget()
			_, err = p.pods.Replace(ctx, name, previous, nil)
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
func (p *controlPlane) renew(names ...string) error {
	if !p.options.CertificateRenewal {
		return nil
	}
	certs, _, err := pki.Expirations(p.node.Config, p.node.Files())
	if err != nil {
		return err
	}
	for _, c := range certs {
		switch {
		case !slices.Contains(names, c.Name):
		case c.Missing:
			p.node.Console.Debug(1, "%s does not exist: not renewed", c.File)
		case c.External:
			p.node.Console.Warn("%s is managed externally, because the key of the CA %q is not on this host: not renewed", c.File, c.CA)
		default:
			made, err := pki.Renew(p.node.Config, p.node.Files(), time.Now(), c.Name)
			if err != nil {
				return err
			}
			for _, f := range made.Files {
				if err := p.node.Host.RenewFile(f.Path, f.Data, f.Mode); err != nil {
					return err
				}
			}
			p.node.Console.Debug(1, "renewed %s", c.File)
			p.node.Changed(true)
		}
	}
	return nil
}

// renewAdmins renews the administrators' kubeconfigs after the control plane was replaced.
func (p *controlPlane) renewAdmins(replaced []string) error {
	if len(replaced) == 0 {
		return nil
	}
	if err := p.renew("admin.conf", "super-admin.conf"); err != nil {
		return err
	}
	return p.facts.connect(p.node.Config)
}

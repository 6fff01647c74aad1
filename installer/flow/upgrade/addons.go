package upgrade

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/installer/cluster/facts"
	"airlift/installer/config"
	"airlift/installer/corefile"
	"airlift/installer/desired"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/render"
	"airlift/installer/upgradecheck"
)

// addons are CoreDNS, kube-proxy and the pod network.
type addons struct {
	node         *phases.Node
	api          *phases.API
	bundle       *payload.Bundle
	facts        *knowledge
	controlPlane *controlPlane
	objects      *objects

	left       bool     // an add-on waits until other nodes are upgraded
	imagesLeft []string // workers that have no image of such an add-on yet
}

// ready reports whether the pods of an add-on can run on all nodes: all control planes are
// upgraded, and all nodes have the image. Without a registry, a pod whose image is missing
// would never start.
func (a *addons) ready(ctx context.Context, name string, now *facts.Workload) (bool, error) {
	switch {
	case now == nil:
		a.node.Console.Note("the cluster has no %s: nothing to upgrade", name)
		return false, nil
	case a.controlPlane.pods == nil:
		return false, nil
	}
	servers, err := facts.APIServerImages(ctx, a.api.Client.API)
	if err != nil {
		return false, err
	}
	nodes, err := facts.UpgradeNodes(ctx, a.api.Client.API)
	if err != nil {
		return false, err
	}
	image := a.node.Config.Images[name]
	var old, without, workers []string
	for _, n := range nodes {
		server, plane := servers[n.Name]
		plane = plane && n.ControlPlane // a kubelet may create the pod of an API server
		if n.Name == a.node.Config.NodeRegistration.Name {
			continue
		}
		if plane && server != a.node.Config.Images["kube-apiserver"] {
			old = append(old, n.Name)
		}
		// A node that has the version, or follows the reconfiguration, has its images: it lists only some of them.
		has := n.KubeletVersion == a.bundle.KubernetesVersion()
		if a.facts.change != nil {
			has = a.node.Config.Reconfiguration.Follows(n.Reconfiguration, plane)
		}
		if has || n.HasImage(image) || slices.Contains(now.Images, image) {
			continue
		}
		without = append(without, n.Name)
		if !plane {
			workers = append(workers, n.Name)
		}
	}
	switch {
	case len(old) > 0:
		a.postpone(workers, "%s is postponed until these control planes are upgraded: %s", name, strings.Join(old, ", "))
	case len(without) > 0:
		a.postpone(workers, "%s is postponed until these nodes have its image: %s", name, strings.Join(without, ", "))
	}
	return len(old) == 0 && len(without) == 0, nil
}

// postpone prints why an add-on is not upgraded now. The upgrade of the last control plane does
// it, unless a worker has no image then.
func (a *addons) postpone(workers []string, format string, args ...any) {
	a.node.Console.Note(format, args...)
	a.left = true
	for _, w := range workers {
		if !slices.Contains(a.imagesLeft, w) {
			a.imagesLeft = append(a.imagesLeft, w)
		}
	}
}

// concerned reports whether this run may change an add-on: an upgrade may change each add-on, a reconfiguration only an add-on whose configuration changes.
func (a *addons) concerned(name string) bool {
	return a.facts.change == nil || a.facts.change.concerns(name)
}

// coreDNS returns CoreDNS. It keeps the number of replicas and a user's Corefile.
func (a *addons) coreDNS(ctx context.Context) (l desired.List, err error) {
	if a.controlPlane.pods == nil || a.node.Config.DNS.Disabled || !a.concerned("coredns") {
		return l, nil
	}
	now, err := facts.Deployment(ctx, a.api.Client.API, "kube-system", "coredns")
	if err != nil {
		return l, err
	}
	if ready, err := a.ready(ctx, "coredns", now); err != nil || !ready {
		return l, err
	}
	_, err = a.api.Client.API.CoreV1().Services("kube-system").Get(ctx, "kube-dns", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		a.node.Console.Note("CoreDNS is not changed: the cluster has no Service kube-system/kube-dns, so another tool manages its DNS")
		return l, nil
	}
	if err != nil {
		return l, err
	}
	objects, err := render.CoreDNS(a.node.Config)
	if err != nil {
		return l, err
	}
	text, err := cluster.Corefile(ctx, a.api.Client.API)
	if err != nil {
		return l, err
	}
	keep := false
	for i, o := range objects {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			if text == "" || render.IsDefaultCorefile(a.node.Config, text, a.facts.stored.Cluster.KubernetesVersion, a.facts.self.KubeletVersion, a.bundle.KubernetesVersion()) {
				continue
			}
			is, want := tagOf(now.Images), tagOf([]string{a.node.Config.Images["coredns"]})
			m, err := corefile.Migrate(is, want, text)
			if err != nil {
				a.node.Console.Warn("%v: the Corefile and CoreDNS %s are kept", err, is)
				keep = true
			}
			for _, plugin := range m.Unknown {
				a.node.Console.Warn("the migration does not know parts of the Corefile, which are not changed: %s", plugin)
			}
			o.Data = map[string]string{"Corefile": m.Corefile}
			if m.Changed(text) {
				o.Data["Corefile-backup"] = text
				for _, change := range m.Changes {
					a.node.Console.Note("Corefile: %s", change)
				}
			}
		case *appsv1.Deployment:
			o.Spec.Replicas = now.Replicas
			objects[i] = o
		}
	}
	if keep {
		objects = slices.DeleteFunc(objects, func(o runtime.Object) bool {
			_, is := o.(*appsv1.Deployment)
			return is
		})
	}
	objects, used, err := a.node.Plan.Patches.AddOn(objects)
	a.node.ReportPatched("coredns", used)
	return desired.List{Objects: objects}, err
}

func tagOf(images []string) string {
	if len(images) == 0 {
		return ""
	}
	return upgradecheck.Tag(images[len(images)-1])
}

// kubeProxy returns kube-proxy. It keeps a user's configuration.
func (a *addons) kubeProxy(ctx context.Context) (desired.List, error) {
	return a.daemonSet(ctx, "kube-proxy", "kube-system", "kube-proxy", !a.node.Config.Proxy.Disabled, render.KubeProxy)
}

// flannel returns the pod network. Its configuration stays: a user may have changed it.
func (a *addons) flannel(ctx context.Context) (desired.List, error) {
	return a.daemonSet(ctx, "flannel", "kube-flannel", "kube-flannel-ds", a.node.Config.CNI == "flannel", func(c *config.Config) ([]runtime.Object, error) {
		objects, err := render.Flannel(c)
		return withoutConfigMaps(objects), err
	})
}

func (a *addons) daemonSet(ctx context.Context, name, namespace, object string, configured bool, build func(*config.Config) ([]runtime.Object, error)) (l desired.List, err error) {
	if a.controlPlane.pods == nil || !configured || !a.concerned(name) {
		return l, nil
	}
	now, err := facts.DaemonSet(ctx, a.api.Client.API, namespace, object)
	if err != nil {
		return l, err
	}
	if ready, err := a.ready(ctx, name, now); err != nil || !ready {
		return l, err
	}
	objects, err := build(a.node.Config)
	if err != nil {
		return l, err
	}
	objects, used, err := a.node.Plan.Patches.AddOn(objects)
	a.node.ReportPatched(name, used)
	return desired.List{Objects: objects}, err
}

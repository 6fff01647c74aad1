package revision

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
	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/corefile"
	"airlift/installer/desired"
	"airlift/installer/render"
	"airlift/installer/upgradecheck"
)

// addOnReady reports whether the pods of an add-on can run on all nodes: all control planes are
// upgraded, and all nodes have the image. Without a registry, a pod whose image is missing
// would never start.
func (r *Revision) addOnReady(ctx context.Context, name string, now *inventory.Workload) (bool, error) {
	switch {
	case now == nil:
		r.Console.Note("the cluster has no %s: nothing to upgrade", name)
		return false, nil
	case r.Pods == nil:
		return false, nil
	}
	servers, err := inventory.APIServerImages(ctx, r.API.Client.API)
	if err != nil {
		return false, err
	}
	nodes, err := inventory.Nodes(ctx, r.API.Client.API)
	if err != nil {
		return false, err
	}
	image := r.Config.Images[name]
	var old, without, workers []string
	for _, n := range nodes {
		server, plane := servers[n.Name]
		plane = plane && n.ControlPlane // a kubelet may create the pod of an API server
		if n.Name == r.Config.NodeRegistration.Name {
			continue
		}
		if plane && server != r.Config.Images["kube-apiserver"] {
			old = append(old, n.Name)
		}
		// A node that has the version, or follows the reconfiguration, has its images: it lists only some of them.
		if r.Change.HasImages(n, plane) || n.HasImage(image) || slices.Contains(now.Images, image) {
			continue
		}
		without = append(without, n.Name)
		if !plane {
			workers = append(workers, n.Name)
		}
	}
	switch {
	case len(old) > 0:
		r.postpone(workers, "%s is postponed until these control planes are upgraded: %s", name, strings.Join(old, ", "))
	case len(without) > 0:
		r.postpone(workers, "%s is postponed until these nodes have its image: %s", name, strings.Join(without, ", "))
	}
	return len(old) == 0 && len(without) == 0, nil
}

// postpone prints why an add-on is not upgraded now. The upgrade of the last control plane does
// it, unless a worker has no image then.
func (r *Revision) postpone(workers []string, format string, args ...any) {
	r.Console.Note(format, args...)
	r.AddOnsLeft = true
	for _, w := range workers {
		if !slices.Contains(r.ImagesLeft, w) {
			r.ImagesLeft = append(r.ImagesLeft, w)
		}
	}
}

// CoreDNS returns CoreDNS. It keeps the number of replicas and a user's Corefile.
func (r *Revision) CoreDNS(ctx context.Context) (l desired.List, err error) {
	if r.Pods == nil || r.Config.DNS.Disabled || !r.Change.Concerns("coredns") {
		return l, nil
	}
	now, err := inventory.Deployment(ctx, r.API.Client.API, "kube-system", "coredns")
	if err != nil {
		return l, err
	}
	if ready, err := r.addOnReady(ctx, "coredns", now); err != nil || !ready {
		return l, err
	}
	_, err = r.API.Client.API.CoreV1().Services("kube-system").Get(ctx, "kube-dns", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.Console.Note("CoreDNS is not changed: the cluster has no Service kube-system/kube-dns, so another tool manages its DNS")
		return l, nil
	}
	if err != nil {
		return l, err
	}
	objects, err := render.CoreDNS(r.Config)
	if err != nil {
		return l, err
	}
	text, err := cluster.Corefile(ctx, r.API.Client.API)
	if err != nil {
		return l, err
	}
	keep := false
	for i, o := range objects {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			if text == "" || render.IsDefaultCorefile(r.Config, text, r.Stored.Cluster.KubernetesVersion, r.Self.KubeletVersion, r.Bundle.KubernetesVersion()) {
				continue
			}
			is, want := tagOf(now.Images), tagOf([]string{r.Config.Images["coredns"]})
			m, err := corefile.Migrate(is, want, text)
			if err != nil {
				r.Console.Warn("%v: the Corefile and CoreDNS %s are kept", err, is)
				keep = true
			}
			for _, plugin := range m.Unknown {
				r.Console.Warn("the migration does not know parts of the Corefile, which are not changed: %s", plugin)
			}
			o.Data = map[string]string{"Corefile": m.Corefile}
			if m.Changed(text) {
				o.Data["Corefile-backup"] = text
				for _, change := range m.Changes {
					r.Console.Note("Corefile: %s", change)
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
	objects, used, err := r.Plan.Patches.AddOn(objects)
	r.ReportPatched("coredns", used)
	return desired.List{Objects: objects}, err
}

func tagOf(images []string) string {
	if len(images) == 0 {
		return ""
	}
	return upgradecheck.Tag(images[len(images)-1])
}

// KubeProxy returns kube-proxy. It keeps a user's configuration.
func (r *Revision) KubeProxy(ctx context.Context) (desired.List, error) {
	return r.daemonSet(ctx, "kube-proxy", "kube-system", "kube-proxy", !r.Config.Proxy.Disabled, render.KubeProxy)
}

// Flannel returns the pod network. Its configuration stays: a user may have changed it.
func (r *Revision) Flannel(ctx context.Context) (desired.List, error) {
	return r.daemonSet(ctx, "flannel", "kube-flannel", "kube-flannel-ds", r.Config.CNI == "flannel", func(c *config.Config) ([]runtime.Object, error) {
		objects, err := render.Flannel(c)
		return withoutConfigMaps(objects), err
	})
}

func (r *Revision) daemonSet(ctx context.Context, name, namespace, object string, configured bool, build func(*config.Config) ([]runtime.Object, error)) (l desired.List, err error) {
	if r.Pods == nil || !configured || !r.Change.Concerns(name) {
		return l, nil
	}
	now, err := inventory.DaemonSet(ctx, r.API.Client.API, namespace, object)
	if err != nil {
		return l, err
	}
	if ready, err := r.addOnReady(ctx, name, now); err != nil || !ready {
		return l, err
	}
	objects, err := build(r.Config)
	if err != nil {
		return l, err
	}
	objects, used, err := r.Plan.Patches.AddOn(objects)
	r.ReportPatched(name, used)
	return desired.List{Objects: objects}, err
}

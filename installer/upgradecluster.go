package installer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/corefile"
	"airlift/installer/render"
)

// undoneObjects are the objects that undo restores.
var undoneObjects = []cluster.ObjectName{
	{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "kubeadm-config"},
	{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "kubelet-config"},
	{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "coredns"},
	{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "kube-proxy"},
	{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "kube-system", Name: "coredns"},
	{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system", Name: "kube-proxy"},
	{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-flannel", Name: "kube-flannel-ds"},
}

// keepObjects records the objects for undo, before the first of them changes.
func (u *Upgrade) keepObjects(ctx context.Context) error {
	if err := u.begin(); err != nil {
		return err
	}
	if len(u.state.Objects) > 0 {
		return nil
	}
	for _, name := range undoneObjects {
		data, err := u.client.ReadObject(ctx, name)
		if err != nil {
			return err
		}
		if data != nil {
			u.state.Objects = append(u.state.Objects, data)
		}
	}
	return u.state.write(u.host)
}

// store applies objects, after it has kept what they replace.
func (u *Upgrade) store(ctx context.Context, objects []runtime.Object, err error) error {
	if err != nil {
		return err
	}
	if work, err := u.work(); err != nil {
		return err
	} else if work {
		if err := u.keepObjects(ctx); err != nil {
			return err
		}
	}
	return u.applied(u.client.Apply(ctx, objects...))
}

func (u *Upgrade) uploadCluster(ctx context.Context) error {
	objects, err := render.UploadClusterConfig(u.config)
	return u.store(ctx, objects, err)
}

// uploadKubelet replaces the KubeletConfiguration, if it has only defaults. A user's stays.
func (u *Upgrade) uploadKubelet(ctx context.Context) error {
	objects, err := render.UploadKubeletConfig(u.config)
	if err == nil && !u.stored.DefaultKubelet {
		u.console.Debug(1, "ConfigMap kube-system/kubelet-config was changed by the user: it is kept")
		objects = withoutConfigMaps(objects)
	}
	return u.store(ctx, objects, err)
}

func withoutConfigMaps(objects []runtime.Object) []runtime.Object {
	return slices.DeleteFunc(objects, func(o runtime.Object) bool {
		_, is := o.(*corev1.ConfigMap)
		return is
	})
}

// bootstrapToken updates what joining nodes may do. The ConfigMap cluster-info is not changed.
func (u *Upgrade) bootstrapToken(ctx context.Context) error {
	return u.store(ctx, append(render.BootstrapRBAC(u.config), withoutConfigMaps(render.ClusterInfo(u.config, nil))...), nil)
}

// addonReady reports whether the pods of an add-on can run on all nodes: all control planes are
// upgraded, and all nodes have the image. Without a registry, a pod whose image is missing
// would never start.
func (u *Upgrade) addonReady(ctx context.Context, name string, now *cluster.Workload) (bool, error) {
	switch {
	case now == nil:
		u.console.Note("the cluster has no %s: nothing to upgrade", name)
		return false, nil
	case u.pods == nil:
		return false, nil
	}
	servers, err := u.client.APIServerImages(ctx)
	if err != nil {
		return false, err
	}
	nodes, err := u.client.UpgradeNodes(ctx)
	if err != nil {
		return false, err
	}
	image := u.config.Images[name]
	var old, without, workers []string
	for _, n := range nodes {
		server, plane := servers[n.Name]
		if n.Name == u.config.NodeRegistration.Name {
			continue
		}
		if plane && server != u.config.Images["kube-apiserver"] {
			old = append(old, n.Name)
		}
		if n.KubeletVersion == u.bundle.KubernetesVersion() || n.HasImage(image) || slices.Contains(now.Images, image) {
			continue
		}
		without = append(without, n.Name)
		if !plane {
			workers = append(workers, n.Name)
		}
	}
	switch {
	case len(old) > 0:
		u.postpone(workers, "%s is postponed until these control planes are upgraded: %s", name, strings.Join(old, ", "))
	case len(without) > 0:
		u.postpone(workers, "%s is postponed until these nodes have its image: %s", name, strings.Join(without, ", "))
	}
	return len(old) == 0 && len(without) == 0, nil
}

// postpone prints why an add-on is not upgraded now. The upgrade of the last control plane does
// it, unless a worker has no image then.
func (u *Upgrade) postpone(workers []string, format string, args ...any) {
	u.console.Note(format, args...)
	u.addonsLeft = true
	for _, w := range workers {
		if !slices.Contains(u.imagesLeft, w) {
			u.imagesLeft = append(u.imagesLeft, w)
		}
	}
}

// coreDNS upgrades CoreDNS. It keeps the number of replicas and a user's Corefile.
func (u *Upgrade) coreDNS(ctx context.Context) error {
	if u.pods == nil || u.config.DNS.Disabled {
		return nil
	}
	now, err := u.client.Deployment(ctx, "kube-system", "coredns")
	if err != nil {
		return err
	}
	if ready, err := u.addonReady(ctx, "coredns", now); err != nil || !ready {
		return err
	}
	objects, err := render.CoreDNS(u.config)
	if err != nil {
		return err
	}
	text, err := u.client.Corefile(ctx)
	if err != nil {
		return err
	}
	keep := false
	for i, o := range objects {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			if text == "" || u.defaultCorefile(text) {
				continue
			}
			is, want := tagOf(now.Images), tagOf([]string{u.config.Images["coredns"]})
			m, err := corefile.Migrate(is, want, text)
			if err != nil {
				u.console.Warn("%v: the Corefile and CoreDNS %s are kept", err, is)
				keep = true
			}
			for _, plugin := range m.Unknown {
				u.console.Warn("the migration does not know parts of the Corefile, which are not changed: %s", plugin)
			}
			o.Data = map[string]string{"Corefile": m.Corefile}
			if m.Changed(text) {
				o.Data["Corefile-backup"] = text
				for _, change := range m.Changes {
					u.console.Note("Corefile: %s", change)
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
	objects, used, err := u.plan.patches.AddOn(objects)
	u.reportPatched("coredns", used)
	return u.store(ctx, objects, err)
}

// defaultCorefile reports whether a Corefile is unchanged: it is the default of some
// kubeadm, or Airlift's of the version that the cluster had.
func (u *Upgrade) defaultCorefile(text string) bool {
	if corefile.IsDefault(text) {
		return true
	}
	for _, version := range []string{u.stored.Cluster.KubernetesVersion, u.self.KubeletVersion, u.bundle.KubernetesVersion()} {
		for _, nameservers := range [][]string{nil, {"192.0.2.1"}} {
			c := *u.config
			c.Cluster.KubernetesVersion, c.Facts.Nameservers = version, nameservers
			if render.Corefile(&c) == text {
				return true
			}
		}
	}
	return false
}

func tagOf(images []string) string {
	if len(images) == 0 {
		return ""
	}
	_, tag, _ := cutLast(images[len(images)-1], ":")
	return tag
}

func (u *Upgrade) kubeProxy(ctx context.Context) error {
	return u.daemonSet(ctx, "kube-proxy", "kube-system", "kube-proxy", !u.config.Proxy.Disabled, render.KubeProxy)
}

// flannel upgrades the pod network. Its configuration stays: a user may have changed it.
func (u *Upgrade) flannel(ctx context.Context) error {
	return u.daemonSet(ctx, "flannel", "kube-flannel", "kube-flannel-ds", u.config.CNI == "flannel", func(c *config.Config) ([]runtime.Object, error) {
		objects, err := render.Flannel(c)
		return withoutConfigMaps(objects), err
	})
}

func (u *Upgrade) daemonSet(ctx context.Context, name, namespace, object string, configured bool, build func(*config.Config) ([]runtime.Object, error)) error {
	if u.pods == nil || !configured {
		return nil
	}
	now, err := u.client.DaemonSet(ctx, namespace, object)
	if err != nil {
		return err
	}
	if ready, err := u.addonReady(ctx, name, now); err != nil || !ready {
		return err
	}
	objects, err := build(u.config)
	if err != nil {
		return err
	}
	objects, used, err := u.plan.patches.AddOn(objects)
	u.reportPatched(name, used)
	if err := u.store(ctx, objects, err); err != nil {
		return fmt.Errorf("upgrading %s: %w", name, err)
	}
	return nil
}

package adoption

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster/wait"
)

// configMaps are the ConfigMaps that marks and checks need. Without the first two, nothing can be decided.
var configMaps = []string{kubeadmConfig, kubeletConfig, proxyConfig, corednsConfig, "kube-system/kurl-config", "kurl/kurl-current-config"}

// cluster reads what marks and checks need of the API. Each input that is missing is in Unread, except for those that
// the kubelet of a worker may not read.
func (r reader) cluster(ctx context.Context, api kubernetes.Interface) {
	if api == nil {
		r.cannotRead("the API", errors.New("there is no client"))
		return
	}
	v, all := newView(*r.in), metav1.ListOptions{}
	c := &Cluster{ConfigMaps: map[string]*corev1.ConfigMap{}, Deployments: map[string]*appsv1.Deployment{}}
	r.in.Cluster = c
	for i, name := range configMaps {
		namespace, base, _ := strings.Cut(name, "/")
		if m := object(ctx, r, "ConfigMap "+name, i < 2 || v.plane, func() (*corev1.ConfigMap, error) {
			return api.CoreV1().ConfigMaps(namespace).Get(ctx, base, metav1.GetOptions{})
		}); m != nil {
			c.ConfigMaps[name] = m
		}
	}
	if v.name != "" {
		c.Node = object(ctx, r, "Node "+v.name, true, func() (*corev1.Node, error) { return api.CoreV1().Nodes().Get(ctx, v.name, metav1.GetOptions{}) })
	}
	if l := object(ctx, r, "nodes", v.plane, func() (*corev1.NodeList, error) { return api.CoreV1().Nodes().List(ctx, all) }); l != nil {
		c.Nodes = slices.Sorted(maps.Keys(objectsByName(l.Items)))
	}
	if l := object(ctx, r, "services", v.plane, func() (*corev1.ServiceList, error) {
		return api.CoreV1().Services(metav1.NamespaceSystem).List(ctx, all)
	}); l != nil {
		c.Services = objectsByName(l.Items)
	}
	for _, namespace := range []string{metav1.NamespaceSystem, "kurl"} {
		if l := object(ctx, r, "deployments", v.plane, func() (*appsv1.DeploymentList, error) { return api.AppsV1().Deployments(namespace).List(ctx, all) }); l != nil {
			maps.Copy(c.Deployments, objectsByName(l.Items))
		}
	}
	if l := object(ctx, r, "daemonsets", v.plane, func() (*appsv1.DaemonSetList, error) { return api.AppsV1().DaemonSets("").List(ctx, all) }); l != nil {
		c.DaemonSets = objectsByName(l.Items)
	}
	if l := object(ctx, r, "the groups of the API", true, api.Discovery().ServerGroups); l != nil {
		for _, g := range l.Groups {
			c.APIGroups = append(c.APIGroups, g.Name)
		}
	}
	slices.Sort(c.APIGroups)
	slices.Sort(c.Forbidden)
	c.Forbidden = slices.Compact(c.Forbidden)
}

// objectsByName returns objects by NAMESPACE/NAME, or NAME.
func objectsByName[T any, P interface {
	*T
	metav1.Object
}](list []T) map[string]P {
	all := map[string]P{}
	for i := range list {
		o := P(&list[i])
		all[strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")] = o
	}
	return all
}

// object calls get, again after temporary errors, and returns nil for an object that does not exist, or that cannot be read.
// needed is set if it must be readable.
func object[T any](ctx context.Context, r reader, what string, needed bool, get func() (*T, error)) (found *T) {
	err := wait.Retry(ctx, func() (err error) {
		found, err = get()
		return err
	})
	switch {
	case err == nil:
		return found
	case apierrors.IsNotFound(err):
	case apierrors.IsForbidden(err) && !needed:
		r.in.Cluster.Forbidden = append(r.in.Cluster.Forbidden, what)
	default:
		r.cannotRead(what, err)
	}
	return nil
}

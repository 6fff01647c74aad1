package adoption

import (
	"context"
	"errors"
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
	v := newView(*r.in)
	c := &Cluster{
		ConfigMaps: map[string]*corev1.ConfigMap{}, Services: map[string]*corev1.Service{},
		Deployments: map[string]*appsv1.Deployment{}, DaemonSets: map[string]*appsv1.DaemonSet{},
	}
	r.in.Cluster = c
	read := func(what string, needed bool, get func() error) { r.object(ctx, what, needed || v.plane, get) }
	for i, name := range configMaps {
		namespace, base, _ := strings.Cut(name, "/")
		read("ConfigMap "+name, i < 2, func() (err error) {
			found, err := api.CoreV1().ConfigMaps(namespace).Get(ctx, base, metav1.GetOptions{})
			if err == nil {
				c.ConfigMaps[name] = found
			}
			return err
		})
	}
	if name := v.name; name != "" {
		read("Node "+name, true, func() (err error) {
			found, err := api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				c.Node = found
			}
			return err
		})
	}
	read("nodes", false, func() error {
		list, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil {
			for _, n := range list.Items {
				c.Nodes = append(c.Nodes, n.Name)
			}
			slices.Sort(c.Nodes)
		}
		return err
	})
	read("services", false, func() error {
		list, err := api.CoreV1().Services(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err == nil {
			for _, s := range list.Items {
				c.Services[s.Namespace+"/"+s.Name] = &s
			}
		}
		return err
	})
	for _, namespace := range []string{metav1.NamespaceSystem, "kurl"} {
		read("deployments", false, func() error {
			list, err := api.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				for _, d := range list.Items {
					c.Deployments[d.Namespace+"/"+d.Name] = &d
				}
			}
			return err
		})
	}
	read("daemonsets", false, func() error {
		list, err := api.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err == nil {
			for _, d := range list.Items {
				c.DaemonSets[d.Namespace+"/"+d.Name] = &d
			}
		}
		return err
	})
	read("the groups of the API", true, func() error {
		groups, err := api.Discovery().ServerGroups()
		if err == nil {
			for _, g := range groups.Groups {
				c.APIGroups = append(c.APIGroups, g.Name)
			}
			slices.Sort(c.APIGroups)
		}
		return err
	})
	slices.Sort(c.Forbidden)
	c.Forbidden = slices.Compact(c.Forbidden)
}

// object calls get, again after temporary errors. An object that does not exist is no error. needed is set if it must be
// readable.
func (r reader) object(ctx context.Context, what string, needed bool, get func() error) {
	switch err := wait.Retry(ctx, get); {
	case err == nil, apierrors.IsNotFound(err):
	case apierrors.IsForbidden(err) && !needed:
		r.in.Cluster.Forbidden = append(r.in.Cluster.Forbidden, what)
	default:
		r.cannotRead(what, err)
	}
}

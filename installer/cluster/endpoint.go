package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
)

// EndpointAddresses returns the IP addresses of a control-plane endpoint, also if it is a name; nil for "".
func EndpointAddresses(ctx context.Context, endpoint string) (list []netip.Addr, err error) {
	if endpoint == "" {
		return nil, nil
	}
	name, _, err := config.SplitEndpoint(endpoint, 0)
	if err != nil {
		return nil, err
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, fmt.Errorf("finding the addresses of the endpoint %s: %w", endpoint, err)
	}
	for _, a := range found {
		list = append(list, a.Unmap())
	}
	return list, nil
}

// clusterInfo is the ConfigMap in kube-public from which a joining node learns the API server's URL and the CA.
const clusterInfo = "cluster-info"

// ClusterInfoServer returns the API server's URL in cluster-info; "" if the cluster has none.
func (c *Client) ClusterInfoServer(ctx context.Context) (string, error) {
	m, err := ConfigMap(ctx, c.API, metav1.NamespacePublic, clusterInfo)
	if err != nil || m == nil {
		return "", err
	}
	kubeconfig, err := clientcmd.Load([]byte(m.Data["kubeconfig"]))
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespacePublic, clusterInfo, err)
	}
	for _, one := range kubeconfig.Clusters {
		return one.Server, nil
	}
	return "", nil
}

// PublishServer sets the API server's URL in cluster-info, if the cluster has one, and leaves all else. The controller
// manager signs it again.
func (c *Client) PublishServer(ctx context.Context, server string) (changed bool, err error) {
	return c.editConfigMap(ctx, metav1.NamespacePublic, clusterInfo, func(m *corev1.ConfigMap) error {
		kubeconfig, err := clientcmd.Load([]byte(m.Data["kubeconfig"]))
		if err != nil {
			return err
		}
		for _, one := range kubeconfig.Clusters {
			m.Data["kubeconfig"] = strings.ReplaceAll(m.Data["kubeconfig"], "server: "+one.Server, "server: "+server)
		}
		return nil
	})
}

// PointProxies lets kube-proxy reach the API at another URL than these. It returns the present one if it is none of them:
// the user chose it, and it stays. "" means that the cluster has no kube-proxy.
func (c *Client) PointProxies(ctx context.Context, from []string, to string) (server string, changed bool, err error) {
	changed, err = c.editConfigMap(ctx, metav1.NamespaceSystem, kubeProxyConfigMap, func(m *corev1.ConfigMap) error {
		if server, err = proxyServer(m); err != nil || !slices.Contains(from, server) {
			return err
		}
		server = to
		return PointProxy(m, to)
	})
	return server, changed, err
}

// PointProxy sets the API server's URL in the ConfigMap of kube-proxy. Unchanged defaults stay recognizable as such.
func PointProxy(m *corev1.ConfigMap, to string) error {
	server, err := proxyServer(m)
	if err != nil || server == to || server == "" {
		return err
	}
	defaults := UnchangedDefaults(m)
	m.Data["kubeconfig.conf"] = strings.ReplaceAll(m.Data["kubeconfig.conf"], server, to)
	if defaults {
		m.Annotations[componentHash] = dataHash(m)
	}
	return nil
}

// proxyServer returns the API server's URL in the ConfigMap of kube-proxy.
func proxyServer(m *corev1.ConfigMap) (server string, err error) {
	kubeconfig, err := clientcmd.Load([]byte(m.Data["kubeconfig.conf"]))
	if err != nil {
		return "", err
	}
	for _, one := range kubeconfig.Clusters {
		server = one.Server
	}
	return server, nil
}

// editConfigMap changes a ConfigMap, if it exists.
func (c *Client) editConfigMap(ctx context.Context, namespace, name string, edit func(*corev1.ConfigMap) error) (changed bool, err error) {
	try := func() error {
		have, err := c.API.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := have.DeepCopy()
		if err := edit(want); err != nil {
			return err
		}
		if sameData(have.Data, want.Data) {
			return nil
		}
		_, err = c.API.CoreV1().ConfigMaps(namespace).Update(ctx, want, metav1.UpdateOptions{})
		changed = err == nil
		return err
	}
	err = wait.Retry(ctx, func() error { return retry.RetryOnConflict(retry.DefaultBackoff, try) })
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return changed, fmt.Errorf("changing ConfigMap %s/%s: %w", namespace, name, err)
	}
	return changed, nil
}

func sameData(a, b map[string]string) bool {
	return len(changed(a, b)) == 0
}

// The environment variables with which flannel's pods reach the API. Kubernetes sets them for the Service kubernetes.
const flannelHost, flannelPort = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"

// flannelServer returns the URL at which flannel's pods reach the API; "" if there is no flannel, or if it must not be read.
func (c *Client) flannelServer(ctx context.Context) (string, error) {
	d, err := wait.Get(ctx, c.API.AppsV1().DaemonSets(flannelNamespace).Get, flannelDaemonSet)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading DaemonSet %s/%s: %w", flannelNamespace, flannelDaemonSet, err)
	}
	return flannelServerOf(d), nil
}

// flannelServerOf returns the URL of the API server in flannel's DaemonSet, "" if it has none.
func flannelServerOf(d *appsv1.DaemonSet) string {
	for _, container := range d.Spec.Template.Spec.Containers {
		env := map[string]string{}
		for _, v := range container.Env {
			env[v.Name] = v.Value
		}
		if env[flannelHost] != "" {
			return "https://" + net.JoinHostPort(env[flannelHost], env[flannelPort])
		}
	}
	return ""
}

// PointFlannel is PointProxies for the pods of Airlift's flannel.
func (c *Client) PointFlannel(ctx context.Context, from []string, to string) (server string, changed bool, err error) {
	u, err := url.Parse(to)
	if err != nil {
		return "", false, err
	}
	sets := c.API.AppsV1().DaemonSets(flannelNamespace)
	try := func() error {
		d, err := sets.Get(ctx, flannelDaemonSet, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if server = flannelServerOf(d); !slices.Contains(from, server) {
			return nil
		}
		server = to
		if !setEnv(d, map[string]string{flannelHost: u.Hostname(), flannelPort: u.Port()}) {
			return nil
		}
		_, err = sets.Update(ctx, d, metav1.UpdateOptions{})
		changed = err == nil
		return err
	}
	err = wait.Retry(ctx, func() error { return retry.RetryOnConflict(retry.DefaultBackoff, try) })
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return server, changed, fmt.Errorf("changing DaemonSet %s/%s: %w", flannelNamespace, flannelDaemonSet, err)
	}
	return server, changed, nil
}

// setEnv sets variables that containers of a DaemonSet have.
func setEnv(d *appsv1.DaemonSet, values map[string]string) (changed bool) {
	for i := range d.Spec.Template.Spec.Containers {
		env := d.Spec.Template.Spec.Containers[i].Env
		for j := range env {
			if value, ok := values[env[j].Name]; ok && env[j].Value != value {
				env[j].Value, changed = value, true
			}
		}
	}
	return changed
}

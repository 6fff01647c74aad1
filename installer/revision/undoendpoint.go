package revision

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/render"
)

// keptEndpoint is the endpoint of the cluster when undo restores older objects. A change of the endpoint after the
// upgrade stays: nodes and certificates follow it already.
type keptEndpoint struct {
	stored       *cluster.Stored
	reconfigured bool // the objects are from before a reconfiguration, which may have changed other names in certificates
}

// readEndpoint returns nil if the endpoint was never changed. reconfigured is set if a reconfiguration is undone.
func readEndpoint(ctx context.Context, client *cluster.Client, reconfigured bool) (*keptEndpoint, error) {
	stored, err := client.FetchStored(ctx)
	if err != nil || stored.Cluster.Endpoint.Change == nil {
		return nil, err
	}
	return &keptEndpoint{stored, reconfigured}, nil
}

// in returns an object from before the upgrade with the endpoint. One write restores it: if undo is interrupted, what it reads
// in its next run is still the endpoint.
func (k *keptEndpoint) in(data json.RawMessage) (json.RawMessage, error) {
	if k == nil {
		return data, nil
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	var err error
	switch o.GetKind() + " " + o.GetName() {
	case "ConfigMap kubeadm-config":
		err = k.inClusterConfiguration(o)
	case "ConfigMap kube-proxy":
		err = k.inProxy(o)
	case "DaemonSet kube-flannel-ds":
		err = k.inFlannel(o)
	}
	if err != nil {
		return nil, err
	}
	return o.MarshalJSON()
}

func (k *keptEndpoint) inClusterConfiguration(o *unstructured.Unstructured) error {
	text, _, _ := unstructured.NestedString(o.Object, "data", "ClusterConfiguration")
	former, _, err := config.DecodeClusterConfiguration([]byte(text))
	if err != nil {
		return err
	}
	now := k.stored.Cluster
	names := now.APIServer.CertSANs
	if k.reconfigured {
		names = k.names(former.APIServer.CertSANs)
	}
	if former.ControlPlaneEndpoint == now.ControlPlaneEndpoint && slices.Equal(former.APIServer.CertSANs, names) {
		return nil
	}
	former.ControlPlaneEndpoint, former.APIServer.CertSANs = now.ControlPlaneEndpoint, names
	encoded, err := render.ClusterConfiguration(&config.Config{Cluster: former})
	if err != nil {
		return err
	}
	return unstructured.SetNestedField(o.Object, string(encoded), "data", "ClusterConfiguration")
}

// names returns the names in the API server's certificate from before a reconfiguration, as the change of the endpoint would have
// changed them.
func (k *keptEndpoint) names(former []string) []string {
	now := config.Config{Cluster: k.stored.Cluster}
	before := now
	before.Endpoint = config.Endpoint{VIPs: now.Endpoint.Change.Before.VIPs, Balancer: now.Endpoint.Change.Before.Balancer}
	has := func(name string) bool { return slices.Contains(now.APIServer.CertSANs, name) }
	list := slices.DeleteFunc(slices.Clone(former), func(name string) bool {
		return slices.Contains(before.EndpointNames(), name) && !has(name)
	})
	for _, name := range now.EndpointNames() {
		if has(name) && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func (k *keptEndpoint) inProxy(o *unstructured.Unstructured) error {
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil || k.stored.ProxyServer == "" {
		return err
	}
	m := &corev1.ConfigMap{Data: data}
	m.Annotations = o.GetAnnotations()
	if err := cluster.PointProxy(m, k.stored.ProxyServer); err != nil {
		return err
	}
	if m.Annotations != nil {
		o.SetAnnotations(m.Annotations)
	}
	return unstructured.SetNestedStringMap(o.Object, m.Data, "data")
}

func (k *keptEndpoint) inFlannel(o *unstructured.Unstructured) error {
	server, err := url.Parse(k.stored.FlannelServer)
	if err != nil || server.Host == "" {
		return err
	}
	values := map[string]string{"KUBERNETES_SERVICE_HOST": server.Hostname(), "KUBERNETES_SERVICE_PORT": server.Port()}
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return err
	}
	for _, c := range containers {
		container, _ := c.(map[string]any)
		env, _ := container["env"].([]any)
		for _, v := range env {
			variable, _ := v.(map[string]any)
			name, _ := variable["name"].(string)
			if value, ok := values[name]; ok {
				variable["value"] = value
			}
		}
	}
	return unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
}

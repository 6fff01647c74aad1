package doctor

import (
	"context"

	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/node"
	"airlift/installer/redact"
	"airlift/installer/status"
)

// listed are the objects that are gathered. There are no Secrets among them.
var listed = []cluster.Listing{
	{Version: "v1", Resource: "nodes"},
	{Version: "v1", Resource: "events"},
	{Version: "v1", Resource: "pods", Namespace: "kube-system"},
	{Version: "v1", Resource: "pods", Namespace: "kube-flannel"},
	{Group: "apps", Version: "v1", Resource: "deployments", Namespace: "kube-system"},
	{Group: "apps", Version: "v1", Resource: "daemonsets", Namespace: "kube-system"},
	{Group: "apps", Version: "v1", Resource: "daemonsets", Namespace: "kube-flannel"},
	{Version: "v1", Resource: "services", Namespace: "kube-system"},
	{Version: "v1", Resource: "configmaps", Namespace: "kube-system"},
	{Version: "v1", Resource: "configmaps", Namespace: "kube-flannel"},
	{Version: "v1", Resource: "configmaps", Namespace: "kube-public"},
	{Version: "v1", Resource: "pods", Namespace: "load-balancer"},
	{Version: "v1", Resource: "configmaps", Namespace: "load-balancer"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Namespace: "kube-system"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Namespace: "default"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"},
	{Version: "v1", Resource: "persistentvolumes"},
	{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

// apiObjects reads objects from the API server. If the API server does not answer, there are no
// objects; the status reports that it does not answer.
func (d *Doctor) apiObjects(s *status.Status, e examined) (list []source) {
	client := e.clock.client
	if client == nil {
		return nil
	}
	all := listed
	if s.Node.Role == node.Worker && d.Reader.Kubeconfig == "" { // what a kubelet may read
		all = []cluster.Listing{
			{Version: "v1", Resource: "nodes", Fields: "metadata.name=" + s.Node.Name},
			{Version: "v1", Resource: "pods", Fields: "spec.nodeName=" + s.Node.Name},
		}
	}
	for _, l := range all {
		name := "api/" + l.Resource + ".yaml"
		if l.Namespace != "" {
			name = "api/" + l.Namespace + "/" + l.Resource + ".yaml"
		}
		list = append(list, source{name, redact.Documents, func(ctx context.Context) ([]byte, error) {
			objects, err := client.List(ctx, l)
			if err != nil {
				return nil, err
			}
			return yaml.Marshal(objects)
		}})
	}
	return list
}

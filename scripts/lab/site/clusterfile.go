package site

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// HostEntry is a host in cluster.yaml. more are further fields, each after a comma.
func HostEntry(name string, controlPlane bool, address netip.Addr, more string) string {
	role := "worker"
	if controlPlane {
		role = "control-plane"
	}
	return fmt.Sprintf("- {name: %s, role: %s, address: %s%s}\n", name, role, address, more)
}

// ClusterFile is cluster.yaml of a cluster with this name. fields are further fields of the cluster, and hosts has its entries.
func ClusterFile(name, fields, hosts string) string {
	return "apiVersion: airlift/v1\nkind: Cluster\nname: " + name + "\n" + fields + "hosts:\n" + hosts
}

// Documents are a ClusterConfiguration and a KubeletConfiguration with these fields, to be added to cluster.yaml; "": none.
func Documents(cluster, kubelet string) string {
	var text string
	if cluster != "" {
		text += "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n" + cluster
	}
	if kubelet != "" {
		text += "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + kubelet
	}
	return text
}

// LearnHostKeys writes the keys of hosts to known_hosts on one of them.
func LearnHostKeys(ctx context.Context, on Host, addresses ...netip.Addr) error {
	var list []string
	for _, a := range addresses {
		list = append(list, a.String())
	}
	_, err := on.Output(ctx, "sh", "-c", "ssh-keyscan "+strings.Join(list, " ")+" >/root/.ssh/known_hosts 2>/dev/null")
	return err
}

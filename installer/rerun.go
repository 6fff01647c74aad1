package installer

import (
	"context"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/config"
)

// probeTimeout bounds the question to a control plane that may not be there.
const probeTimeout = 5 * time.Second

// checkRunning refuses to turn a control plane that runs on this host into
// another one: a different version would be an upgrade without its checks, and
// different ranges would break what runs. One that does not answer was left
// half-made, and init goes on with it.
func (n *Node) checkRunning(ctx context.Context) error {
	if !n.rerun {
		return nil
	}
	if n.joined() {
		return fault.New(fault.Preflight, "run the join command again to finish or to repeat that; ./install reset makes it a bare host again",
			"this host has joined a cluster as one more control plane, wholly or in part: init would start another cluster with the same CA")
	}
	client, err := n.loadClient(adminConf, n.Config.LocalURL())
	if err != nil {
		return nil // certs and kubeconfig will say what is wrong with it
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if !client.Answers(ctx) {
		return nil // and FetchConfig would wait until it does
	}
	running, err := client.FetchConfig(ctx)
	if err != nil {
		return nil
	}
	if diff := differences(running.Cluster, n.Config.Cluster); len(diff) > 0 {
		return fault.New(fault.Preflight, "give the flags it was made with; or, to make a new cluster here and lose this one: ./install reset",
			"this host already runs a control plane with other settings:\n  - %s", strings.Join(diff, "\n  - "))
	}
	return nil
}

// joined says whether join has made this host a control plane, or began to: its
// etcd started in a cluster that was there, or, with everything else in place,
// has yet to join it. init writes etcd's static pod before the others.
func (n *Node) joined() bool {
	flags, _, err := n.staticPod("etcd")
	if err != nil {
		return false
	}
	if flags != nil {
		return flags["initial-cluster-state"] == "existing"
	}
	e, err := n.findEtcd()
	return err == nil && e != nil
}

// differences says in which lasting settings a cluster is not the wanted one.
func differences(is, want config.Cluster) (list []string) {
	for _, setting := range []struct{ name, is, want string }{
		{"Kubernetes version", is.KubernetesVersion, want.KubernetesVersion},
		{"--control-plane-endpoint", is.ControlPlaneEndpoint, want.ControlPlaneEndpoint},
		{"--pod-network-cidr", is.Networking.PodSubnet, want.Networking.PodSubnet},
		{"--service-cidr", is.Networking.ServiceSubnet, want.Networking.ServiceSubnet},
		{"--service-dns-domain", is.Networking.DNSDomain, want.Networking.DNSDomain},
	} {
		if setting.is != setting.want {
			list = append(list, setting.name+" is "+orNothing(setting.is)+", asked for is "+orNothing(setting.want))
		}
	}
	return list
}

func orNothing(s string) string {
	if s == "" {
		return "not set"
	}
	return s
}

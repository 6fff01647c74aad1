package installer

import (
	"context"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
)

// probeTimeout bounds the question to a control plane that may not be there.
const probeTimeout = 5 * time.Second

// checkRunning refuses to turn a control plane that runs on this host into
// another one: a different version would be an upgrade without its checks, and
// different ranges would break what runs. One that does not answer was left
// half-made, and init goes on with it.
func (i *Init) checkRunning(ctx context.Context) error {
	if !i.rerun {
		return nil
	}
	if joined(i.existing) {
		return fault.New(fault.Preflight, "run the join command again to finish or to repeat that; ./install reset makes it a bare host again",
			"this host has joined a cluster as one more control plane, wholly or in part: init would start another cluster with the same CA")
	}
	client, err := loadClient(i.existing, adminConf, i.config.LocalURL(), i.config.Timeouts.KubernetesAPICall)
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
	if diff := differences(running.Cluster, i.config.Cluster); len(diff) > 0 {
		return fault.New(fault.Preflight, "give the flags it was made with; or, to make a new cluster here and lose this one: ./install reset",
			"this host already runs a control plane with other settings:\n  - %s", strings.Join(diff, "\n  - "))
	}
	return nil
}

// joined reports whether join has made this host a control plane, or began to: its
// etcd was started in an existing cluster, or, with everything else in place, has
// yet to join one. init writes etcd's static pod before the others.
func joined(h *host.Host) bool {
	flags, _, err := readStaticPod(h, "etcd")
	if err != nil {
		return false
	}
	if flags != nil {
		return flags["initial-cluster-state"] == "existing"
	}
	e, err := findEtcd(h)
	return err == nil && e != nil
}

// differences says in which lasting settings a cluster is not the wanted one.
func differences(is, want config.Cluster) (list []string) {
	for _, setting := range []struct{ name, is, want string }{
		{"Kubernetes version", is.KubernetesVersion, want.KubernetesVersion},
		{"--control-plane-endpoint", is.ControlPlaneEndpoint, want.ControlPlaneEndpoint},
		{"--pod-network-cidr", is.Networking.PodSubnet.String(), want.Networking.PodSubnet.String()},
		{"--service-cidr", is.Networking.ServiceSubnet.String(), want.Networking.ServiceSubnet.String()},
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

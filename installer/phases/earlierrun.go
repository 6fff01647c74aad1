package phases

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// CheckRunning refuses to change the cluster configuration of a control plane
// that runs on this host. A different version would be an upgrade without its
// checks, and different address ranges would break running pods. If the control
// plane does not answer, an earlier init was incomplete, and this one continues
// it. Unless the configuration is fromFile, it also refuses to remove settings that only a file can have.
func (n *Node) CheckRunning(ctx context.Context, fromFile bool) error {
	if !n.Observed.IsNode {
		return nil
	}
	if Joined(n.Existing) {
		return fault.New(fault.Preflight, "this host joined a cluster as an additional control plane, or started to: init would create another cluster with the same CA").
			Hint("to finish or repeat the join, run the join command again; to remove everything Airlift installed: ./install reset")
	}
	if err := n.checkEtcdData(); err != nil {
		return err
	}
	client, err := node.LoadClient(n.Existing, node.AdminConf, n.Config.LocalURL(), n.Config.Timeouts.KubernetesAPICall)
	if err != nil {
		return nil // the steps certs and kubeconfig report what is wrong with it
	}
	ctx, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
	defer cancel()
	if !client.Answers(ctx) {
		return nil // FetchConfig would wait until it answers
	}
	running, err := client.FetchStored(ctx)
	if err != nil {
		return nil
	}
	if diff := differences(running.Cluster, n.Config.Cluster); len(diff) > 0 {
		return otherConfiguration(diff)
	}
	if lost := missingSettings(running.Cluster, n.Config); len(lost) > 0 && !fromFile {
		return fault.New(fault.Preflight, "the control plane on this host has configuration that a run without --config would remove:\n  - %s", strings.Join(lost, "\n  - ")).
			Hint("use the --config file, or the --profile, that created it, or to remove these fields, a file without them. To print the cluster's configuration: kubectl -n kube-system get configmap kubeadm-config -o yaml")
	}
	learned := *n.Config
	if registry := running.Cluster.Registry; registry.Generation > 0 { // with the other files that it keeps
		registry.Used = registry.Used || learned.Registry.Used
		learned.Registry = registry
	}
	if learned.Endpoint.Change = running.Cluster.Endpoint.Change; learned.Endpoint.Change != nil { // not all nodes may follow it yet
		learned.ProxyServer, learned.FlannelServer = cmp.Or(learned.ProxyServer, running.ProxyServer), running.FlannelServer
	}
	n.Config = &learned
	return nil
}

func otherConfiguration(diff []string) error {
	return fault.New(fault.Preflight, "this host already runs a control plane with another configuration:\n  - %s", strings.Join(diff, "\n  - ")).
		Hint("use the same flags and the same --config as for its creation, with the endpoint that it has now; for another endpoint of the running cluster, see: ./install endpoint apply --help; or, to delete this cluster and create a new one: ./install reset")
}

// checkEtcdData refuses to replace an etcd that has data by another one, which
// would be empty. It looks at this host, because the API server may not answer.
func (n *Node) checkEtcdData() error {
	e, err := node.FindEtcd(n.Existing)
	if err != nil || e == nil || !node.FileExists(n.Existing, path.Join(e.DataDir, "member")) {
		return nil // a static pod that cannot be read is written again
	}
	is := config.Cluster{Etcd: config.Etcd{Local: config.LocalEtcd{DataDir: e.DataDir}}}
	if is, want := etcdOf(is), etcdOf(n.Config.Cluster); is != want {
		return otherConfiguration([]string{difference("etcd", is, want)})
	}
	return nil
}

// etcdOf describes where a cluster's data is.
func etcdOf(c config.Cluster) string {
	if c.Etcd.External != nil {
		return "external"
	}
	return "local, with its data in " + path.Clean(cmp.Or(c.Etcd.Local.DataDir, config.EtcdDataDir))
}

// Joined reports whether join made this host a control plane, or started to.
// Then etcd's static pod joins an existing cluster, or the other static pods
// exist and etcd's does not yet. init writes etcd's static pod before the
// others.
func Joined(h *host.Host) bool {
	flags, _, err := node.ReadStaticPod(h, "etcd")
	if err != nil {
		return false
	}
	if flags != nil {
		return flags["initial-cluster-state"] == "existing"
	}
	e, err := node.FindEtcd(h)
	return err == nil && e != nil
}

// differences lists the fields that cannot change later and differ between two cluster
// configurations.
func differences(is, want config.Cluster) (list []string) {
	for _, setting := range []struct{ name, is, want string }{
		{"Kubernetes version", is.KubernetesVersion, want.KubernetesVersion},
		{"--control-plane-endpoint", is.ControlPlaneEndpoint, want.ControlPlaneEndpoint},
		{"--control-plane-vip", strings.Join(is.Endpoint.VIPs, ","), strings.Join(want.Endpoint.VIPs, ",")},
		{"--control-plane-balancer", strconv.FormatBool(is.Endpoint.Balancer), strconv.FormatBool(want.Endpoint.Balancer)},
		{"--pod-network-cidr", is.Networking.PodSubnet.String(), want.Networking.PodSubnet.String()},
		{"--service-cidr", is.Networking.ServiceSubnet.String(), want.Networking.ServiceSubnet.String()},
		{"--service-dns-domain", is.Networking.DNSDomain, want.Networking.DNSDomain},
		{"--cert-dir", path.Clean(cmp.Or(is.CertificatesDir, config.CertificatesDir)), path.Clean(cmp.Or(want.CertificatesDir, config.CertificatesDir))},
		{"etcd", etcdOf(is), etcdOf(want)},
	} {
		if setting.is != setting.want {
			list = append(list, difference(setting.name, setting.is, setting.want))
		}
	}
	return list
}

// missingSettings lists the settings of static pods that only a file can have, and that a cluster
// has and a new configuration has not. Without encryption-provider-config, for example, the API
// server cannot read what it has encrypted.
func missingSettings(is config.Cluster, c *config.Config) (list []string) {
	want := render.StoredCluster(c) // with the defaults that kubeadm stores
	for _, pod := range []struct {
		name     string
		is, want config.Component
	}{
		{"apiServer", is.APIServer.Component, want.APIServer.Component},
		{"controllerManager", is.ControllerManager, want.ControllerManager},
		{"scheduler", is.Scheduler, want.Scheduler},
		{"etcd.local", etcdComponent(is), etcdComponent(want)},
	} {
		wanted := settingNames(pod.want)
		for _, name := range settingNames(pod.is) {
			if !slices.Contains(wanted, name) {
				list = append(list, pod.name+"."+name)
			}
		}
	}
	return list
}

func etcdComponent(c config.Cluster) config.Component {
	return config.Component{ExtraArgs: c.Etcd.Local.ExtraArgs, ExtraEnvs: c.Etcd.Local.ExtraEnvs}
}

// settingNames returns what missingSettings calls the settings of a static pod.
func settingNames(c config.Component) (names []string) {
	for _, a := range c.ExtraArgs {
		names = append(names, "extraArgs: "+a.Name)
	}
	for _, v := range c.ExtraVolumes {
		names = append(names, "extraVolumes: "+v.Name)
	}
	for _, e := range c.ExtraEnvs {
		names = append(names, "extraEnvs: "+e.Name)
	}
	return names
}

func difference(name, is, want string) string {
	return name + " is " + cmp.Or(is, "not set") + ", and the requested value is " + cmp.Or(want, "not set")
}

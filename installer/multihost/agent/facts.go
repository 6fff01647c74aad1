package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/cluster"
	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/multihost/facts"
	"airlift/installer/node"
	"airlift/installer/profile"
	"airlift/installer/registry"
	"airlift/installer/registry/hosts"
	"airlift/installer/revision"
	"airlift/installer/snapshot"
	"airlift/installer/upgradecheck"
)

// factsTimeout limits the time of all that another process or host may let hang. requestTimeout leaves time to report that the API
// server did. Without the state of its node, no plan can be made: a slow host has nodeTimeout for that.
const (
	factsTimeout   = 4500 * time.Millisecond
	nodeTimeout    = 30 * time.Second
	requestTimeout = 3 * time.Second
	resolveTimeout = time.Second
)

// ReadFacts returns the facts of this host. damaged is why its ledger cannot be read, if it cannot.
func ReadFacts(ctx context.Context, h *host.Host, damaged error) *facts.Facts {
	f := &facts.Facts{Time: time.Now().UTC(), Unknown: map[string]string{}}
	readMachine(f, h)
	readRuns(f, h, damaged)
	readSeed(f, h)
	seen := node.Observe(h)
	f.OS, f.Arch = node.OSName(h), runtime.GOARCH
	if was := h.Records().Was(); was != nil {
		f.Was = nodeOf(*was)
	}
	if seen.Role == node.NoNode {
		f.Leftovers = Leftovers(h)
		return f
	}
	add := start(ctx, "node", nodeTimeout, func(ctx context.Context, found *facts.Facts) { readNode(ctx, found, h, seen, damaged) })
	if seen.Role == node.ControlPlane {
		addMembers := start(ctx, "cluster.etcdMembers", factsTimeout, func(ctx context.Context, found *facts.Facts) { readEtcd(ctx, found, h, seen) })
		start(ctx, "cluster", factsTimeout, func(ctx context.Context, found *facts.Facts) { unknown(found, "cluster", readCluster(ctx, found, h)) })(f)
		addMembers(f)
	}
	add(f)
	return f
}

// start reads a part of the facts in parallel. The returned function adds it, or why it is not known if the time ends first.
func start(ctx context.Context, name string, limit time.Duration, read func(context.Context, *facts.Facts)) (add func(*facts.Facts)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	found := make(chan *facts.Facts, 1)
	go func() {
		part := &facts.Facts{Unknown: map[string]string{}}
		read(ctx, part)
		found <- part
	}()
	return func(f *facts.Facts) {
		defer cancel()
		select {
		case part := <-found:
			maps.Copy(f.Unknown, part.Unknown)
			addPart(f, part)
		case <-ctx.Done():
			unknown(f, name, fmt.Errorf("no answer within %s", limit))
		}
	}
}

// addPart adds what a part found. The members of etcd belong to a cluster, which is unknown while the API server is down.
func addPart(f, part *facts.Facts) {
	switch {
	case part.Node != nil:
		f.Node = part.Node
	case part.Cluster != nil && part.Cluster.Nodes != nil:
		f.Cluster = part.Cluster
	case part.Cluster != nil && f.Cluster != nil:
		f.Cluster.EtcdMembers = part.Cluster.EtcdMembers
	}
}

// unknown records why something is not known, in one line.
func unknown(f *facts.Facts, name string, err error) {
	if err != nil {
		f.Unknown[name] = strings.Join(strings.Fields(err.Error()), " ")
	}
}

// readNode reads the files of a node, and the state of its kubelet.
func readNode(ctx context.Context, f *facts.Facts, h *host.Host, seen node.Observation, damaged error) {
	id, err := seen.Identity()
	unknown(f, "node.caSHA256", err)
	n := nodeOf(id)
	n.Airlift, n.Adopted = h.Records().Manages(), h.Records().Adopted() != nil
	n.Etcd = seen.Role == node.ControlPlane && seen.PKI().Etcd.External == nil
	f.Node = n
	unknown(f, "node.airlift", damaged)
	if n.Name == "" {
		unknown(f, "node.name", fmt.Errorf("%s has no name of a node, or cannot be read", node.KubeletConf))
	}
	kubeconfig, err := os.ReadFile(h.Path(node.KubeletConf))
	if err == nil {
		n.APIServer, err = cluster.ServerOf(kubeconfig)
	}
	unknown(f, "node.apiServer", err)
	if n.Version = node.BinaryVersion(ctx, h, "kubelet"); n.Version == "" {
		unknown(f, "node.version", errors.New("there is no kubelet, or 'kubelet --version' failed"))
	}
	unit, err := h.Systemd().Unit(ctx, "kubelet.service")
	n.KubeletRunning = unit.Running()
	unknown(f, "node.kubeletRunning", err)
	if file := node.KubeletConfigFile(h); file != config.KubeletConfigFile {
		n.KubeletConfig = file
	}
	upgrade, err := revision.Read(h, revision.Upgrade)
	n.Cordoned = upgrade != nil && upgrade.Cordoned
	unknown(f, "node.cordoned", err)
	if n.Timers, err = h.Timers(ctx); err == nil {
		err = snapshot.MarkTarget(h, n.Timers)
	}
	unknown(f, "node.timers", err)
	n.Registries, err = hosts.SiteRecord(h)
	unknown(f, "node.registries", err)
	n.OtherRuntime = !h.Records().OwnsRuntime()
	if seen.Role == node.ControlPlane {
		n.Encryption, err = readKeys(h)
		unknown(f, "node.encryption", err)
	}
	n.NoRegistry = !node.FileExists(h, hosts.Timer.UnitPath()) || seen.Role == node.ControlPlane && !node.FileExists(h, registry.SettingsPath)
}

// nodeOf returns the facts that identify a node.
func nodeOf(id ledger.Identity) *facts.Node {
	n := &facts.Node{Name: id.Node, Role: id.Role, ClusterName: id.Cluster}
	if len(id.CAs) > 0 {
		n.CASHA256 = id.CAs[0]
	}
	if len(id.CAs) > 1 {
		n.CASHA256s = id.CAs
	}
	return n
}

// readEtcd reads the members of the stacked etcd, also while the API server is down.
func readEtcd(ctx context.Context, f *facts.Facts, h *host.Host, seen node.Observation) {
	if seen.PKI().Etcd.External != nil {
		return
	}
	members, err := node.EtcdMembers(ctx, h, requestTimeout)
	unknown(f, "cluster.etcdMembers", err)
	if err != nil {
		return
	}
	f.Cluster = &facts.Cluster{}
	for _, m := range members {
		f.Cluster.EtcdMembers = append(f.Cluster.EtcdMembers, facts.EtcdMember{Name: m.Name, Healthy: m.Err == nil && !m.Learner, Learner: m.Learner})
	}
}

// readCluster reads the state of the cluster, with the rights of an administrator.
func readCluster(ctx context.Context, f *facts.Facts, h *host.Host) error {
	client, err := Connect(h)
	if err != nil {
		return err
	}
	client.SetTimeout(requestTimeout)
	if err := client.Reach(ctx); err != nil {
		return err
	}
	if err := readObjects(ctx, f, client); err != nil {
		return err
	}
	stale, err := staleSecrets(ctx, h, client)
	f.Cluster.StaleSecrets = stale
	unknown(f, "cluster.staleSecrets", err)
	return nil
}

func readObjects(ctx context.Context, f *facts.Facts, client *cluster.Client) error {
	fetched, err := client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	managed, err := client.NodeObjects().Managed(ctx, nodes)
	if err != nil {
		return err
	}
	f.Cluster = clusterOf(fetched.Cluster)
	f.Cluster.Stored = fetched.Versions
	f.Cluster.EndpointAddresses, err = endpointAddresses(ctx, fetched.Cluster.ControlPlaneEndpoint)
	unknown(f, "cluster.endpointAddresses", err)
	f.Cluster.Nodes = []facts.ClusterNode{}
	change := fetched.Cluster.Endpoint.Change
	f.Cluster.EndpointWaits = change != nil && change.Number > 0 && !change.InAddOns
	f.Cluster.EndpointUndone = change != nil && change.Undone
	f.Cluster.AddonsWait, err = addonsWait(ctx, client, fetched.Cluster)
	unknown(f, "cluster.addonsWait", err)
	f.Cluster.Gate, _, err = readGate(ctx, client)
	unknown(f, "cluster.gate", err)
	for _, n := range nodes {
		f.Cluster.Nodes = append(f.Cluster.Nodes, facts.ClusterNode{
			Name: n.Name, ControlPlane: n.Role == cluster.ControlPlaneRole, Ready: n.Ready, Version: n.Version, Unschedulable: n.Unschedulable,
			Labels: n.Labels, Taints: append([]string{}, n.Taints...), Addresses: n.Addresses, ManagedLabels: managed[n.Name].Labels, ManagedTaints: managed[n.Name].Taints,
			EndpointBehind:      change != nil && (n.Follows.Endpoint != change.Number || n.Follows.OnlyServes),
			EndpointServes:      change != nil && n.Follows.Endpoint == change.Number && n.Follows.OnlyServes,
			ConfigurationBehind: !fetched.Cluster.Reconfiguration.Follows(n.Follows.Reconfiguration, n.Role == cluster.ControlPlaneRole),
		})
	}
	f.Cluster.FormerEndpoint = fetched.Cluster.Endpoint.Former(slices.ContainsFunc(f.Cluster.Nodes, func(n facts.ClusterNode) bool { return n.EndpointBehind }))
	budgets, pods, err := inventory.Drains(ctx, client.API)
	unknown(f, "cluster.blockedBy", err)
	unknown(f, "cluster.barePods", err)
	addPods(f.Cluster, pods)
	for _, b := range budgets {
		for _, name := range b.Nodes {
			if f.Cluster.BlockedBy == nil {
				f.Cluster.BlockedBy = map[string][]string{}
			}
			f.Cluster.BlockedBy[name] = append(f.Cluster.BlockedBy[name], b.Name)
		}
	}
	return nil
}

// addPods adds the pods that a drain deletes, and groups of those that it moves.
func addPods(c *facts.Cluster, pods []inventory.Pod) {
	c.BarePods, c.Pods = map[string][]string{}, map[string][]facts.PodGroup{}
	all := map[string]int{} // pods of a workload
	for _, p := range pods {
		all[p.Workload]++
	}
	slices.SortFunc(pods, func(a, b inventory.Pod) int { return strings.Compare(a.Workload, b.Workload) })
	for _, p := range pods {
		if p.Bare {
			c.BarePods[p.Node] = append(c.BarePods[p.Node], p.Name)
			continue
		}
		groups := c.Pods[p.Node]
		if last := len(groups) - 1; last < 0 || groups[last].Workload != p.Workload {
			groups = append(groups, facts.PodGroup{Workload: p.Workload})
		}
		last := &groups[len(groups)-1]
		last.Pods++
		last.Only = p.Serves && last.Pods == all[p.Workload]
		c.Pods[p.Node] = groups
	}
}

// endpointAddresses returns the IP addresses of the endpoint. A name server that does not answer must not hide the rest of the cluster.
func endpointAddresses(ctx context.Context, endpoint string) (list []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := cluster.EndpointAddresses(ctx, endpoint)
	for _, a := range found {
		list = append(list, a.String())
	}
	return list, err
}

// addonsWait reports whether kube-proxy has an older version than the cluster. A site may add a suffix to the tag of its own image.
func addonsWait(ctx context.Context, client *cluster.Client, stored config.Cluster) (bool, error) {
	want, err := version.ParseSemantic(stored.KubernetesVersion)
	if err != nil || stored.Proxy.Disabled {
		return false, nil // a plan refuses such a version, with a hint
	}
	proxy, err := inventory.DaemonSet(ctx, client.API, "kube-system", "kube-proxy")
	if err != nil || proxy == nil {
		return false, err
	}
	for _, image := range proxy.Images {
		if has, err := version.ParseSemantic(upgradecheck.Tag(image)); err == nil && slices.Compare(has.Components(), want.Components()) < 0 {
			return true, nil
		}
	}
	return false, nil
}

// clusterOf returns what the stored configuration has.
func clusterOf(stored config.Cluster) *facts.Cluster {
	c := &facts.Cluster{
		Name: stored.ClusterName, Version: stored.KubernetesVersion, ControlPlaneEndpoint: stored.ControlPlaneEndpoint,
		VIP: stored.Endpoint.VIPs, Balancer: stored.Endpoint.Balancer, EmbeddedRegistry: stored.Registry.Used,
	}
	if profile.Used(&stored) {
		c.Profile = profile.Hardened
	}
	for _, b := range stored.Registry.Bundles {
		c.Bundles = append(c.Bundles, b.ID)
	}
	return c
}

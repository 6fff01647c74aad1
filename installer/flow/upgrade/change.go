package upgrade

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/cluster/facts"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/redact"
	"airlift/installer/render"
	"airlift/installer/staticpod"
	"airlift/installer/upgradecheck"
	"airlift/internal/fault"
)

// A change is the configuration that a reconfiguration gives to this node, and with it to the cluster.
type change struct {
	run     *Upgrade
	options ReconfigureOptions

	former  *config.Config // this node's with the stored configuration
	refused []reconfiguration.Refusal
	warned  []reconfiguration.Refusal // what is not refused
	carried *carried

	parts     []string // the components, kubelet and add-ons of this node that the run changes
	documents bool     // the cluster stores another ClusterConfiguration
	objects   bool     // the cluster stores something else, also only for an add-on
	planes    bool     // the other control planes must follow
	workers   bool     // the workers must follow
}

// Names of parts that are no static pods.
const kubeletPart, corednsPart, proxyPart, flannelPart = "kubelet", "coredns", "kube-proxy", "flannel"

// runtimePart is not among the parts of a change: it is written if the name of the pause image differs.
const runtimePart = "containerd"

// merge puts the documents of the user into the configuration of this node, which has the stored configuration. It keeps a
// completed copy of that.
func (c *change) merge(ctx context.Context, f *knowledge, own *config.Config, stored *cluster.Stored) error {
	if version := stored.Cluster.KubernetesVersion; version != own.KubernetesVersion {
		return fault.New(fault.Preflight, "this file has Kubernetes %s, and the cluster is %s: a reconfiguration keeps the version", own.KubernetesVersion, version).
			Hint("use the file of " + version + "; or upgrade first: ./install upgrade apply")
	}
	if f.node.IsControlPlane() {
		// kubeadm stores it nowhere.
		if pod, err := staticpod.Read(f.node.Existing.Path(node.APIServerManifest)); err == nil {
			own.Timeouts.ControlPlaneComponentHealthCheck = pod.Startup
		}
	}
	former := *own
	plan, err := f.complete(&former)
	if err != nil {
		return err
	}
	c.former = plan.Config
	if c.options.Given == nil {
		return nil
	}
	given := c.options.Given.Config
	n := reconfiguration.Node{Name: own.NodeRegistration.Name, CRISocket: own.NodeRegistration.CRISocket, Endpoint: own.LocalAPIEndpoint, CgroupDriver: own.Facts.CgroupDriver, StoredKubelet: stored.Kubelet}
	if n.AddOns, err = addOns(ctx, f.api.Client.API); err != nil {
		return err
	}
	proxy := own.KubeProxy
	own.Cluster, c.refused = reconfiguration.Merge(stored.Cluster, c.options.Given, n)
	c.refused, c.warned = withoutSecrets(c.refused), withoutSecrets(reconfiguration.WarnOf(&stored.Cluster, &own.Cluster))
	if own.KubeProxy == nil {
		own.KubeProxy = proxy
	}
	own.NodeRegistration.Taints, own.NodeRegistration.KubeletExtraArgs = given.NodeRegistration.Taints, given.NodeRegistration.KubeletExtraArgs
	if t := cmp.Or(given.Timeouts.ControlPlaneComponentHealthCheck, given.APIServer.TimeoutForControlPlane); t > 0 {
		own.Timeouts.ControlPlaneComponentHealthCheck = t
	}
	return nil
}

// withoutSecrets returns refusals whose values have no secret with a form of its own.
func withoutSecrets(list []reconfiguration.Refusal) []reconfiguration.Refusal {
	list = slices.Clone(list)
	for i, r := range list {
		list[i].From, list[i].To = redact.Line(r.From), redact.Line(r.To)
	}
	return list
}

// addOns returns the add-ons that the cluster has.
func addOns(ctx context.Context, api kubernetes.Interface) (names []string, err error) {
	dns, err := facts.Deployment(ctx, api, metav1.NamespaceSystem, reconfiguration.CoreDNS)
	if err != nil {
		return nil, err
	}
	proxy, err := facts.DaemonSet(ctx, api, metav1.NamespaceSystem, reconfiguration.KubeProxy)
	if dns != nil {
		names = append(names, reconfiguration.CoreDNS)
	}
	if proxy != nil {
		names = append(names, reconfiguration.KubeProxy)
	}
	return names, err
}

// compute finds out what differs from the stored configuration. The configuration of this node is complete.
func (c *change) compute(ctx context.Context) (err error) {
	own := c.config()
	if c.options.Given != nil {
		if err := c.options.Given.Check(own, c.isControlPlane()); err != nil {
			return err
		}
	}
	if c.isControlPlane() {
		if err := c.carried.read(ctx); err != nil {
			return err
		}
	}
	if c.options.Node {
		c.parts = nodeParts()
	} else if err := c.compare(ctx); err != nil {
		return err
	}
	r := c.run.record
	if r.change, err = c.id(); err != nil {
		return err
	}
	self, err := c.run.facts.api.Client.Node(ctx, own.NodeRegistration.Name)
	if err != nil {
		return err
	}
	r.last, r.followed = c.run.facts.stored.Cluster.Reconfiguration, self.Reconfiguration
	if c.options.Node { // it replaces all that the record is about
		r.endOvertaken()
	}
	if r.unfinished() && r.isGoal() { // the cluster may store the new configuration already
		c.parts = r.state.Parts
	}
	r.parts, r.readers, r.followers = c.parts, c.carried.readers(), ""
	switch {
	case c.workers:
		r.followers = node.AllNodes
	case c.planes:
		r.followers = node.ControlPlanes
	}
	return nil
}

// nodeParts are the parts of each node.
func nodeParts() []string { return slices.Concat(pods.StaticPodOrder, []string{kubeletPart}) }

func allParts() []string { return append(nodeParts(), corednsPart, proxyPart, flannelPart) }

func (c *change) config() *config.Config { return c.run.facts.node.Config }

func (c *change) isControlPlane() bool { return c.run.facts.node.IsControlPlane() }

// concerns reports whether the run changes a part.
func (c *change) concerns(part string) bool { return slices.Contains(c.parts, part) }

// compare compares what the stored and the new configuration give to this node and to the cluster.
func (c *change) compare(ctx context.Context) error {
	own, former, stored := c.config(), c.former, c.run.facts.stored
	changed, err := c.changedPods()
	if err != nil {
		return err
	}
	kubelet, err := c.changesKubelet()
	if err != nil {
		return err
	}
	images := !maps.Equal(former.Images, own.Images)
	if c.documents, err = differ(former, own, render.ClusterConfiguration); err != nil {
		return err
	}
	addons, err := c.changedAddons(ctx)
	if err != nil {
		return err
	}
	c.parts = slices.Concat(changed, addons)
	if kubelet || images || c.options.Given.Has("InitConfiguration.nodeRegistration.kubeletExtraArgs") {
		c.parts = append(c.parts, kubeletPart)
	}
	if c.options.Restore {
		c.parts = allParts()
	}
	c.planes = len(changed) > 0 || kubelet || images || c.carried.changed() || !reconfiguration.SameNames(config.NamesOf(&former.Cluster), config.NamesOf(&own.Cluster))
	c.workers = kubelet || images
	c.objects = c.documents || kubelet || len(addons) > 0 || c.planes
	switch {
	case c.planes:
		own.Reconfiguration = stored.Cluster.Reconfiguration.Next(&former.Cluster, &own.Cluster, c.workers)
	case c.objects:
		own.Reconfiguration.Stored++
	}
	return nil
}

// changedPods returns the static pods that get another manifest by the change.
func (c *change) changedPods() (names []string, err error) {
	if !c.isControlPlane() {
		return nil, nil
	}
	quiet := func(string, []string) {}
	was, err := c.run.controlPlane.rendered(c.former, quiet)
	if err != nil {
		return nil, err
	}
	is, err := c.run.controlPlane.rendered(c.config(), quiet)
	if err != nil {
		return nil, err
	}
	for _, name := range pods.StaticPodOrder {
		if !bytes.Equal(was[name], is[name]) {
			names = append(names, name)
		}
	}
	return names, nil
}

// changesKubelet reports whether the nodes get another KubeletConfiguration.
func (c *change) changesKubelet() (bool, error) {
	if c.config().Kubelet == nil {
		return false, nil
	}
	was, err := c.run.kubelet.sharedOf(c.former)
	if err != nil {
		return false, err
	}
	is, err := c.run.kubelet.shared()
	if err != nil {
		return false, err
	}
	var a, b kubeletv1.KubeletConfiguration // kubeadm writes zero values, too
	if err := yaml.Unmarshal(was, &a); err != nil {
		return true, nil
	}
	if err := yaml.Unmarshal(is, &b); err != nil {
		return false, err
	}
	return !reflect.DeepEqual(a, b), nil
}

// changedAddons returns the add-ons that get other objects by the change, or that still have other images: an earlier run may
// have waited for nodes without these images.
func (c *change) changedAddons(ctx context.Context) (names []string, err error) {
	own, api := c.config(), c.run.facts.api.Client.API
	running := map[string]func() (*facts.Workload, error){
		corednsPart: func() (*facts.Workload, error) { return facts.Deployment(ctx, api, "kube-system", "coredns") },
		proxyPart:   func() (*facts.Workload, error) { return facts.DaemonSet(ctx, api, "kube-system", "kube-proxy") },
		flannelPart: func() (*facts.Workload, error) { return facts.DaemonSet(ctx, api, "kube-flannel", "kube-flannel-ds") },
	}
	for _, addon := range []struct {
		name  string
		has   bool
		build func(*config.Config) ([]runtime.Object, error)
	}{{corednsPart, !own.DNS.Disabled, render.CoreDNS}, {proxyPart, !own.Proxy.Disabled, render.KubeProxy}, {flannelPart, own.CNI == "flannel", render.Flannel}} {
		if !addon.has {
			continue
		}
		changed, err := differ(c.former, own, func(cfg *config.Config) ([]byte, error) {
			objects, err := addon.build(cfg)
			if err != nil {
				return nil, err
			}
			return json.Marshal(objects)
		})
		if err != nil {
			return nil, err
		}
		now, err := running[addon.name]()
		if err != nil {
			return nil, err
		}
		if changed || now != nil && upgradecheck.Renamed(now.Images, own.Images[addon.name]) {
			names = append(names, addon.name)
		}
	}
	return names, nil
}

// differ reports whether two configurations give different bytes.
func differ(a, b *config.Config, of func(*config.Config) ([]byte, error)) (bool, error) {
	was, err := of(a)
	if err != nil {
		return false, err
	}
	is, err := of(b)
	return !bytes.Equal(was, is), err
}

// id identifies the configuration that this node gets: a run with another one does not continue this one.
func (c *change) id() (string, error) {
	own := c.config()
	text, err := render.ClusterConfiguration(own)
	if err != nil {
		return "", err
	}
	shared, err := c.run.kubelet.shared()
	if err != nil {
		return "", err
	}
	of := struct {
		Cluster, Kubelet []byte
		KubeProxy        any
		Files            []reconfiguration.File
		Node             config.NodeRegistration
		Command          string
		Restore          bool
	}{text, shared, own.KubeProxy, c.carried.files, config.NodeRegistration{}, c.run.facts.options.command(), c.options.Restore}
	if c.options.Given != nil {
		of.Node = c.options.Given.Config.NodeRegistration
	}
	data, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// kubeletFlags returns the file with the flags of this node's kubelet if the user gives other ones, and else nil. Flags that
// Airlift sets stay.
func (c *change) kubeletFlags(now []byte) []byte {
	own := c.config()
	if !c.options.Given.Has("InitConfiguration.nodeRegistration.kubeletExtraArgs") {
		return nil
	}
	var args []config.Arg
	for _, arg := range preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", now) {
		if slices.Contains(render.OwnKubeletFlags, arg.Name) {
			args = append(args, arg)
		}
	}
	file := render.KubeletFlagsFile(own, args)
	if slices.Equal(sortedFlags(file), sortedFlags(now)) { // the order of flags stays
		return now
	}
	return file
}

// sortedFlags returns the flags in a file with the kubelet's. The last one of a name counts.
func sortedFlags(file []byte) []config.Arg {
	flags := preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", file)
	slices.SortStableFunc(flags, func(a, b config.Arg) int { return strings.Compare(a.Name, b.Name) })
	return flags
}

// remains reports whether this run has something to change.
func (c *change) remains() (bool, error) {
	if c.objects && !c.options.Node {
		return true, nil
	}
	differ, err := c.differing()
	if err != nil || len(differ) > 0 {
		return true, err
	}
	names, err := serving{c}.planned()
	return len(names) > 0, err
}

// differing returns the files of this host that the run writes, without certificates, as far as they differ.
func (c *change) differing() ([]node.DifferingFile, error) {
	wants, err := c.localFiles()
	if err != nil {
		return nil, err
	}
	return c.run.facts.node.Differing(wants...)
}

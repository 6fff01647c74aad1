package reconfigure

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/redact"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/installer/staticpod"
	"airlift/installer/upgradecheck"
	"airlift/internal/fault"
)

// Edit puts the documents of the user into the configuration of this node, which has the stored configuration. It keeps a
// completed copy of that.
func (r *Reconfigure) Edit(ctx context.Context, own *config.Config, stored *cluster.Stored) error {
	if version := stored.Cluster.KubernetesVersion; version != own.KubernetesVersion {
		return fault.New(fault.Preflight, "this file has Kubernetes %s, and the cluster is %s: a reconfiguration keeps the version", own.KubernetesVersion, version).
			Hint("use the file of " + version + "; or upgrade first: ./install upgrade apply")
	}
	if r.IsControlPlane() {
		// kubeadm stores it nowhere.
		if pod, err := staticpod.Read(r.Existing.Path(node.APIServerManifest)); err == nil {
			own.Timeouts.ControlPlaneComponentHealthCheck = pod.Startup
		}
	}
	former := *own
	plan, err := r.Complete(&former)
	if err != nil {
		return err
	}
	r.former = plan.Config
	initial := *own
	if edit := r.options.EditCluster; edit != nil {
		return edit(&own.Cluster)
	}
	if r.options.Given == nil {
		return r.useProfile(ctx, own, &initial, stored)
	}
	given := r.options.Given.Config
	n := reconfiguration.Node{Name: own.NodeRegistration.Name, CRISocket: own.NodeRegistration.CRISocket, Endpoint: own.LocalAPIEndpoint, CgroupDriver: own.Facts.CgroupDriver, StoredKubelet: stored.Kubelet}
	if n.AddOns, err = addOns(ctx, r.API.Client.API); err != nil {
		return err
	}
	proxy := own.KubeProxy
	own.Cluster, r.refused = reconfiguration.Merge(stored.Cluster, r.options.Given, n)
	r.refused, r.warned = withoutSecrets(r.refused), withoutSecrets(reconfiguration.WarnOf(&stored.Cluster, &own.Cluster))
	keepKeys(&own.Cluster, &stored.Cluster)
	if own.KubeProxy == nil {
		own.KubeProxy = proxy
	}
	own.NodeRegistration.Taints, own.NodeRegistration.KubeletExtraArgs = given.NodeRegistration.Taints, given.NodeRegistration.KubeletExtraArgs
	if t := cmp.Or(given.Timeouts.ControlPlaneComponentHealthCheck, given.APIServer.TimeoutForControlPlane); t > 0 {
		own.Timeouts.ControlPlaneComponentHealthCheck = t
	}
	return r.useProfile(ctx, own, &initial, stored)
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
	dns, err := inventory.Deployment(ctx, api, metav1.NamespaceSystem, reconfiguration.CoreDNS)
	if err != nil {
		return nil, err
	}
	proxy, err := inventory.DaemonSet(ctx, api, metav1.NamespaceSystem, reconfiguration.KubeProxy)
	if dns != nil {
		names = append(names, reconfiguration.CoreDNS)
	}
	if proxy != nil {
		names = append(names, reconfiguration.KubeProxy)
	}
	return names, err
}

// Compute finds out what differs from the stored configuration. The configuration of this node is complete.
func (r *Reconfigure) Compute(ctx context.Context) (err error) {
	own := r.Config
	if r.options.Given != nil {
		if err := r.options.Given.Check(own, r.IsControlPlane()); err != nil {
			return err
		}
	}
	if r.IsControlPlane() {
		if err := r.readFiles(ctx); err != nil {
			return err
		}
	}
	if r.options.Node {
		r.parts = nodeParts()
	} else if err := r.compare(ctx); err != nil {
		return err
	}
	if r.Goal.Change, err = r.id(); err != nil {
		return err
	}
	self, err := r.API.Client.Node(ctx, own.NodeRegistration.Name)
	if err != nil {
		return err
	}
	r.Goal.Began, r.Goal.Followed = r.Stored.Cluster.Reconfiguration, self.Follows.Reconfiguration
	if r.options.Node { // it replaces all that the record is about
		r.EndOvertaken()
	}
	if r.Unfinished() && r.IsGoal() { // the cluster may store the new configuration already
		r.parts = r.Record.Parts
	}
	r.Goal.Parts, r.Goal.Readers, r.Goal.Followers = r.parts, r.Readers(), ""
	switch {
	case r.workers:
		r.Goal.Followers = revision.AllNodes
	case r.planes:
		r.Goal.Followers = revision.ControlPlanes
	}
	return nil
}

// nodeParts are the parts of each node.
func nodeParts() []string { return slices.Concat(pods.StaticPodOrder, []string{revision.KubeletPart}) }

func allParts() []string { return append(nodeParts(), corednsPart, proxyPart, flannelPart) }

// Concerns reports whether the run changes a part.
func (r *Reconfigure) Concerns(part string) bool { return slices.Contains(r.parts, part) }

// compare compares what the stored and the new configuration give to this node and to the cluster.
func (r *Reconfigure) compare(ctx context.Context) error {
	own, former := r.Config, r.former
	changed, err := r.changedPods()
	if err != nil {
		return err
	}
	if r.kubelet, err = r.changesKubelet(); err != nil {
		return err
	}
	images := !maps.Equal(former.Images, own.Images)
	if r.documents, err = differ(former, own, render.ClusterConfiguration); err != nil {
		return err
	}
	addons, err := r.changedAddons(ctx)
	if err != nil {
		return err
	}
	r.parts = slices.Concat(changed, addons)
	if r.kubelet || images || r.options.Given.Has("InitConfiguration.nodeRegistration.kubeletExtraArgs") {
		r.parts = append(r.parts, revision.KubeletPart)
	}
	if r.options.Restore {
		r.parts = allParts()
	}
	if r.changesAccounts() {
		r.parts = append(r.parts, accountsPart)
	}
	if r.second {
		r.parts = append(r.parts, verificationPart)
	}
	r.planes = len(changed) > 0 || r.kubelet || images || r.changesFiles() || !reconfiguration.SameNames(config.NamesOf(&former.Cluster), config.NamesOf(&own.Cluster))
	r.workers = r.kubelet || images
	r.objects = r.documents || r.kubelet || len(addons) > 0 || r.planes
	switch {
	case r.planes:
		own.Reconfiguration = own.Reconfiguration.Next(&former.Cluster, &own.Cluster, r.workers)
	case r.objects:
		own.Reconfiguration.Stored++
	}
	return nil
}

// changedPods returns the static pods that get another manifest by the change.
func (r *Reconfigure) changedPods() (names []string, err error) {
	if !r.IsControlPlane() {
		return nil, nil
	}
	quiet := func(string, []string) {}
	was, err := r.Rendered(r.former, quiet)
	if err != nil {
		return nil, err
	}
	is, err := r.Rendered(r.Config, quiet)
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
func (r *Reconfigure) changesKubelet() (bool, error) {
	if r.Config.Kubelet == nil {
		return false, nil
	}
	was, err := r.SharedKubelet(r.former)
	if err != nil {
		return false, err
	}
	is, err := r.SharedKubelet(r.Config)
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
func (r *Reconfigure) changedAddons(ctx context.Context) (names []string, err error) {
	own, api := r.Config, r.API.Client.API
	running := map[string]func() (*inventory.Workload, error){
		corednsPart: func() (*inventory.Workload, error) { return inventory.Deployment(ctx, api, "kube-system", "coredns") },
		proxyPart:   func() (*inventory.Workload, error) { return inventory.DaemonSet(ctx, api, "kube-system", "kube-proxy") },
		flannelPart: func() (*inventory.Workload, error) {
			return inventory.DaemonSet(ctx, api, "kube-flannel", "kube-flannel-ds")
		},
	}
	for _, addon := range []struct {
		name  string
		has   bool
		build func(*config.Config) ([]runtime.Object, error)
	}{{corednsPart, !own.DNS.Disabled, render.CoreDNS}, {proxyPart, !own.Proxy.Disabled, render.KubeProxy}, {flannelPart, own.CNI == "flannel", render.Flannel}} {
		if !addon.has {
			continue
		}
		changed, err := differ(r.former, own, func(cfg *config.Config) ([]byte, error) {
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
func (r *Reconfigure) id() (string, error) {
	own := r.Config
	text, err := render.ClusterConfiguration(own)
	if err != nil {
		return "", err
	}
	shared, err := r.SharedKubelet(r.Config)
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
	}{text, shared, own.KubeProxy, r.files, config.NodeRegistration{}, r.Options.Command, r.options.Restore}
	if r.options.Given != nil {
		of.Node = r.options.Given.Config.NodeRegistration
	}
	data, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// KubeletFlags returns the file with the flags of this node's kubelet if the user gives other ones, and else nil. Flags that
// Airlift sets stay.
func (r *Reconfigure) KubeletFlags(now []byte) ([]byte, error) {
	own := r.Config
	if !r.options.Given.Has("InitConfiguration.nodeRegistration.kubeletExtraArgs") {
		return nil, nil
	}
	var args []config.Arg
	for _, arg := range preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", now) {
		if slices.Contains(render.OwnKubeletFlags, arg.Name) {
			args = append(args, arg)
		}
	}
	file := render.KubeletFlagsFile(own, args)
	if slices.Equal(sortedFlags(file), sortedFlags(now)) { // the order of flags stays
		return now, nil
	}
	return file, nil
}

// sortedFlags returns the flags in a file with the kubelet's. The last one of a name counts.
func sortedFlags(file []byte) []config.Arg {
	flags := preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", file)
	slices.SortStableFunc(flags, func(a, b config.Arg) int { return strings.Compare(a.Name, b.Name) })
	return flags
}

// Remains reports whether this run has something to change.
func (r *Reconfigure) Remains() (bool, error) {
	if r.objects && !r.options.Node {
		return true, nil
	}
	differ, err := r.differing()
	if err != nil || len(differ) > 0 {
		return true, err
	}
	names, err := r.plannedCertificates()
	return len(names) > 0, err
}

// differing returns the files of this host that the run writes, without certificates, as far as they differ.
func (r *Reconfigure) differing() ([]node.DifferingFile, error) {
	wants, err := r.localFiles()
	if err != nil {
		return nil, err
	}
	return r.Differing(wants...)
}

// changedObjects are the objects that undo restores, by the part that changes them; "" changes in each run.
var changedObjects = map[string][]cluster.ObjectName{
	"":                   {revision.Objects[0], {APIVersion: "v1", Kind: "Secret", Namespace: "kube-system", Name: config.FilesSecret}},
	revision.KubeletPart: {revision.Objects[1]},
	accountsPart:         accountNames(),
	corednsPart:          {revision.Objects[2], revision.Objects[4]},
	proxyPart:            {revision.Objects[3], revision.Objects[5]},
	flannelPart:          {revision.Objects[6]},
}

// Objects returns the objects that this run may change.
func (r *Reconfigure) Objects() []cluster.ObjectName {
	list := changedObjects[""]
	for _, part := range []string{revision.KubeletPart, accountsPart, corednsPart, proxyPart, flannelPart} {
		if r.Concerns(part) {
			list = slices.Concat(list, changedObjects[part])
		}
	}
	return list
}

// HasImages reports whether a node follows the reconfiguration: it lists only some of its images.
func (r *Reconfigure) HasImages(n inventory.Node, controlPlane bool) bool {
	return r.Config.Reconfiguration.Follows(n.Reconfiguration, controlPlane)
}

// KubeletInstance keeps what this node has for itself.
func (r *Reconfigure) KubeletInstance(_, instance []byte) ([]byte, error) { return instance, nil }

// IsSecret reports whether a file is a key, or one that the user brings.
func (r *Reconfigure) IsSecret(file string) bool { return r.brings(file) || path.Ext(file) == ".key" }

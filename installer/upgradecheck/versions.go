package upgradecheck

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/cluster/inventory"
	"airlift/installer/preflight"
)

// maxKubeletSkew is how many minor versions a kubelet may be older than the API server: three
// since v1.28, Kubernetes' version skew policy.
const maxKubeletSkew = 3

// version compares the bundle's version with the cluster's. During an upgrade, and on the nodes
// after the first, the cluster's version is already the bundle's.
func (t *Target) version() []preflight.Problem {
	if t.Command == Reconfigure {
		return nil
	}
	to, err := version.ParseSemantic(t.To)
	if err != nil {
		return preflight.Fail("build the file again", "%q is not a Kubernetes version: %v", t.To, err)
	}
	from, err := version.ParseSemantic(t.From)
	if err != nil {
		return preflight.Fail("write a version like v1.29.15 to kubernetesVersion in ConfigMap kube-system/kubeadm-config", "the cluster's version %q is not a Kubernetes version: %v", t.From, err)
	}
	found := t.unstable(to)
	next := fmt.Sprintf("v1.%d", from.Minor()+1)
	switch {
	case t.Command == Node:
		if to.String() != from.String() {
			hint := fmt.Sprintf("use the file with %s on this node", t.From)
			if from.LessThan(to) {
				hint = "first run on a control plane: ./install upgrade apply"
			}
			found = append(found, preflight.Fail(hint, "this file has Kubernetes %s, and the cluster is %s: nodes are upgraded to the cluster's version", t.To, t.From)...)
		}
	case to.LessThan(from):
		found = append(found, preflight.Fail(fmt.Sprintf("use a file with a version higher than %s: a later v1.%d, or %s; to undo an upgrade: ./install upgrade undo", t.From, from.Minor(), next),
			"this file has Kubernetes %s, which is older than the cluster's %s: a downgrade is not possible", t.To, t.From)...)
	case to.Major() != from.Major() || to.Minor() > from.Minor()+1:
		found = append(found, preflight.Fail(fmt.Sprintf("upgrade with a file of %s first, then of each minor version up to v1.%d: bundle build --version %s", next, to.Minor(), next[1:]),
			"this file has Kubernetes %s, and the cluster is %s: an upgrade cannot skip a minor version", t.To, t.From)...)
	case to.String() == from.String() && t.Command == Plan:
		behind := t.behind()
		if len(behind) == 0 {
			found = append(found, preflight.Fail(fmt.Sprintf("use a file with a later v1.%d, or with %s", from.Minor(), next),
				"the cluster already has Kubernetes %s, the version of this file: there is nothing to upgrade", t.To)...)
		}
	}
	return found
}

// Unsuitable reports whether no upgrade from From to To is possible, whatever is ignored.
func (t *Target) Unsuitable() bool {
	any := *t
	any.AllowExperimental = true
	return len(any.version()) > 0
}

// unstable refuses alpha and beta versions and release candidates, unless a flag allows them.
func (t *Target) unstable(to *version.Version) []preflight.Problem {
	pre := to.PreRelease()
	switch {
	case pre == "", t.AllowExperimental, t.AllowRC && strings.HasPrefix(pre, "rc"):
		return nil
	case strings.HasPrefix(pre, "rc"):
		return preflight.Fail("use a released version, or allow it: --allow-release-candidate-upgrades", "this file has Kubernetes %s, a release candidate", t.To)
	}
	return preflight.Fail("use a released version, or allow it: --allow-experimental-upgrades", "this file has Kubernetes %s, which is not a released version", t.To)
}

// behind lists the nodes and components that do not have the version To yet.
func (t *Target) behind() (list []string) {
	if t.Cluster == nil {
		return nil
	}
	for _, n := range t.nodes() {
		if n.KubeletVersion != t.To {
			list = append(list, "the kubelet of "+n.Name)
		}
	}
	for _, c := range t.Cluster.Components {
		if slices.Contains(controlPlane, c.Name) && Tag(c.Image) != t.To {
			list = append(list, c.Name+" of "+c.Node)
		}
	}
	return list
}

// controlPlane are the static pods that have Kubernetes' version.
var controlPlane = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// Tag returns the tag of an image reference: "v1.37.1". It is empty without a tag.
func Tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return tag
}

// Renamed reports whether a workload runs an image under another name than the configured one. Another version is an upgrade.
func Renamed(running []string, image string) bool {
	return image != "" && !slices.Contains(running, image) && slices.ContainsFunc(running, func(r string) bool {
		return Tag(r) == Tag(image) && path.Base(r) == path.Base(image)
	})
}

// skew compares the versions of all nodes with the new version: a kubelet may be up to three
// minor versions older, and never newer. API servers may differ by one minor version.
func (t *Target) skew() (found []preflight.Problem) {
	to, err := version.ParseSemantic(t.To)
	if err != nil || t.Cluster == nil || t.Unsuitable() {
		return nil // with another file, other nodes would be too old
	}
	for _, n := range t.Cluster.Nodes {
		v, err := version.ParseSemantic(n.KubeletVersion)
		if err != nil {
			found = append(found, preflight.Warn("see: kubectl get node "+n.Name+" -o wide", "the version %q of the kubelet of node %s is not a version", n.KubeletVersion, n.Name)...)
			continue
		}
		switch {
		case to.LessThan(v) && v.Minor() > to.Minor():
			found = append(found, preflight.Fail("use a file with that version or a later one", "the kubelet of node %s is %s, newer than %s: a kubelet must not be newer than the API server", n.Name, n.KubeletVersion, t.To)...)
		case int(to.Minor())-int(v.Minor()) > maxKubeletSkew:
			found = append(found, preflight.Fail(fmt.Sprintf("upgrade that node first, to v1.%d or later, with a file of that version: ./FILE upgrade node", int(to.Minor())-maxKubeletSkew),
				"the kubelet of node %s is %s, and %s allows kubelets that are up to %d minor versions older", n.Name, n.KubeletVersion, t.To, maxKubeletSkew)...)
		}
	}
	for _, c := range t.Cluster.Components {
		v, err := version.ParseSemantic(Tag(c.Image))
		if err != nil || !slices.Contains(controlPlane, c.Name) {
			continue
		}
		switch d := int(to.Minor()) - int(v.Minor()); {
		case d > 1:
			found = append(found, preflight.Fail("upgrade that control plane first, with the file of the cluster's version: ./FILE upgrade node",
				"%s of node %s is %s, and control planes may differ by one minor version: %s is more", c.Name, c.Node, Tag(c.Image), t.To)...)
		case d < 0:
			found = append(found, preflight.Fail("use a file with that version or a later one", "%s of node %s is %s, newer than %s", c.Name, c.Node, Tag(c.Image), t.To)...)
		}
	}
	return found
}

// minors returns the minor versions of From and To; ok is false if one is not a version.
func (t *Target) minors() (from, to int, ok bool) {
	a, err := version.ParseSemantic(t.From)
	if err != nil {
		return 0, 0, false
	}
	b, err := version.ParseSemantic(t.To)
	if err != nil {
		return 0, 0, false
	}
	return int(a.Minor()), int(b.Minor()), true
}

func (t *Target) nodeOf(name string) (inventory.Node, bool) {
	if i := slices.IndexFunc(t.nodes(), func(n inventory.Node) bool { return n.Name == name }); i >= 0 {
		return t.Cluster.Nodes[i], true
	}
	return inventory.Node{}, false
}

// nodes are none if this host's kubeconfig may not list them.
func (t *Target) nodes() []inventory.Node {
	if t.Cluster == nil {
		return nil
	}
	return t.Cluster.Nodes
}

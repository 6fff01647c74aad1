package upgradecheck

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/preflight"
)

// controlPlanesReady is kubeadm's check: all control planes must be Ready.
func (t *Target) controlPlanesReady() (found []finding) {
	if t.Cluster == nil {
		return nil
	}
	for _, n := range t.Cluster.Nodes {
		if n.ControlPlane && !n.Ready {
			found = append(found, problem(fmt.Sprintf("start its kubelet and its static pods, see: kubectl describe node %[1]s; if it is lost permanently: ./install node remove %[1]s; to upgrade the others first: --ignore-preflight-errors ControlPlaneNodesReady", n.Name),
				"control plane %s is not Ready: %s", n.Name, n.Reason))
		}
	}
	return found
}

// nodesReady warns of workers that are not Ready: they can be upgraded later.
func (t *Target) nodesReady() (found []finding) {
	if t.Cluster == nil {
		return nil
	}
	for _, n := range t.Cluster.Nodes {
		if !n.ControlPlane && !n.Ready {
			found = append(found, warning("see: kubectl describe node "+n.Name, "node %s is not Ready: %s", n.Name, n.Reason))
		}
	}
	if n, ok := t.nodeOf(t.NodeName); !ok && len(t.Cluster.Nodes) > 0 {
		found = append(found, problem("run it on a node of the cluster", "the cluster has no node %q, which is this host's name in kubelet.conf", t.NodeName))
	} else if n.Unschedulable {
		found = append(found, warning("to undo that after the upgrade: kubectl uncordon "+n.Name, "node %s is already cordoned: it stays cordoned after the upgrade", n.Name))
	}
	return found
}

// runtimes reports container runtimes that are too old for the new kubelet: an error for this node, a
// warning for others. The bundle's containerd is never too old.
func (t *Target) runtimes() (found []finding) {
	_, to, ok := t.minors()
	if !ok || t.Cluster == nil {
		return nil
	}
	for _, n := range t.Cluster.Nodes {
		containerd, is := strings.CutPrefix(n.ContainerRuntime, "containerd://")
		old, works := preflight.OldRuntime(containerd, to)
		if !is || !old || n.Name != t.NodeName && t.Command != Plan {
			continue
		}
		f := problem("upgrade that containerd to 2.0 or newer before its kubelet is upgraded to v1.38",
			"containerd %s of node %s does not report its cgroup driver, which the kubelet requires from v1.38 on", containerd, n.Name)
		f.warning = works || n.Name != t.NodeName
		found = append(found, f)
	}
	return found
}

// staticPods is kubeadm's check: a control plane has all its static pods.
func (t *Target) staticPods() (found []finding) {
	if !t.ControlPlane {
		return nil
	}
	names := controlPlane
	if t.Config.Etcd.External == nil {
		names = append([]string{"etcd"}, names...)
	}
	for _, name := range names {
		file := path.Join(config.ManifestsDir, name+".yaml")
		if t.Continues && slices.Contains(t.Kept, file) { // the interrupted run may have removed it
			continue
		}
		if _, err := fs.Stat(t.Files, strings.TrimPrefix(file, "/")); err != nil {
			found = append(found, problem("restore it with the file that installed this control plane: ./FILE init, or the join command",
				"the static pod manifest %s cannot be read: %v", file, err))
		}
	}
	return found
}

// images compares the bundle's images with the images that the cluster's configuration needs.
func (t *Target) images() (found []finding) {
	if t.ImageNames != nil {
		found = append(found, problem("remove imageTag from ConfigMap kube-system/kubeadm-config, or build a file with that image", "%v", t.ImageNames))
	}
	for _, name := range t.MissingImages {
		fix := "build the file again with this component"
		if name == "flannel" {
			fix = "build the file with the pod network of this cluster: bundle build --cni flannel"
		}
		found = append(found, problem(fix, "the cluster needs an image of %s, and this file has none", name))
	}
	return found
}

// architecture compares the bundle's platform with this host's.
func (t *Target) architecture() []finding {
	if t.Platform == t.HostPlatform {
		return nil
	}
	return []finding{problem("use a file for this host: bundle build --arch "+strings.TrimPrefix(t.HostPlatform, "linux/"), "this file is for %s, and this host is %s", t.Platform, t.HostPlatform)}
}

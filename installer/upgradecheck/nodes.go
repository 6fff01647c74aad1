package upgradecheck

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/preflight"
	"airlift/installer/staticpod"
)

// controlPlanesReady is kubeadm's check: all control planes must be Ready.
func (t *Target) controlPlanesReady() (found []preflight.Problem) {
	for _, n := range t.nodes() {
		if n.ControlPlane && !n.Ready {
			found = append(found, preflight.Fail(fmt.Sprintf("start its kubelet and its static pods, see: kubectl describe node %[1]s; if it is lost permanently: ./install node remove %[1]s; to upgrade the others first: --ignore-preflight-errors ControlPlaneNodesReady", n.Name),
				"control plane %s is not Ready: %s", n.Name, n.Reason)...)
		}
	}
	return found
}

// nodesReady warns of workers that are not Ready: they can be upgraded later.
func (t *Target) nodesReady() (found []preflight.Problem) {
	for _, n := range t.nodes() {
		if !n.ControlPlane && !n.Ready {
			found = append(found, preflight.Warn("see: kubectl describe node "+n.Name, "node %s is not Ready: %s", n.Name, n.Reason)...)
		}
	}
	if n, ok := t.nodeOf(t.NodeName); !ok && len(t.nodes()) > 0 {
		found = append(found, preflight.Fail("run it on a node of the cluster", "the cluster has no node %q, which is this host's name in kubelet.conf", t.NodeName)...)
	} else if n.Unschedulable {
		found = append(found, preflight.Warn("to undo that after the upgrade: kubectl uncordon "+n.Name, "node %s is already cordoned: it stays cordoned after the upgrade", n.Name)...)
	}
	return found
}

// runtimes reports container runtimes that are too old for the new kubelet: an error for this node, a
// warning for others. The bundle's containerd is never too old.
func (t *Target) runtimes() (found []preflight.Problem) {
	_, to, ok := t.minors()
	if !ok {
		return nil
	}
	for _, n := range t.nodes() {
		containerd, is := strings.CutPrefix(n.ContainerRuntime, "containerd://")
		old, works := preflight.OldRuntime(containerd, to)
		if !is || !old || n.Name != t.NodeName && t.Command != Plan {
			continue
		}
		f := preflight.Fail("upgrade that containerd to 2.0 or newer before its kubelet is upgraded to v1.38",
			"containerd %s of node %s does not report its cgroup driver, which the kubelet requires from v1.38 on", containerd, n.Name)
		f[0].Warning = works || n.Name != t.NodeName
		found = append(found, f...)
	}
	return found
}

// staticPods is kubeadm's check: a control plane has all its static pods.
func (t *Target) staticPods() (found []preflight.Problem) {
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
		data, err := fs.ReadFile(t.Files, strings.TrimPrefix(file, "/"))
		if err != nil {
			found = append(found, preflight.Fail("restore it with the file that installed this control plane: ./FILE init, or the join command",
				"the static pod manifest %s cannot be read: %v", file, err)...)
		} else if pod, err := staticpod.Parse(name, data); err == nil && name == "etcd" && !t.Continues {
			found = append(found, t.etcdData(pod)...)
		}
	}
	return found
}

// etcdData refuses an etcd with its data elsewhere than in the configuration: the new one would start without data.
func (t *Target) etcdData(pod *staticpod.Pod) []preflight.Problem {
	is, stored := MovedEtcd(pod, &t.Config.Etcd.Local, func(dir string) string {
		if to, err := filepath.EvalSymlinks(filepath.Join(t.Root, dir)); err == nil {
			return to
		}
		return filepath.Join(t.Root, dir)
	})
	if is == "" {
		return nil
	}
	return preflight.Fail("set etcd.local.dataDir to "+is+" in ClusterConfiguration: kubectl -n kube-system edit configmap kubeadm-config",
		"etcd's data is in %s, and in %s by the stored configuration: the upgrade would start an empty etcd", is, stored)
}

// MovedEtcd returns the directory of etcd's data in its static pod, and the one in its configuration, if they differ: of the volume or
// of the flag. place returns the directory to which the links of a path lead.
func MovedEtcd(pod *staticpod.Pod, local *config.LocalEtcd, place func(string) string) (is, stored string) {
	flag, given := config.LastArg(local.ExtraArgs, "data-dir")
	if !given {
		flag = local.DataDir
	}
	for _, one := range [][2]string{{pod.Volumes["etcd-data"], local.DataDir}, {pod.Flags["data-dir"], flag}} {
		if one[0] != "" && place(one[0]) != place(one[1]) {
			return one[0], one[1]
		}
	}
	return "", ""
}

// images compares the bundle's images with the images that the cluster's configuration needs.
func (t *Target) images() (found []preflight.Problem) {
	if t.ImageNames != nil {
		found = append(found, preflight.Fail("remove imageTag from ConfigMap kube-system/kubeadm-config, or build a file with that image", "%v", t.ImageNames)...)
	}
	for _, name := range t.MissingImages {
		fix := "build the file again with this component"
		if name == "flannel" {
			fix = "build the file with the pod network of this cluster: bundle build --cni flannel"
		}
		found = append(found, preflight.Fail(fix, "the cluster needs an image of %s, and this file has none", name)...)
	}
	return found
}

// architecture compares the bundle's platform with this host's.
func (t *Target) architecture() []preflight.Problem {
	if t.Platform == t.HostPlatform {
		return nil
	}
	return preflight.Fail("use a file for this host: bundle build --arch "+strings.TrimPrefix(t.HostPlatform, "linux/"), "this file is for %s, and this host is %s", t.Platform, t.HostPlatform)
}

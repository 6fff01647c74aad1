// Package runtimecheck knows whether a containerd would serve a node after its next start: it compares what containerd makes of its
// configuration files with what the node needs, and names the file that changed it. Other software adds such files: a toolkit for
// GPUs copies whole tables, with other directories and another pause image, or writes a file of a version that this containerd
// does not have. Nothing shows that until containerd starts again.
package runtimecheck

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Name is the name of the check.
const Name = "ContainerdFiles"

// A Problem is what keeps containerd from serving the node.
type Problem struct {
	File    string // that causes it; "" if containerd could not be asked
	Message string
	Fix     string // what to type
	Warning bool   // the node works nevertheless
}

// A Need is what the configuration of a node's containerd must have. A field with its zero value is not compared.
type Need struct {
	Socket       string                 // to which the kubelet connects
	CgroupDriver string                 // of the kubelet: "systemd" or "cgroupfs"
	HasImage     func(name string) bool // reports whether the node has an image, or will have it
	RegistryDir  string                 // where the registries are that Airlift or the site configured
	CNIBinDirs   []string
	CNIConfDir   string
	Snapshotter  string // that has the images of the node; an import keeps no layers from which another one could unpack them
	RestrictsOOM bool   // because the host cannot lower OOM scores
}

// NeedOf returns what a node needs that works with a configuration.
func NeedOf(e Effective) Need {
	n := Need{
		Socket: e.Socket, CgroupDriver: driver(e.Runtimes[e.DefaultRuntime]), HasImage: func(name string) bool { return name == e.SandboxImage },
		CNIBinDirs: e.CNIBinDirs, CNIConfDir: e.CNIConfDir, RestrictsOOM: e.RestrictOOMScoreAdj,
	}
	if len(e.RegistryDirs) > 0 {
		n.RegistryDir = e.RegistryDirs[0]
	}
	return n
}

// inRun returns the path of a socket in /run, to which /var/run is a link (FHS 3.0, 5.13): kubeadm's and containerd's defaults differ in that.
func inRun(socket string) string {
	if rest, ok := strings.CutPrefix(path.Clean(socket), "/var/run/"); ok {
		return "/run/" + rest
	}
	return path.Clean(socket)
}

func driver(r Runtime) string {
	if r.SystemdCgroup {
		return "systemd"
	}
	return "cgroupfs"
}

// A finding is one value that is not as needed.
type finding struct {
	key     string // of the setting, as in a file of version 3
	message string
	warning bool
}

// compare returns what a configuration has otherwise than a node needs. missing reports whether a path does not exist on the host.
func compare(e Effective, n Need, missing func(path string) bool) (list []finding) {
	if !e.CRI {
		return []finding{{"disabled_plugins", "it disables the CRI plugin, and the kubelet cannot use containerd without it", false}}
	}
	add := func(bad bool, key, format string, args ...any) {
		if bad {
			list = append(list, finding{key, fmt.Sprintf(format, args...), false})
		}
	}
	add(n.Socket != "" && inRun(e.Socket) != inRun(n.Socket), "address", "containerd's socket is %q, and the kubelet connects to %s", e.Socket, n.Socket)
	add(n.HasImage != nil && !n.HasImage(e.SandboxImage), "sandbox", "the pause image is %q, which this node does not have, and no pod starts without it", e.SandboxImage)
	add(n.RegistryDir != "" && !slices.Contains(e.RegistryDirs, n.RegistryDir), "config_path", "config_path of the registries is %q, and theirs are in %s", strings.Join(e.RegistryDirs, ":"), n.RegistryDir)
	add(len(e.RegistryDirs) > 0 && len(e.RegistryMirrors) > 0, "mirrors",
		"it has registry.mirrors of %s, with which containerd's CRI does not start if there is a config_path", strings.Join(e.RegistryMirrors, ", "))
	for _, dir := range n.CNIBinDirs {
		add(!slices.Contains(e.CNIBinDirs, dir), "bin_dirs", "CNI plugins are started from %q and not from %s: new pods get no network", strings.Join(e.CNIBinDirs, ", "), dir)
	}
	add(n.CNIConfDir != "" && path.Clean(e.CNIConfDir) != path.Clean(n.CNIConfDir), "conf_dir",
		"the configuration of the pod network is read from %q instead of %s: new pods get no network", e.CNIConfDir, n.CNIConfDir)
	add(n.Snapshotter != "" && e.Snapshotter != "" && e.Snapshotter != n.Snapshotter, "snapshotter", "the snapshotter is %q, and the images of this node are unpacked in %s: no new pod starts", e.Snapshotter, n.Snapshotter)
	add(n.RestrictsOOM && !e.RestrictOOMScoreAdj, "restrict_oom_score_adj", "restrict_oom_score_adj is false, and this host cannot lower OOM scores: no container of a system pod starts")
	if _, ok := e.Runtimes[e.DefaultRuntime]; !ok {
		add(true, "default_runtime_name", "default_runtime_name is %q, and there is no such runtime: containerd's CRI does not start", e.DefaultRuntime)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Runtimes)) {
		r, whose, optional := e.Runtimes[name], "its pods", name != e.DefaultRuntime
		if !optional {
			whose = "pods"
		}
		if n.Snapshotter != "" && r.Snapshotter != "" && r.Snapshotter != n.Snapshotter {
			list = append(list, finding{"snapshotter of " + name, fmt.Sprintf("the snapshotter of the runtime %s is %q, and the images of this node are unpacked in %s: %s do not start", name, r.Snapshotter, n.Snapshotter, whose), optional})
		}
		if r.Type != runcType {
			continue
		}
		if n.CgroupDriver != "" && driver(r) != n.CgroupDriver {
			list = append(list, finding{"SystemdCgroup of " + name, fmt.Sprintf("SystemdCgroup is %t for the runtime %s, and the kubelet's cgroup driver is %s: %s are killed or do not start", r.SystemdCgroup, name, n.CgroupDriver, whose), optional})
		}
		if path.IsAbs(r.Binary) && missing(r.Binary) {
			list = append(list, finding{"BinaryName of " + name, fmt.Sprintf("the runtime %s is %s, which does not exist: %s do not start", name, r.Binary, whose), optional})
		}
	}
	return list
}

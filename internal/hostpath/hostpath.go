// Package hostpath lists the paths on a host that belong to Kubernetes, to Airlift or to the
// kernel. The site's own files cannot be there. A test compares the list with all paths in the
// source code of the installer.
package hostpath

import (
	"path"
	"slices"
	"strings"
)

// dirs are directories, with their owners for messages.
var dirs = []struct{ path, owner string }{
	{"/etc/kubernetes", "this directory belongs to Kubernetes"},
	{"/var/lib/kubelet", "this directory belongs to the kubelet"},
	{"/var/log/pods", "this directory belongs to the kubelet"},
	{"/var/log/containers", "this directory belongs to the kubelet"},
	{"/var/log/kubernetes/audit", "this directory has the audit log of the API server"},
	{"/var/lib/etcd", "this directory belongs to etcd"},
	{"/var/lib/containerd", "this directory belongs to containerd"},
	{"/var/lib/cni", "this directory belongs to the pod network"},
	{"/var/lib/dpkg", "this directory belongs to dpkg"},
	{"/var/lib/rpm", "this directory belongs to rpm"},
	{"/usr/lib/sysimage/rpm", "this directory belongs to rpm"},
	{"/proc", "this is a file system of the kernel"},
	{"/sys", "this is a file system of the kernel"},
	{"/dev", "this is a file system of the kernel"},
	{"/run", "files there are gone after a reboot"},
	{"/var/run", "files there are gone after a reboot"},
}

// files are the files that Airlift writes outside of those directories, except those with its name.
var files = []string{
	"/etc/containerd/config.toml",
	"/etc/crictl.yaml",
	"/etc/cni/net.d/10-flannel.conflist",
	"/etc/systemd/system/containerd.service",
	"/etc/systemd/system/kubelet.service",
	"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
	"/usr/local/bin/airlift",
}

const unitDir = "/etc/systemd/system"

// namedDirs are directories in which every name that begins with Airlift's is reserved, also after a number:
// units, configuration, state and the installer.
var namedDirs = []string{unitDir, "/etc", "/etc/modules-load.d", "/etc/sysctl.d", "/etc/sysusers.d", "/var/lib", "/usr/local/lib"}

// BinaryDirs are the directories of a bundle's binaries on the hosts.
var BinaryDirs = []string{"/usr/local/bin", "/usr/local/sbin"}

// EtcDirs returns the directories of the files that Airlift writes below /etc.
func EtcDirs() (dirs []string) {
	for _, file := range used() {
		if dir := path.Dir(file); isIn(dir, "/etc") {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Owner returns a sentence about who owns a path, or "" if it is free. A path that is a
// directory on every host is not free.
func Owner(file string) string {
	for _, d := range dirs {
		if isIn(file, d.path) {
			return d.owner
		}
	}
	if slices.ContainsFunc(files, func(f string) bool { return isIn(file, f) }) || hasName(file) {
		return "this file belongs to Airlift"
	}
	if slices.ContainsFunc(used(), func(used string) bool { return strings.HasPrefix(used, file+"/") }) {
		return "this is a directory on the hosts"
	}
	return ""
}

// isIn reports whether a path is a directory or file, or below it.
func isIn(file, dir string) bool { return file == dir || strings.HasPrefix(file, dir+"/") }

// hasName reports whether a path has a name of Airlift's own files: a file in one of its
// directories, a link that enables a unit, an unfinished file, or the copy of an edited file.
func hasName(file string) bool {
	base := path.Base(file)
	if strings.HasPrefix(base, ".airlift-") || strings.Contains(base, ".airlift-saved") {
		return true
	}
	for _, dir := range namedDirs {
		name, _, _ := strings.Cut(strings.TrimPrefix(file, dir+"/"), "/")
		dropIn := dir == unitDir && path.Ext(name) == ".d" // with it, a site changes a unit
		if isIn(file, dir) && strings.HasPrefix(strings.TrimLeft(name, "0123456789-"), "airlift") && !dropIn {
			return true
		}
	}
	linked := strings.HasPrefix(base, "airlift-") || base == "kubelet.service" || base == "containerd.service"
	return linked && path.Dir(path.Dir(file)) == unitDir && slices.Contains([]string{".wants", ".requires"}, path.Ext(path.Dir(file)))
}

// used returns paths whose parent directories exist on every host.
func used() []string {
	paths := slices.Concat(files, []string{"/opt/cni/bin/x"})
	for _, d := range dirs {
		paths = append(paths, d.path)
	}
	for _, dir := range slices.Concat(BinaryDirs, namedDirs) {
		paths = append(paths, dir+"/x")
	}
	return paths
}

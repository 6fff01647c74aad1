// Package hostpath lists the paths on a host that belong to Kubernetes, to Airlift or to the
// kernel. The site's own files cannot be there. The tests of bundle/sitefile compare the list
// with the paths that package installer writes.
package hostpath

import (
	"slices"
	"strings"
)

// dirs are directories, with their owners for messages.
var dirs = []struct{ path, owner string }{
	{"/etc/kubernetes", "this directory belongs to Kubernetes"},
	{"/var/lib/kubelet", "this directory belongs to the kubelet"},
	{"/var/lib/etcd", "this directory belongs to etcd"},
	{"/var/lib/containerd", "this directory belongs to containerd"},
	{"/var/lib/cni", "this directory belongs to the pod network"},
	{"/var/lib/airlift", "this directory belongs to Airlift"},
	{"/usr/local/lib/airlift", "this directory belongs to Airlift"},
	{"/proc", "this is a file system of the kernel"},
	{"/sys", "this is a file system of the kernel"},
	{"/dev", "this is a file system of the kernel"},
	{"/run", "files there are gone after a reboot"},
	{"/var/run", "files there are gone after a reboot"},
}

// files are the files that Airlift writes outside of those directories.
var files = []string{
	"/etc/containerd/config.toml",
	"/etc/crictl.yaml",
	"/etc/cni/net.d/10-flannel.conflist",
	"/etc/modules-load.d/airlift.conf",
	"/etc/sysctl.d/99-airlift.conf",
	"/etc/systemd/system/containerd.service",
	"/etc/systemd/system/kubelet.service",
	"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
	"/etc/systemd/system/airlift-rshared.service",
	"/etc/systemd/system/airlift-service-route.service",
}

// BinaryDirs are the directories of a bundle's binaries on the hosts.
var BinaryDirs = []string{"/usr/local/bin", "/usr/local/sbin"}

// Owner returns a sentence about who owns a path, or "" if it is free. A path that is a
// directory on every host is not free.
func Owner(path string) string {
	for _, d := range dirs {
		if path == d.path || strings.HasPrefix(path, d.path+"/") {
			return d.owner
		}
	}
	for _, f := range files {
		if path == f || strings.HasPrefix(path, f+"/") {
			return "this file belongs to Airlift"
		}
	}
	for _, used := range used() {
		if strings.HasPrefix(used, path+"/") {
			return "this is a directory on the hosts"
		}
	}
	return ""
}

// used returns paths of which every host has the parent directories.
func used() []string {
	paths := slices.Concat(files, []string{"/opt/cni/bin/x"})
	for _, d := range dirs {
		paths = append(paths, d.path)
	}
	for _, dir := range BinaryDirs {
		paths = append(paths, dir+"/x")
	}
	return paths
}

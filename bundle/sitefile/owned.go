package sitefile

import (
	"path"
	"slices"
	"strings"
	"sync"

	"airlift/images"
)

// ownedDirs are directories whose files belong to something else, with their owners for
// messages.
var ownedDirs = []struct{ dir, owner string }{
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

// ownedFiles are the files that Airlift writes outside of those directories.
var ownedFiles = []string{
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

// binaryDirs are the directories of the bundle's binaries on the hosts.
var binaryDirs = []string{"/usr/local/bin", "/usr/local/sbin"}

// binaryNames are the names of the binaries in every bundle. The CNI plugins are compared when
// they were downloaded.
var binaryNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	c, err := images.For(images.NewestRelease("stable"), images.Arches()[0], images.NoCNI, images.Versions{})
	if err != nil {
		panic(err) // the catalog has its own newest release
	}
	for _, b := range c.Binaries {
		names[path.Base(b.Contents.Entry)] = b.Contents.Entry != ""
		for _, m := range b.Contents.Members {
			names[path.Base(m.Entry)] = true
		}
	}
	return names
})

// ownerOf returns who owns a path on the hosts, or "" if it is free.
func ownerOf(p string) string {
	for _, o := range ownedDirs {
		if p == o.dir || strings.HasPrefix(p, o.dir+"/") {
			return o.owner
		}
	}
	for _, f := range ownedFiles {
		if p == f || strings.HasPrefix(p, f+"/") {
			return "this file belongs to Airlift"
		}
	}
	for _, above := range usedPaths() {
		if strings.HasPrefix(above, p+"/") {
			return "this is a directory on the hosts"
		}
	}
	for _, dir := range binaryDirs {
		if path.Dir(p) == dir && binaryNames()[path.Base(p)] {
			return "this binary belongs to Airlift"
		}
	}
	return ""
}

// usedPaths are paths of which every host has the directories above them.
func usedPaths() []string {
	paths := slices.Concat(ownedFiles, []string{"/opt/cni/bin/x"})
	for _, o := range ownedDirs {
		paths = append(paths, o.dir)
	}
	for _, dir := range binaryDirs {
		paths = append(paths, dir+"/x")
	}
	return paths
}

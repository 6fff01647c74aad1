package release

// Versions of components that Kubernetes does not specify. They are the same for every
// minor version of the catalog: containerd 2.x implements CRI v1, the only CRI version of
// kubelets since 1.26, and the CNI plugins and flannel do not depend on the Kubernetes
// version.
const (
	// The newest containerd release: github.com/containerd/containerd/releases.
	containerdVersion = "v2.4.2"
	// script/setup/runc-version of containerd v2.4.2.
	runcVersion = "v1.5.2"
	// go.mod of containerd v2.4.2 (github.com/containernetworking/plugins).
	cniPluginsVersion = "v1.9.1"
	// The newest flannel release: github.com/flannel-io/flannel/releases.
	flannelVersion = "v0.28.4"
)

// binaries lists the published files, in the order in which a booting node needs their
// contents.
func binaries(kubernetes, crictl, arch string) []Binary {
	const github = "https://github.com/"
	dl := "https://dl.k8s.io/release/" + kubernetes + "/bin/linux/" + arch + "/"
	runc := github + "opencontainers/runc/releases/download/" + runcVersion + "/"
	containerd := github + "containerd/containerd/releases/download/" + containerdVersion +
		"/containerd-" + containerdVersion[1:] + "-linux-" + arch + ".tar.gz"
	plugins := github + "containernetworking/plugins/releases/download/" + cniPluginsVersion +
		"/cni-plugins-linux-" + arch + "-" + cniPluginsVersion + ".tgz"
	critools := github + "kubernetes-sigs/cri-tools/releases/download/" + crictl +
		"/crictl-" + crictl + "-linux-" + arch + ".tar.gz"
	return []Binary{
		{
			Name: "runc", Version: runcVersion,
			URL: runc + "runc." + arch, ChecksumURL: runc + "runc.sha256sum",
			Contents: Contents{Entry: "bin/runc"},
		},
		{
			Name: "containerd", Version: containerdVersion,
			URL: containerd, ChecksumURL: containerd + ".sha256sum",
			Contents: Contents{Members: []Member{
				{"bin/containerd", "bin/containerd"},
				{"bin/containerd-shim-runc-v2", "bin/containerd-shim-runc-v2"},
				{"bin/ctr", "bin/ctr"},
			}},
		},
		{
			Name: "kubelet", Version: kubernetes,
			URL: dl + "kubelet", ChecksumURL: dl + "kubelet.sha256",
			Contents: Contents{Entry: "bin/kubelet"},
		},
		{
			Name: "cni-plugins", Version: cniPluginsVersion,
			URL: plugins, ChecksumURL: plugins + ".sha256",
			Contents: Contents{Dir: "cni/"},
		},
		{
			Name: "kubectl", Version: kubernetes,
			URL: dl + "kubectl", ChecksumURL: dl + "kubectl.sha256",
			Contents: Contents{Entry: "bin/kubectl"},
		},
		{
			Name: "crictl", Version: crictl,
			URL: critools, ChecksumURL: critools + ".sha256",
			Contents: Contents{Members: []Member{{"crictl", "bin/crictl"}}},
			Optional: true,
		},
	}
}

// Optional lists the optional components.
func Optional() []string {
	var names []string
	for _, b := range binaries("", "", "") {
		if b.Optional {
			names = append(names, b.Name)
		}
	}
	return names
}

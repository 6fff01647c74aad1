package adoption

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/kubeletcheck"
	"airlift/installer/node"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/installer/runtimecheck"
)

const (
	socketAnnotation = "kubeadm.alpha.kubernetes.io/cri-socket"
	keepsContainerd  = "no command of Airlift changes containerd, runc or their configuration"
	shimAnswers      = "image-cri-shim answers only requests for images"
)

var runtimeChecks = []func(*view){
	refuse("RuntimeSocket", everywhere, when(func(v *view) bool { return isShim(v.socket()) }), "the kubelet starts containers through $socket", "container-runtime-endpoint",
		"Airlift imports images into containerd, and cannot do it through image-cri-shim", "set --container-runtime-endpoint=unix://"+config.ContainerdSocket+", and restart the kubelet"),
	refuse("ContainerRuntime", notShim, word(func(v *view) string { return v.Runtime.Other }), "the container runtime is $1", "$socket",
		"Airlift imports images only into containerd", "change the node to containerd, or keep upgrading it with the tool that made it"),
	refuse("ContainerRuntime", isContainerd, when(func(v *view) bool { return !v.Runtime.Info.CRI }), "containerd's CRI plugin is disabled", "$socket",
		"the kubelet cannot use it", `remove "cri" from disabled_plugins in `+render.ContainerdConfigPath+", and restart containerd"),
	refuse("ContainerRuntime", isContainerd, func(v *view) [][]string {
		return given(v.Runtime.Info.CRI && !v.Runtime.Info.Runtime.Ready, v.Runtime.Info.Runtime.Message)
	}, "containerd is not ready: $1", "$socket", "the node does not run pods", "see: journalctl -u containerd -e"),
	refuse("RuntimeSocket", notShim, func(v *view) [][]string {
		written := writtenSocket(v)
		return given(written != v.socket() && !isShim(written), written)
	}, "the kubelet uses $socket, and "+config.KubeletFlagsFile+" and "+config.KubeletConfigFile+" name $1", config.KubeletFlagsFile,
		"commands would use another runtime than the kubelet", "add --container-runtime-endpoint=unix://$socket to KUBELET_KUBEADM_ARGS there"),
	refuse("RuntimeSocket", everywhere, func(v *view) [][]string { return given(isShim(writtenSocket(v)), writtenSocket(v)) }, "the container runtime is $1 in kubeadm's files", config.KubeletFlagsFile,
		shimAnswers, "write unix://"+config.ContainerdSocket+" there"),
	refuse("RuntimeSocket", hasNode, func(v *view) [][]string {
		is := v.Cluster.Node.Annotations[socketAnnotation]
		return given(isShim(is), is)
	}, "the Node's annotation "+socketAnnotation+" is $1", "Node $node",
		shimAnswers, "kubectl annotate --overwrite node $node "+socketAnnotation+"=unix://"+config.ContainerdSocket),
	find("ContainerdVersion", everywhere, func(v *view) [][]string {
		old, works := preflight.OldRuntime(v.Runtime.Info.Version, minor(v.Target))
		return given(old, v.Runtime.Info.Version, v.Containerd.Exe, map[bool]string{true: "the upgrade warns of it", false: "the upgrade refuses it"}[works])
	}, "containerd $1 does not report its cgroup driver", "$2", "$3", "upgrade containerd to 2.0 or newer before the kubelet gets v1.38"),

	find("Containerd", containerdRuns, func(v *view) [][]string {
		exe := containerdBinary(v)
		what, hint := exe+" belongs to no package", "upgrade it as it was installed"
		if p, ok := v.Packages[exe]; ok {
			what, hint = fmt.Sprintf("%s belongs to %s", exe, p), "hold the package if its updates must not restart containerd: apt-mark hold "+p.Name
			if p.Manager == "rpm" {
				hint = "exclude the package if its updates must not restart containerd: exclude=" + p.Name + " in /etc/dnf/dnf.conf"
			}
			if p.Held {
				hint = ""
			}
		}
		return [][]string{{v.Runtime.Info.Version, what, cmp.Or(v.Units["containerd.service"].File, exe), hint}}
	}, "containerd $1: $2", "$3", keepsContainerd, "$4"),
	find("Containerd", containerdRuns, func(v *view) [][]string {
		return given(strings.HasSuffix(v.Containerd.Exe, deleted), containerdBinary(v))
	},
		"the containerd that runs is not the file $1: that was replaced or removed after its start", "$1", keepsContainerd, "restart it at a time of your choice: systemctl restart containerd"),
	find("ContainerdData", containerdRuns, func(v *view) [][]string {
		c, ok := containerdFile(v)
		data, where := cmp.Or(c.Root, node.ContainerdDir), containerdConfig(v)
		if root := last(kubeletcheck.ParseFlags(v.Containerd.Args), "root"); root != "" {
			data, where = root, "--root of containerd"
		}
		data = v.host.files.place(data)
		return given(ok && data != node.ContainerdDir, data, where)
	}, "containerd's data is in $1", "$2", "it stays there", ""),
	find("ContainerdPlugins", containerdRuns, when(func(v *view) bool {
		c, _ := containerdFile(v)
		return v.Runtime.Info.CRI && slices.ContainsFunc(c.DisabledPlugins, runtimecheck.IsCRI)
	}), "the configuration disables the CRI plugin, and the running containerd has it", "$containerd", "it is not changed: at its next start, containerd has no CRI, and the node stops working",
		`remove "cri" from disabled_plugins`),

	find("ContainerdFiles", isContainerd, func(v *view) [][]string { return containerdFiles(v, false) }, "$1", "$containerd", "after its next start, containerd would not serve this node; "+keepsContainerd, "$2"),
	find("ContainerdFiles", isContainerd, func(v *view) [][]string { return containerdFiles(v, true) }, "$1", "$containerd", keepsContainerd, "$2"),

	// containerd pins the image only under the configured name.
	find("SandboxImage", hasSandbox, func(v *view) [][]string {
		is := v.flag("pod-infra-container-image")
		return given(is != "" && is != v.Runtime.Info.SandboxImage, is)
	}, "the kubelet protects $1 from its garbage collection, and containerd uses $sandbox", config.KubeletFlagsFile,
		"the flag stays up to v1.34; "+keepsContainerd, "use one name for both: set sandbox_image in $containerd"),
	find("SandboxImage", hasSandbox, when(lacksSandbox), "containerd has no image $sandbox, which each pod needs", "$containerd", "the upgrade imports the pause image of its file, and gives it this name too", ""),
	find("SandboxImage", hasSandbox, when(func(v *view) bool {
		return !lacksSandbox(v) && !strings.HasPrefix(v.Runtime.Info.SandboxImage, config.DefaultImageRepository+"/")
	}), "the image of pods is $sandbox", "$containerd", "it stays; the upgrade imports its own pause image, and gives it this name too", ""),

	find("Registries", everywhere, func(v *view) [][]string {
		c, ok := containerdFile(v)
		if !ok || len(c.Mirrors) == 0 {
			return nil
		}
		end, hint := " in the file itself", "before you upgrade containerd to 2.2, write them to "+render.RegistriesDir
		if is, err := version.ParseGeneric(v.Runtime.Info.Version); err == nil && is.AtLeast(version.MustParseGeneric("2.2")) {
			end = ", which containerd 2.2 does not use together with its default config_path"
			hint = "write them to " + render.RegistriesDir + ", and set config_path to this one directory; test it: crictl pull IMAGE"
		}
		if c.RegistryDirs != "" {
			end = fmt.Sprintf(" and config_path = %q", c.RegistryDirs)
			hint = "use one of them: a directory for each registry below " + render.RegistriesDir + ", and no registry.mirrors; test it: crictl pull IMAGE"
		}
		return [][]string{{strings.Join(c.Mirrors, ", ") + end, hint}}
	}, "containerd's configuration has mirrors of $1", "$containerd", keepsContainerd, "$2"),

	refuse("ImageService", everywhere, func(v *view) [][]string { return imageService(v, false) }, "the kubelet asks $1 for images", "$2",
		"Airlift imports images into containerd, where the kubelet would not find them", "remove it, and restart the kubelet"),
	find("ImageService", everywhere, func(v *view) [][]string { return imageService(v, true) }, "the kubelet asks image-cri-shim for images", "$2",
		"it stays: image-cri-shim passes on what its registry does not have, so the kubelet finds what an upgrade imports. Keep image-cri-shim.service running",
		"to end it: give each image the name that pods use (ctr -n k8s.io images tag sealos.hub:5000/NAME NAME), then remove the setting there, and restart the kubelet"),

	find("Crictl", everywhere, func(v *view) (list [][]string) {
		c := v.host.document(render.CrictlConfigPath)
		for _, key := range []string{"runtime-endpoint", "image-endpoint"} {
			is, _ := c[key].(string)
			list = append(list, given(is != "" && socketOf(is) != v.socket(), key, is)...)
		}
		return list
	}, "$1 is $2", render.CrictlConfigPath, "no command of Airlift uses or changes the file", "set it to unix://$socket"),
	find("CNIPlugins", everywhere, func(v *view) [][]string {
		dirs := v.Runtime.Info.CNIBinDirs
		return given(len(dirs) > 0 && !slices.Contains(dirs, config.CNIBinDir), strings.Join(dirs, ", "))
	}, "containerd starts CNI plugins from $1", "$containerd", "they stay: an upgrade does not change the CNI plugins of this node", ""),
}

// socketOf returns the path in an endpoint. /var/run is a link to /run.
func socketOf(endpoint string) string {
	file := path.Clean(strings.TrimPrefix(endpoint, "unix://"))
	if rest, ok := strings.CutPrefix(file, "/var/run/"); ok {
		return "/run/" + rest
	}
	return file
}

// socket returns the path of the socket that the running kubelet uses for containers.
func (v *view) socket() string {
	return socketOf(cmp.Or(v.flag("container-runtime-endpoint"), v.field("containerRuntimeEndpoint"), config.ContainerdSocket))
}

// writtenSocket returns the socket in the files that Airlift's commands read.
func writtenSocket(v *view) string {
	written := last(v.kubelet.written(), "container-runtime-endpoint")
	for _, file := range []string{config.KubeletConfigFile, render.KubeletInstanceConfigPath} {
		is, _ := v.host.document(file)["containerRuntimeEndpoint"].(string)
		written = cmp.Or(written, is)
	}
	return socketOf(cmp.Or(written, config.ContainerdSocket))
}

// isShim reports whether a socket belongs to sealos' image-cri-shim, which changes the names of images.
func isShim(endpoint string) bool {
	return strings.Contains(path.Base(endpoint), "image-cri-shim")
}

// Scopes of the container runtime. Without a version, it was not read, and Unread has why.
func notShim(v *view) bool { return !isShim(v.socket()) }
func isContainerd(v *view) bool {
	return notShim(v) && v.Runtime.Other == "" && v.Runtime.Info.Version != ""
}
func containerdRuns(v *view) bool { return v.Containerd.Exe != "" }
func hasSandbox(v *view) bool     { return v.Runtime.Info.CRI && v.Runtime.Info.SandboxImage != "" }
func lacksSandbox(v *view) bool {
	return len(v.Runtime.Images) > 0 && !slices.Contains(v.Runtime.Images, v.Runtime.Info.SandboxImage)
}

func containerdBinary(v *view) string { return strings.TrimSuffix(v.Containerd.Exe, deleted) }

// containerdConfig is the path of containerd's configuration.
func containerdConfig(v *view) string {
	return store.ConfigFileOf(append([]string{"containerd"}, v.Containerd.Args...))
}

// containerdFile reads containerd's configuration.
func containerdFile(v *view) (store.ConfigFile, bool) {
	c, err := store.ReadConfigFile(v.host.files, containerdConfig(v))
	if err != nil {
		v.host.cannotRead(containerdConfig(v), err)
	}
	return c, err == nil
}

// containerdFiles are the problems with files that containerd reads at its next start, or the warnings.
func containerdFiles(v *view, warnings bool) (list [][]string) {
	for _, p := range v.Runtime.Files {
		if p.Warning == warnings {
			list = append(list, []string{p.Message, p.Fix})
		}
	}
	return list
}

// imageService is an image service other than the container runtime, and where it is set: image-cri-shim, or another one.
func imageService(v *view, shim bool) [][]string {
	is, where := v.flag("image-service-endpoint"), "--image-service-endpoint"
	if is == "" {
		is, where = v.field("imageServiceEndpoint"), "imageServiceEndpoint in "+v.sourceOf("imageServiceEndpoint")
	}
	return given(is != "" && socketOf(is) != v.socket() && isShim(is) == shim, is, where)
}

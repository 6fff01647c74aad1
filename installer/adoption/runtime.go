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
	"airlift/installer/kubelet"
	"airlift/installer/node"
	"airlift/installer/preflight"
	"airlift/installer/render"
)

// socketOf returns the path in an endpoint. /var/run is a link to /run.
func socketOf(endpoint string) string {
	file := path.Clean(strings.TrimPrefix(endpoint, "unix://"))
	if rest, ok := strings.CutPrefix(file, "/var/run/"); ok {
		return "/run/" + rest
	}
	return file
}

// RuntimeSocket returns the path of the socket that the running kubelet uses for containers. It needs Root and Kubelet.
func (in Input) RuntimeSocket() string { return newHostView(in).socket() }

// newHostView returns a view without the cluster.
func newHostView(in Input) *view {
	in.Cluster = nil
	return newView(in)
}

func (v *view) socket() string {
	return socketOf(cmp.Or(v.flag("container-runtime-endpoint"), v.field("containerRuntimeEndpoint"), config.ContainerdSocket))
}

// writtenSocket returns the socket in the files that Airlift's commands read.
func writtenSocket(v *view) string {
	written := last(preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", v.host.read(config.KubeletFlagsFile)), "container-runtime-endpoint")
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

// runtime refuses a container runtime that Airlift cannot use.
func runtime(v *view) {
	socket := v.socket()
	switch {
	case isShim(socket):
		v.refuse("RuntimeSocket", "the kubelet starts containers through "+socket, "container-runtime-endpoint", "Airlift imports images into containerd, and cannot do it through image-cri-shim",
			"set --container-runtime-endpoint=unix://"+config.ContainerdSocket+", and restart the kubelet")
	case v.Runtime.Other != "":
		v.refuse("ContainerRuntime", "the container runtime is "+v.Runtime.Other, socket, "Airlift imports images only into containerd", "change the node to containerd, or keep upgrading it with the tool that made it")
	case v.Runtime.Info.Version == "": // Unread has why
	case !v.Runtime.Info.CRI:
		v.refuse("ContainerRuntime", "containerd's CRI plugin is disabled", socket, "the kubelet cannot use it", `remove "cri" from disabled_plugins in `+render.ContainerdConfigPath+", and restart containerd")
	case !v.Runtime.Info.Runtime.Ready:
		v.refuse("ContainerRuntime", "containerd is not ready: "+v.Runtime.Info.Runtime.Message, socket, "the node does not run pods", "see: journalctl -u containerd -e")
	}
	if written := writtenSocket(v); !isShim(socket) && written != socket && !isShim(written) {
		v.refuse("RuntimeSocket", fmt.Sprintf("the kubelet uses %s, and %s and %s name %s", socket, config.KubeletFlagsFile, config.KubeletConfigFile, written), config.KubeletFlagsFile,
			"commands would use another runtime than the kubelet", "add --container-runtime-endpoint=unix://"+socket+" to KUBELET_KUBEADM_ARGS there")
	} else if isShim(written) {
		v.refuse("RuntimeSocket", "the container runtime is "+written+" in kubeadm's files", config.KubeletFlagsFile, "image-cri-shim answers only requests for images", "write unix://"+config.ContainerdSocket+" there")
	}
	if v.Cluster != nil && v.Cluster.Node != nil {
		if is := v.Cluster.Node.Annotations["kubeadm.alpha.kubernetes.io/cri-socket"]; isShim(is) {
			v.refuse("RuntimeSocket", "the Node's annotation kubeadm.alpha.kubernetes.io/cri-socket is "+is, "Node "+v.Cluster.Node.Name, "image-cri-shim answers only requests for images",
				"kubectl annotate --overwrite node "+v.Cluster.Node.Name+" kubeadm.alpha.kubernetes.io/cri-socket=unix://"+config.ContainerdSocket)
		}
	}
	if old, works := preflight.OldRuntime(v.Runtime.Info.Version, minor(v.Target)); old {
		effect := "the upgrade warns of it"
		if !works {
			effect = "the upgrade refuses it"
		}
		v.find("ContainerdVersion", "containerd "+v.Runtime.Info.Version+" does not report its cgroup driver", v.Containerd.Exe, effect, "upgrade containerd to 2.0 or newer before the kubelet gets v1.38")
	}
}

// configFileOf is the path of containerd's configuration.
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

const keepsContainerd = "no command of Airlift changes containerd, runc or their configuration"

// containerdSource reports where containerd comes from.
func containerdSource(v *view) {
	exe := strings.TrimSuffix(v.Containerd.Exe, deleted)
	if exe == "" {
		return
	}
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
	v.find("Containerd", fmt.Sprintf("containerd %s: %s", v.Runtime.Info.Version, what), cmp.Or(v.Units["containerd.service"].File, exe), keepsContainerd, hint)
	if strings.HasSuffix(v.Containerd.Exe, deleted) {
		v.find("Containerd", "the containerd that runs is not the file "+exe+": that was replaced or removed after its start", exe, keepsContainerd, "restart it at a time of your choice: systemctl restart containerd")
	}
	c, ok := containerdFile(v)
	if !ok {
		return
	}
	data, where := cmp.Or(c.Root, node.ContainerdDir), containerdConfig(v)
	if given := last(kubelet.ParseFlags(v.Containerd.Args), "root"); given != "" {
		data, where = given, "--root of containerd"
	}
	if data = v.host.files.place(data); data != node.ContainerdDir {
		v.find("ContainerdData", "containerd's data is in "+data, where, "it stays there", "")
	}
	if slices.ContainsFunc(c.DisabledPlugins, isCRI) && v.Runtime.Info.CRI {
		v.find("ContainerdPlugins", "the configuration disables the CRI plugin, and the running containerd has it", containerdConfig(v), "it is not changed: at its next start, containerd has no CRI, and the node stops working",
			`remove "cri" from disabled_plugins`)
	}
}

// isCRI reports whether a plugin is the CRI plugin, or a part of it.
func isCRI(plugin string) bool {
	return plugin == "cri" || plugin == "io.containerd.grpc.v1.cri" || strings.HasPrefix(plugin, "io.containerd.cri.v1.")
}

// sandbox reports the image of pods' sandboxes: containerd pins it only under the configured name.
func sandbox(v *view) {
	if !v.Runtime.Info.CRI {
		return
	}
	image := v.Runtime.Info.SandboxImage
	if given := v.flag("pod-infra-container-image"); given != "" && image != "" && given != image {
		v.find("SandboxImage", fmt.Sprintf("the kubelet protects %s from its garbage collection, and containerd uses %s", given, image), config.KubeletFlagsFile,
			"the flag stays up to v1.34; "+keepsContainerd, "use one name for both: set sandbox_image in "+containerdConfig(v))
	}
	if image != "" && len(v.Runtime.Images) > 0 && !slices.Contains(v.Runtime.Images, image) {
		v.find("SandboxImage", "containerd has no image "+image+", which each pod needs", containerdConfig(v), "the upgrade imports the pause image of its file, and gives it this name too", "")
	} else if image != "" && !strings.HasPrefix(image, config.DefaultImageRepository+"/") {
		v.find("SandboxImage", "the image of pods is "+image, containerdConfig(v), "it stays; the upgrade imports its own pause image, and gives it this name too", "")
	}
}

// registries reports mirrors that containerd 2.2 does not use.
func registries(v *view) {
	c, ok := containerdFile(v)
	if !ok || len(c.Mirrors) == 0 {
		return
	}
	is, err := version.ParseGeneric(v.Runtime.Info.Version)
	switch {
	case c.RegistryDirs != "":
		v.find("Registries", fmt.Sprintf("containerd's configuration has mirrors of %s and config_path = %q", strings.Join(c.Mirrors, ", "), c.RegistryDirs), containerdConfig(v),
			keepsContainerd, "use one of them: a directory for each registry below "+render.RegistriesDir+", and no registry.mirrors; test it: crictl pull IMAGE")
	case err == nil && is.AtLeast(version.MustParseGeneric("2.2")):
		v.find("Registries", "containerd's configuration has mirrors of "+strings.Join(c.Mirrors, ", ")+", which containerd 2.2 does not use together with its default config_path", containerdConfig(v),
			keepsContainerd, "write them to "+render.RegistriesDir+", and set config_path to this one directory; test it: crictl pull IMAGE")
	default:
		v.find("Registries", "containerd's configuration has mirrors of "+strings.Join(c.Mirrors, ", ")+" in the file itself", containerdConfig(v), keepsContainerd,
			"before you upgrade containerd to 2.2, write them to "+render.RegistriesDir)
	}
}

// imageService reports an image service other than the container runtime.
func imageService(v *view) {
	is := cmp.Or(v.flag("image-service-endpoint"), v.field("imageServiceEndpoint"))
	if is == "" || socketOf(is) == v.socket() {
		return
	}
	where := "--image-service-endpoint"
	if v.flag("image-service-endpoint") == "" {
		where = "imageServiceEndpoint in " + v.sourceOf("imageServiceEndpoint")
	}
	if !isShim(is) {
		v.refuse("ImageService", "the kubelet asks "+is+" for images", where, "Airlift imports images into containerd, where the kubelet would not find them", "remove it, and restart the kubelet")
		return
	}
	v.find("ImageService", "the kubelet asks image-cri-shim for images", where,
		"it stays: image-cri-shim passes on what its registry does not have, so the kubelet finds what an upgrade imports. Keep image-cri-shim.service running",
		"to end it: give each image the name that pods use (ctr -n k8s.io images tag sealos.hub:5000/NAME NAME), then remove the setting there, and restart the kubelet")
}

// crictl reports crictl's configuration.
func crictl(v *view) {
	c := v.host.document(render.CrictlConfigPath)
	for _, key := range []string{"runtime-endpoint", "image-endpoint"} {
		if is, _ := c[key].(string); is != "" && socketOf(is) != v.socket() {
			v.find("Crictl", key+" is "+is, render.CrictlConfigPath, "no command of Airlift uses or changes the file", "set it to unix://"+v.socket())
		}
	}
}

// cniDirectory reports a directory of CNI plugins that is not the usual one.
func cniDirectory(v *view) {
	if dirs := v.Runtime.Info.CNIBinDirs; len(dirs) > 0 && !slices.Contains(dirs, config.CNIBinDir) {
		v.find("CNIPlugins", "containerd starts CNI plugins from "+strings.Join(dirs, ", "), containerdConfig(v), "they stay: an upgrade does not change the CNI plugins of this node", "")
	}
}

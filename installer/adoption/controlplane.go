package adoption

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"airlift/fault"
	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/kubelet"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/installer/staticpod"
)

// staticPods refuses files with which the kubelet starts something else than the control plane's components.
func staticPods(v *view) {
	files := map[string][]string{} // by the pod that they define
	for _, name := range sorted(v.pods) {
		p := v.pods[name]
		files[p.Namespace+"/"+p.Pod] = append(files[p.Namespace+"/"+p.Pod], name)
	}
	for _, pod := range sorted(files) {
		if len(files[pod]) > 1 {
			v.refuse("StaticPods", fmt.Sprintf("%s define the same pod %s", strings.Join(files[pod], " and "), pod), config.ManifestsDir,
				"the kubelet reads every file in the directory, also backups, and starts one of them", "move backups to another directory: mv "+strings.Join(backups(v.pods[files[pod][0]].Pod, files[pod]), " ")+" /root/")
		}
	}
	components := append([]string{node.EtcdPod}, node.ControlPlaneComponents...)
	for _, name := range sorted(v.pods) {
		p := v.pods[name]
		if slices.Contains(components, p.Pod) && p.Name != p.Pod && len(files[p.Namespace+"/"+p.Pod]) == 1 {
			v.refuse("StaticPods", name+" defines the pod "+p.Pod, config.ManifestsDir, "an upgrade writes "+p.Pod+".yaml, and there would be two", fmt.Sprintf("mv %s %s", path.Join(config.ManifestsDir, name), node.ManifestPath(p.Pod)))
		}
	}
	if !v.plane {
		return
	}
	for _, name := range node.ControlPlaneComponents {
		if v.component(name) == nil {
			v.refuse("StaticPods", "this control plane has no "+name+".yaml", config.ManifestsDir, "an upgrade replaces the static pods of kubeadm", "restore the file")
		}
	}
	if s := v.component("kube-apiserver"); s != nil && s.Flags["advertise-address"] == "" {
		v.refuse("StaticPods", "kube-apiserver has no flag --advertise-address", node.APIServerManifest, "the address of this control plane is not known: it is stored nowhere else", "add the flag")
	}
}

// backups are the paths of several files of a pod without its own; without the last one, if none has its name.
func backups(pod string, files []string) (paths []string) {
	own := pod + ".yaml"
	if !slices.Contains(files, own) {
		own = files[len(files)-1]
	}
	for _, f := range files {
		if f != own {
			paths = append(paths, fault.Word(path.Join(config.ManifestsDir, f)))
		}
	}
	return paths
}

// componentVersions reports components that do not have the stored version and image, and refuses those that are newer than the
// file. An upgrade that ended in the middle leaves both.
func componentVersions(v *view) {
	if !v.plane || v.config == nil {
		return
	}
	c := v.config
	repository := cmp.Or(c.ImageRepository, config.DefaultImageRepository)
	for _, name := range append([]string{node.EtcdPod}, node.ControlPlaneComponents...) {
		p := v.component(name)
		if p == nil {
			continue
		}
		in := repository
		if name == node.EtcdPod {
			in = cmp.Or(c.Etcd.Local.ImageRepository, repository)
		}
		image, _, _ := strings.Cut(p.Image, "@")
		slash := strings.LastIndex(image, "/")
		base, tag, _ := strings.Cut(image[slash+1:], ":")
		if stored := in + "/" + name; image[:slash+1]+base != stored {
			v.find("ImageNames", fmt.Sprintf("%s runs the image %s, and the stored configuration gives %s", name, p.Image, stored), node.ManifestPath(name), "an upgrade sets the stored name", "to keep the edit, store imageRepository first: kubectl -n kube-system edit configmap kubeadm-config")
		}
		is := tagVersion(tag)
		if name == node.EtcdPod || is == nil || tag == strings.ReplaceAll(c.KubernetesVersion, "+", "_") { // a tag cannot have a +
			continue
		}
		if stored, err := version.ParseGeneric(c.KubernetesVersion); err == nil && stored.EqualTo(is) { // another suffix
			v.find("ImageNames", fmt.Sprintf("%s runs the image %s, and the stored version is %s", name, p.Image, c.KubernetesVersion), node.ManifestPath(name), "an upgrade sets the stored name", "")
			continue
		}
		if target, err := version.ParseGeneric(v.Target); err == nil && target.LessThan(is) {
			v.refuse("KubernetesVersion", fmt.Sprintf("%s has v%s, and this file has %s", name, is, v.Target), node.ManifestPath(name), "an older file does not know the newer version", fmt.Sprintf("use a file of v%s or newer", is))
			continue
		}
		v.find("ComponentVersion", fmt.Sprintf("%s has v%s, and the stored configuration %s: an upgrade by another tool has not ended", name, is, c.KubernetesVersion), node.ManifestPath(name),
			"the upgrade replaces it", "end that upgrade first, on each node: kubeadm upgrade apply, or kubeadm upgrade node")
	}
}

// otherPods reports static pods that are not the control plane's components.
func otherPods(v *view) {
	components := append([]string{node.EtcdPod}, node.ControlPlaneComponents...)
	for _, name := range sorted(v.pods) {
		p := v.pods[name]
		if slices.Contains(components, p.Pod) {
			continue
		}
		file := path.Join(config.ManifestsDir, name)
		switch {
		case strings.HasPrefix(p.Pod, "kube-vip"):
			hint := ""
			for _, host := range sorted(invert(p.Volumes)) {
				if host == node.AdminConf {
					hint = "before you restore this control plane from a backup with v1.29 or newer, let it use " + node.SuperAdminConf + ": " + node.AdminConf + " has no rights at the beginning of an init"
				}
			}
			v.find("StaticPod", "kube-vip announces the endpoint's address", file, "it stays. It is not of Airlift's endpoint", hint)
		case strings.Contains(p.Pod, "lvscare"), strings.Contains(p.Pod, "haproxy"), strings.Contains(p.Pod, "nginx-proxy"), strings.Contains(p.Image, "haproxy"):
			v.find("StaticPod", p.Pod+" leads this node to the API servers", file, "it stays, also its list of API servers", "when you add or remove a control plane, change its configuration on every node")
		default:
			v.find("StaticPod", "a static pod "+p.Pod+" of its own", file, "it stays", "")
		}
	}
}

func invert(m map[string]string) map[string]bool {
	values := map[string]bool{}
	for _, value := range m {
		values[path.Clean(value)] = true
	}
	return values
}

// editedManifests compares the running components with the stored configuration: an upgrade writes what is stored.
func editedManifests(v *view) {
	if !v.plane || v.config == nil || v.config.LocalAPIEndpoint.AdvertiseAddress == "" {
		return
	}
	c := *v.config
	c.Images = map[string]string{}
	for _, name := range append([]string{node.EtcdPod}, node.ControlPlaneComponents...) {
		if p := v.component(name); p != nil {
			c.Images[name] = p.Image
		}
	}
	wanted, err := render.ControlPlane(&c, v.host.files)
	if err == nil && c.Etcd.External == nil && c.Images[node.EtcdPod] != "" {
		wanted[node.EtcdPod], err = render.Etcd(&c)
	}
	if err != nil {
		v.find("EditedManifests", "the static pods cannot be compared with the stored configuration: "+err.Error(), "ConfigMap "+kubeadmConfig, "the upgrade refuses it", "")
		return
	}
	for _, name := range sorted(wanted) {
		is := v.component(name)
		if is == nil {
			continue
		}
		data, err := render.YAML(wanted[name])
		if err != nil {
			v.host.cannotRead("ConfigMap "+kubeadmConfig, err)
			return
		}
		want, err := staticpod.Parse(name, data)
		if err != nil {
			v.host.cannotRead("ConfigMap "+kubeadmConfig, err)
			return
		}
		compareFlags(v, name, is, want)
		live := v.host.read(node.ManifestPath(name))
		var pod corev1.Pod
		if err := yaml.Unmarshal(live, &pod); err == nil {
			compareWords(v, name, pod.Spec, wanted[name].Spec)
		}
		has, err := readManifest(name, live)
		if err != nil {
			v.host.cannotRead(node.ManifestPath(name), err)
			continue
		}
		gets, err := readManifest(name, data)
		if err != nil {
			v.host.cannotRead("ConfigMap "+kubeadmConfig, err)
			return
		}
		compareManifest(v, name, has, gets)
	}
}

// compareWords reports what a component's command line has beyond one value for each flag.
func compareWords(v *view, name string, is, want corev1.PodSpec) {
	report := func(what string) {
		v.find("EditedManifests", name+" "+what+", which is not in the stored configuration", node.ManifestPath(name), "an upgrade removes it",
			"to keep it, write it as a patch, and give that to upgrade: --patches DIRECTORY")
	}
	for _, c := range is.Containers {
		if c.Name != name {
			continue
		}
		values := map[string][]string{}
		for _, arg := range append(c.Command[min(1, len(c.Command)):], c.Args...) {
			flag, value, is := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !is || !strings.HasPrefix(arg, "--") {
				if strings.HasPrefix(arg, "-") { // else it is the value of the one before, and may be secret
					form, _, _ := strings.Cut(arg, "=")
					report("runs with " + form + " in another form than --NAME=VALUE")
				}
				continue
			}
			values[flag] = append(values[flag], value)
		}
		for _, flag := range sorted(values) { // compare sees only the last one
			for _, value := range values[flag][:len(values[flag])-1] {
				if !slices.Contains(want.Containers[0].Command, "--"+flag+"="+value) {
					report("also runs with " + shown(config.Arg{Name: flag, Value: value}))
				}
			}
		}
	}
}

// ofMember are etcd's flags that depend on when its member was added.
var ofMember = []string{"initial-cluster", "initial-cluster-state"}

// compareFlags reports flags of a component that the stored configuration does not give it, and the other way around.
func compareFlags(v *view, name string, is, want *staticpod.Pod) {
	const hint = "to keep the edit, store it first: kubectl -n kube-system edit configmap kubeadm-config"
	for _, flag := range slices.Sorted(maps.Keys(merged(is.Flags, want.Flags))) {
		a, inPod := is.Flags[flag]
		b, stored := want.Flags[flag]
		where := node.ManifestPath(name)
		switch {
		case a == b && inPod == stored, slices.Contains(ofMember, flag):
		case !stored:
			v.find("EditedManifests", fmt.Sprintf("%s runs with %s, which is not in the stored configuration", name, shown(config.Arg{Name: flag, Value: a})), where, "an upgrade removes it", hint)
		case !inPod:
			v.find("EditedManifests", fmt.Sprintf("%s runs without %s, which the stored configuration has", name, shown(config.Arg{Name: flag, Value: b})), where, "an upgrade adds it", hint)
		default:
			v.find("EditedManifests", fmt.Sprintf("%s runs with %s, and the stored configuration gives %s", name, shown(config.Arg{Name: flag, Value: a}), shown(config.Arg{Name: flag, Value: b})), where, "an upgrade sets the stored value", hint)
		}
	}
}

// usual reports whether a directory is one that kubeadm of some version mounts.
func usual(host string) bool {
	return strings.HasPrefix(host, "/etc/pki") || strings.HasPrefix(host, "/usr/share/ca-certificates") || strings.HasPrefix(host, "/usr/local/share/ca-certificates") ||
		host == "/etc/ca-certificates" || host == "/etc/ssl/certs" || strings.HasPrefix(host, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec")
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return all
}

// componentGates reports feature gates of kubeadm that components get, and gates of kube-proxy that do not exist. An upgrade
// checks the flags of the other components.
func componentGates(v *view) {
	if v.stored == nil {
		return
	}
	sources := map[string]string{} // the value of feature-gates, by where it is
	for name, c := range map[string]config.Component{"apiServer": v.stored.APIServer.Component, "controllerManager": v.stored.ControllerManager, "scheduler": v.stored.Scheduler} {
		sources[name+".extraArgs in ConfigMap "+kubeadmConfig] = last(c.ExtraArgs, "feature-gates")
	}
	for _, name := range node.ControlPlaneComponents {
		if p := v.component(name); p != nil {
			sources[node.ManifestPath(name)] = p.Flags["feature-gates"]
		}
	}
	for _, where := range sorted(sources) {
		for _, gate := range sorted(gates(sources[where])) {
			if config.IsFeatureGate(gate) {
				v.find("FeatureGates", gate+" is a feature gate of kubeadm, and a component gets it", where, "a component of the new version does not start with it", "move it to featureGates of ClusterConfiguration, or remove it")
			}
		}
	}
	text := v.value(proxyConfig, "config.conf")
	if text == "" {
		return
	}
	enabled := map[string]bool{}
	all, _ := decode(v, "ConfigMap "+proxyConfig, text)["featureGates"].(map[string]any)
	for name, value := range all {
		enabled[name] = value == true
	}
	for _, p := range kubelet.GateProblems(v.Target, enabled) {
		if !p.Warning {
			v.find("FeatureGates", "kube-proxy: "+p.Message, "ConfigMap "+proxyConfig, "kube-proxy of the new version does not start with it", "remove it: kubectl -n kube-system edit configmap kube-proxy")
		}
	}
}

// gates returns the feature gates in a flag.
func gates(value string) map[string]bool {
	all := map[string]bool{}
	for item := range strings.SplitSeq(value, ",") {
		if name, on, ok := strings.Cut(item, "="); ok {
			all[strings.TrimSpace(name)] = strings.EqualFold(strings.TrimSpace(on), "true")
		}
	}
	return all
}

// imageNames reports names of images that differ from upstream's.
func imageNames(v *view) {
	if v.stored == nil {
		return
	}
	const where = "ConfigMap " + kubeadmConfig
	const effect = "an upgrade imports its images, and gives them names of this repository too: nothing is pulled"
	for field, repository := range map[string]string{
		"imageRepository": v.stored.ImageRepository, "dns.imageRepository": v.stored.DNS.ImageRepository, "etcd.local.imageRepository": v.stored.Etcd.Local.ImageRepository,
	} {
		if repository != "" && repository != config.DefaultImageRepository {
			v.find("ImageNames", field+" is "+repository, where, effect, "")
		}
	}
	for field, tag := range map[string]string{"dns.imageTag": v.stored.DNS.ImageTag, "etcd.local.imageTag": v.stored.Etcd.Local.ImageTag} {
		if tag != "" && !published(v, tag) {
			v.find("ImageNames", field+" is "+tag, where, "the upgrade refuses it, unless the file has an image with this tag", "remove it, or build a file with that image")
		}
	}
}

// published reports whether the new version has a component with this tag.
func published(v *view, tag string) bool {
	c, err := release.For(v.Target, "amd64", release.NoCNI, release.Versions{})
	return err == nil && slices.ContainsFunc(c.Images, func(i release.Image) bool { return strings.HasSuffix(i.Reference, ":"+tag) })
}

// newTag returns the tag of a component's image in the new version: "3.7.0-0"; "" if it is not known.
func newTag(v *view, component string) string {
	c, err := release.For(v.Target, "amd64", release.NoCNI, release.Versions{})
	if err != nil {
		return ""
	}
	for _, i := range c.Images {
		if i.Name == component {
			return i.Reference[strings.LastIndex(i.Reference, ":")+1:]
		}
	}
	return ""
}

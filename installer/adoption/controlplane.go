package adoption

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/kubeletcheck"
	"airlift/installer/node"
	"airlift/installer/patches"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// components are the static pods of a control plane.
var components = append([]string{node.EtcdPod}, node.ControlPlaneComponents...)

var controlPlaneChecks = []func(*view){
	refuse("StaticPods", everywhere, func(v *view) (list [][]string) {
		for pod, files := range podFiles(v) {
			if len(files) > 1 {
				list = append(list, []string{strings.Join(files, " and "), pod, strings.Join(backups(v.pods[files[0]].Pod, files), " ")})
			}
		}
		return list
	}, "$1 define the same pod $2", config.ManifestsDir,
		"the kubelet reads every file in the directory, also backups, and starts one of them", "move backups to another directory: mv $3 /root/"),
	refuse("StaticPods", everywhere, func(v *view) (list [][]string) {
		for name, p := range v.pods {
			if slices.Contains(components, p.Pod) && p.Name != p.Pod && len(podFiles(v)[p.Namespace+"/"+p.Pod]) == 1 {
				list = append(list, []string{name, p.Pod})
			}
		}
		return list
	}, "$1 defines the pod $2", config.ManifestsDir, "an upgrade writes $2.yaml, and there would be two", "mv "+config.ManifestsDir+"/$1 "+config.ManifestsDir+"/$2.yaml"),
	refuse("StaticPods", isPlane, each(func(v *view) []string {
		return slices.DeleteFunc(slices.Clone(node.ControlPlaneComponents), func(name string) bool { return v.component(name) != nil })
	}), "this control plane has no $1.yaml", config.ManifestsDir, "an upgrade replaces the static pods of kubeadm", "restore the file"),
	refuse("StaticPods", isPlane, when(func(v *view) bool {
		s := v.component("kube-apiserver")
		return s != nil && s.Flags["advertise-address"] == ""
	}), "kube-apiserver has no flag --advertise-address", node.APIServerManifest, "the address of this control plane is not known: it is stored nowhere else", "add the flag"),

	find("StaticPod", everywhere, func(v *view) (list [][]string) {
		for name, p := range v.pods {
			what, effect, hint := "a static pod "+p.Pod+" of its own", "it stays", ""
			switch {
			case slices.Contains(components, p.Pod):
				continue
			case strings.HasPrefix(p.Pod, "kube-vip"):
				what, effect = "kube-vip announces the endpoint's address", "it stays. It is not of Airlift's endpoint"
				for _, host := range p.Volumes {
					if path.Clean(host) == node.AdminConf {
						hint = "before you restore this control plane from a backup with v1.29 or newer, let it use " + node.SuperAdminConf + ": " + node.AdminConf + " has no rights at the beginning of an init"
					}
				}
			case strings.Contains(p.Pod, "lvscare"), strings.Contains(p.Pod, "haproxy"), strings.Contains(p.Pod, "nginx-proxy"), strings.Contains(p.Image, "haproxy"):
				what, effect = p.Pod+" leads this node to the API servers", "it stays, also its list of API servers"
				hint = "when you add or remove a control plane, change its configuration on every node"
			}
			list = append(list, []string{what, path.Join(config.ManifestsDir, name), effect, hint})
		}
		return list
	}, "$1", "$2", "$3", "$4"),
	editedManifests,
	// No part of the cluster names them.
	find("Patches", everywhere, func(v *view) (list [][]string) {
		for _, dir := range v.host.glob(config.KubernetesDir + "/*patch*") {
			targets := map[string]bool{}
			for _, file := range v.host.glob(dir + "/[^.]*") {
				targets[patches.Target(path.Base(file))] = true
			}
			delete(targets, "")
			list = append(list, single(strings.Join(sorted(targets), ", "), dir, fault.Word(dir))...)
		}
		return list
	}, "$2 has patches for $1", "$2", "an upgrade does not use them", "give them to each upgrade: --patches $3; with cluster.yaml: copy them to your machine, and name them in patches of the host"),
	componentVersions,

	// An upgrade checks the flags of the other components.
	find("FeatureGates", hasStored, func(v *view) (list [][]string) {
		sources := map[string]string{} // the value of feature-gates, by where it is
		for name, c := range map[string]config.Component{"apiServer": v.stored.APIServer.Component, "controllerManager": v.stored.ControllerManager, "scheduler": v.stored.Scheduler} {
			sources[name+".extraArgs in "+storedIn] = last(c.ExtraArgs, "feature-gates")
		}
		for _, name := range node.ControlPlaneComponents {
			if p := v.component(name); p != nil {
				sources[node.ManifestPath(name)] = p.Flags["feature-gates"]
			}
		}
		for where, value := range sources {
			for item := range strings.SplitSeq(value, ",") {
				name, _, is := strings.Cut(item, "=")
				if name = strings.TrimSpace(name); is && config.IsFeatureGate(name) {
					list = append(list, []string{name, where})
				}
			}
		}
		return list
	}, "$1 is a feature gate of kubeadm, and a component gets it", "$2", "a component of the new version does not start with it", "move it to featureGates of ClusterConfiguration, or remove it"),
	find("FeatureGates", hasStored, each(func(v *view) (list []string) {
		text := v.value(proxyConfig, "config.conf")
		if text == "" {
			return nil
		}
		enabled := map[string]bool{}
		all, _ := v.host.decode("ConfigMap "+proxyConfig, []byte(text))["featureGates"].(map[string]any)
		for name, value := range all {
			enabled[name] = value == true
		}
		for _, p := range kubeletcheck.GateProblems(v.Target, enabled) {
			if !p.Warning {
				list = append(list, p.Message)
			}
		}
		return list
	}), "kube-proxy: $1", "ConfigMap "+proxyConfig, "kube-proxy of the new version does not start with it", "remove it: kubectl -n kube-system edit configmap kube-proxy"),

	find("ImageNames", hasStored, func(v *view) (list [][]string) {
		for field, is := range map[string]string{
			"imageRepository": v.stored.ImageRepository, "dns.imageRepository": v.stored.DNS.ImageRepository, "etcd.local.imageRepository": v.stored.Etcd.Local.ImageRepository,
		} {
			if is != "" && is != config.DefaultImageRepository {
				list = append(list, []string{field, is})
			}
		}
		return list
	}, "$1 is $2", storedIn, "an upgrade imports its images, and gives them names of this repository too: nothing is pulled", ""),
	find("ImageNames", hasStored, func(v *view) (list [][]string) {
		for field, tag := range map[string]string{"dns.imageTag": v.stored.DNS.ImageTag, "etcd.local.imageTag": v.stored.Etcd.Local.ImageTag} {
			if tag != "" && !slices.ContainsFunc(newImages(v), func(i release.Image) bool { return strings.HasSuffix(i.Reference, ":"+tag) }) {
				list = append(list, []string{field, tag})
			}
		}
		return list
	}, "$1 is $2", storedIn, "the upgrade refuses it, unless the file has an image with this tag", "remove it, or build a file with that image"),
}

// podFiles are the names of the files of each static pod.
func podFiles(v *view) map[string][]string {
	files := map[string][]string{}
	for _, name := range sorted(v.pods) {
		pod := v.pods[name].Namespace + "/" + v.pods[name].Pod
		files[pod] = append(files[pod], name)
	}
	return files
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
	if !onPlane(v) {
		return
	}
	c := v.config
	for _, name := range components {
		p, where := v.component(name), node.ManifestPath(name)
		if p == nil {
			continue
		}
		in := cmp.Or(c.ImageRepository, config.DefaultImageRepository)
		if name == node.EtcdPod {
			in = cmp.Or(c.Etcd.Local.ImageRepository, in)
		}
		image, _, _ := strings.Cut(p.Image, "@")
		base, tag, _ := strings.Cut(path.Base(image), ":")
		if stored := in + "/" + name; image[:len(image)-len(path.Base(image))]+base != stored {
			v.find("ImageNames", fmt.Sprintf("%s runs the image %s, and the stored configuration gives %s", name, p.Image, stored), where, "an upgrade sets the stored name", "to keep the edit, store imageRepository first: "+editStored)
		}
		is := tagVersion(tag)
		if name == node.EtcdPod || is == nil || tag == strings.ReplaceAll(c.KubernetesVersion, "+", "_") { // a tag cannot have a +
			continue
		}
		stored, err := version.ParseGeneric(c.KubernetesVersion)
		sameNumber := err == nil && stored.EqualTo(is)
		target, err := version.ParseGeneric(v.Target)
		switch {
		case sameNumber: // another suffix
			v.find("ImageNames", fmt.Sprintf("%s runs the image %s, and the stored version is %s", name, p.Image, c.KubernetesVersion), where, "an upgrade sets the stored name", "")
		case err == nil && target.LessThan(is):
			v.refuse("KubernetesVersion", fmt.Sprintf("%s has v%s, and this file has %s", name, is, v.Target), where, "an older file does not know the newer version", fmt.Sprintf("use a file of v%s or newer", is))
		default:
			v.find("ComponentVersion", fmt.Sprintf("%s has v%s, and the stored configuration %s: an upgrade by another tool has not ended", name, is, c.KubernetesVersion), where,
				"the upgrade replaces it", "end that upgrade first, on each node: kubeadm upgrade apply, or kubeadm upgrade node")
		}
	}
}

// editedManifests compares the running components with the stored configuration: an upgrade writes what is stored.
func editedManifests(v *view) {
	if !onPlane(v) || v.config.LocalAPIEndpoint.AdvertiseAddress == "" {
		return
	}
	c := *v.config
	c.Images = map[string]string{}
	for _, name := range components {
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
		if v.component(name) == nil {
			continue
		}
		var gets manifest
		data, err := render.YAML(wanted[name])
		if err == nil {
			gets, err = readManifest(name, data)
		}
		if err != nil {
			v.host.cannotRead(storedIn, err)
			return
		}
		live := v.host.read(node.ManifestPath(name))
		var pod corev1.Pod
		if err := yaml.Unmarshal(live, &pod); err == nil {
			compareCommand(v, name, pod.Spec, wanted[name].Spec)
		}
		has, err := readManifest(name, live)
		if err != nil {
			v.host.cannotRead(node.ManifestPath(name), err)
			continue
		}
		compareManifest(v, name, has, gets)
	}
}

const (
	keepInStored = "to keep the edit, store it first: " + editStored
	keepAsPatch  = "to keep it, write it as a patch, and give that to upgrade: --patches DIRECTORY"
)

// edited reports an edit of a component, and what an upgrade does with it.
func (v *view) edited(component, what, effect, hint string) {
	v.find("EditedManifests", component+" "+what, node.ManifestPath(component), "an upgrade "+effect, hint)
}

// ofMember are etcd's flags that depend on when its member was added.
var ofMember = []string{"initial-cluster", "initial-cluster-state"}

// compareCommand reports flags of a component that the stored configuration does not give it, the other way around, and what its
// command line has beyond one value for each flag.
func compareCommand(v *view, name string, is, want corev1.PodSpec) {
	runs, gets := commandOf(name, is, func(form string) {
		v.edited(name, "runs with "+form+" in another form than --NAME=VALUE, which is not in the stored configuration", "removes it", keepAsPatch)
	}), commandOf(name, want, func(string) {})
	for _, flag := range union(runs, gets) {
		text := func(values []string) string {
			return shown(config.Arg{Name: flag, Value: values[len(values)-1]})
		}
		switch a, b := runs[flag], gets[flag]; {
		case slices.Contains(ofMember, flag):
		case len(b) == 0:
			v.edited(name, "runs with "+text(a)+", which is not in the stored configuration", "removes it", keepInStored)
		case len(a) == 0:
			v.edited(name, "runs without "+text(b)+", which the stored configuration has", "adds it", keepInStored)
		case a[len(a)-1] != b[len(b)-1]:
			v.edited(name, "runs with "+text(a)+", and the stored configuration gives "+text(b), "sets the stored value", keepInStored)
		}
		for i := 1; i < len(runs[flag]); i++ {
			if former := runs[flag][:i]; !slices.Contains(gets[flag], former[i-1]) {
				v.edited(name, "also runs with "+text(former)+", which is not in the stored configuration", "removes it", keepAsPatch)
			}
		}
	}
}

// commandOf returns the values of each flag of a component, and reports arguments in another form.
func commandOf(name string, pod corev1.PodSpec, other func(form string)) map[string][]string {
	values := map[string][]string{}
	for _, c := range pod.Containers {
		if c.Name != name {
			continue
		}
		for _, arg := range append(c.Command[min(1, len(c.Command)):], c.Args...) {
			form, value, is := strings.Cut(arg, "=")
			if is && strings.HasPrefix(arg, "-") {
				flag := strings.TrimLeft(form, "-")
				values[flag] = append(values[flag], value)
			}
			if strings.HasPrefix(arg, "-") && !(is && strings.HasPrefix(arg, "--")) { // else it may be the value of the one before, which may be secret
				other(form)
			}
		}
	}
	return values
}

// usual reports whether a directory is one that kubeadm of some version mounts.
func usual(host string) bool {
	return strings.HasPrefix(host, "/etc/pki") || strings.HasPrefix(host, "/usr/share/ca-certificates") || strings.HasPrefix(host, "/usr/local/share/ca-certificates") ||
		host == "/etc/ca-certificates" || host == "/etc/ssl/certs" || strings.HasPrefix(host, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec")
}

// union are the names in two maps, sorted.
func union[V any](a, b map[string]V) []string {
	all := slices.Sorted(slices.Values(slices.Concat(sorted(a), sorted(b))))
	return slices.Compact(all)
}

// newImages are the images of the new version; none if they are not known.
func newImages(v *view) []release.Image {
	c, err := release.For(v.Target, "amd64", release.NoCNI, release.Versions{})
	if err != nil {
		return nil
	}
	return c.Images
}

// newTag returns the tag of a component's image in the new version: "3.7.0-0"; "" if it is not known.
func newTag(v *view, component string) string {
	for _, i := range newImages(v) {
		if i.Name == component {
			return i.Reference[strings.LastIndex(i.Reference, ":")+1:]
		}
	}
	return ""
}

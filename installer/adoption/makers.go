package adoption

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/config"
)

// A mark is something that a tool leaves on the nodes that it makes: its form, and a name in it.
type mark struct{ form, name string }

// Forms of marks, as docs/adopt.md has them.
const (
	file       = "%s" // or a pattern, or two paths with " and " between them
	line       = "%q in /etc/hosts"
	hostName   = "%s in /etc/hosts"
	unit       = "the unit %s"
	unitsLike  = "units %s"
	label      = "the label %s of the Node"
	annotation = "the annotation %s of the Node"
	configMap  = "ConfigMap %s"
	deployment = "Deployment %s"
	createdBy  = "the annotation createdby: %s" // of a Service or the pods of a Deployment
	pkiLink    = "the link " + config.CertificatesDir + " to %s"
)

func (m mark) String() string { return fmt.Sprintf(m.form, m.name) }

// A maker is a tool that makes nodes. Two of its marks name it. A mark that another maker has too counts only together
// with one that no other has.
type maker struct {
	name  string
	marks []mark
	// reason is why its nodes cannot be adopted, and hint what to do instead; both are "" if they can.
	reason, hint string
}

// Kubeadm is the name of the maker of nodes without the marks of another one.
const Kubeadm = "kubeadm"

const (
	renewTimerUnit = "k8s-certs-renew.timer"
	ekco           = "kurl/ekc-operator"
	// memberCertificates are etcd's certificates that KubeKey 1 to 3 have from kubespray.
	memberCertificates = "/etc/ssl/etcd/ssl/member-*.pem"
	// Why nodes of some makers cannot be adopted.
	notKubeadm = "its control plane is not kubeadm's: there is no kubeadm-config, and no static pods that an upgrade could replace"
	moveHint   = "keep upgrading it with its own tool; or make a new cluster with ./install init, and move the workloads"
)

// makers are all makers except kubeadm. Where their marks are known from is in docs/adopt.md.
var makers = []maker{
	{name: "KubeKey", marks: []mark{
		{line, "# kubekey hosts BEGIN"}, {line, "# kubekey kubernetes control_plane_endpoint"}, {hostName, "lb.kubesphere.local"},
		{file, "/usr/local/bin/kube-scripts"}, {file, "/etc/modules-load.d/kubekey-br_netfilter.conf"}, {file, "/etc/kubekey/backup/kubernetes"},
		{unit, "backup-etcd.timer"}, {unit, renewTimerUnit}, {file, memberCertificates},
	}},
	{name: "kubespray", marks: []mark{
		{file, "/etc/kubernetes/kubelet.env and /etc/kubernetes/kubelet-config.yaml"}, {pkiLink, "/etc/kubernetes/ssl"}, {createdBy, "kubespray"},
		{deployment, "kube-system/dns-autoscaler"}, {unit, renewTimerUnit}, {file, memberCertificates},
	}},
	{name: "sealos", marks: []mark{
		{hostName, "apiserver.cluster.local"}, {hostName, "sealos.hub"}, {unit, "image-cri-shim.service"}, {unit, "registry.service"}, {file, config.ManifestsDir + "/kube-sealos-lvscare.yaml"},
	}},
	{name: "kURL", marks: []mark{{configMap, "kurl/kurl-current-config"}, {configMap, "kube-system/kurl-config"}, {deployment, ekco}, {label, "kurl.sh/cluster"}}},
	{name: "kubeone", marks: []mark{{label, "v1.kubeone.io/operating-system"}, {file, "/etc/kubeone"}, {deployment, "kube-system/machine-controller"}}},

	{"Cluster API", []mark{
		{annotation, "cluster.x-k8s.io/machine"}, {annotation, "cluster.x-k8s.io/cluster-name"}, {annotation, "cluster.x-k8s.io/owner-kind"}, {file, "/etc/kubernetes-version"},
	}, "a controller of the management cluster owns this machine: it replaces machines instead of upgrading them, and would undo changes",
		"upgrade it by changing its objects in the management cluster; if these no longer exist, remove the annotations: kubectl annotate node NAME cluster.x-k8s.io/machine- cluster.x-k8s.io/cluster-name- cluster.x-k8s.io/owner-kind-"},
	{"kubeasz", []mark{{file, "/opt/kube/bin"}, {unit, "kube-apiserver.service"}, {unit, "kube-lb.service"}}, notKubeadm + "; one CA signs for Kubernetes, etcd and the front proxy", moveHint},
	{"kube-ansible", []mark{{file, "/etc/etcd/config.yml"}, {file, "/etc/systemd/system/kubelet.service.d/10-kubelet.conf"}}, "its static pods are not kubeadm's, and its Kubernetes is too old", moveHint},
	{"embedded-cluster", []mark{{file, "/etc/embedded-cluster/ec.yaml"}, {file, "/var/lib/embedded-cluster"}}, "it is k0s: " + notKubeadm, moveHint},
	{"RKE2", []mark{{unit, "rke2-server.service"}, {unit, "rke2-agent.service"}, {file, "/etc/rancher/rke2"}, {file, "/var/lib/rancher/rke2"}}, notKubeadm, moveHint},
	{"k3s", []mark{{unit, "k3s.service"}, {unit, "k3s-agent.service"}, {file, "/var/lib/rancher/k3s"}}, notKubeadm, moveHint},
	{"k8e", []mark{{unit, "k8e.service"}, {file, "/var/lib/k8e"}}, notKubeadm, moveHint},
	{"k0s", []mark{{unit, "k0scontroller.service"}, {unit, "k0sworker.service"}, {file, "/var/lib/k0s"}}, notKubeadm, moveHint},
	{"MicroK8s", []mark{{unitsLike, "snap.microk8s.daemon-*"}, {file, "/var/snap/microk8s"}}, notKubeadm, moveHint},
	{"k8s-snap", []mark{{unitsLike, "snap.k8s.*"}, {file, "/var/snap/k8s/common"}}, notKubeadm, moveHint},
}

// Makers are the names of the makers whose nodes can be adopted.
func Makers() []string {
	names := []string{Kubeadm}
	for _, m := range makers {
		if m.reason == "" {
			names = append(names, m.name)
		}
	}
	return names
}

// unitDirs are the directories of unit files, in the order of systemd.unit(5): the first file of a name counts.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// marked reports whether the node has a mark.
func (v *view) marked(m mark) bool {
	var cluster Cluster
	if v.Cluster != nil {
		cluster = *v.Cluster
	}
	if cluster.Node == nil {
		cluster.Node = &corev1.Node{}
	}
	switch m.form {
	case line:
		return slices.ContainsFunc(strings.Split(v.host.text("/etc/hosts"), "\n"), func(is string) bool { return strings.HasPrefix(strings.TrimSpace(is), m.name) })
	case hostName:
		return v.host.inHosts(m.name)
	case unit:
		return has(v.Units, m.name)
	case unitsLike:
		return slices.ContainsFunc(unitDirs, func(dir string) bool { return len(v.host.glob(path.Join(dir, m.name))) > 0 })
	case label:
		return has(cluster.Node.Labels, m.name)
	case annotation:
		return has(cluster.Node.Annotations, m.name)
	case configMap:
		return cluster.ConfigMaps[m.name] != nil
	case deployment:
		return cluster.Deployments[m.name] != nil
	case createdBy:
		for _, s := range cluster.Services {
			if s.Annotations["createdby"] == m.name {
				return true
			}
		}
		for _, d := range cluster.Deployments {
			if d.Spec.Template.Annotations["createdby"] == m.name {
				return true
			}
		}
		return false
	case pkiLink:
		return v.host.files.place(config.CertificatesDir) == m.name && v.host.exists(m.name)
	}
	if strings.Contains(m.name, "*") {
		return len(v.host.glob(m.name)) > 0
	}
	return !slices.ContainsFunc(strings.Split(m.name, " and "), func(file string) bool { return !v.host.exists(file) })
}

func has[V any](m map[string]V, name string) bool { _, ok := m[name]; return ok }

// named returns the makers that marks name, sorted by name.
func named(seen map[mark]bool) (found []maker) {
	holders, own := map[mark][]string{}, map[string]int{} // own is the number of marks that no other maker has
	for _, m := range makers {
		for _, k := range m.marks {
			holders[k] = append(holders[k], m.name)
		}
	}
	for k := range seen {
		if len(holders[k]) == 1 {
			own[holders[k][0]]++
		}
	}
	for _, m := range makers {
		// A shared mark proves nothing if another maker that has it is named by its own marks.
		shared := slices.ContainsFunc(m.marks, func(k mark) bool {
			return seen[k] && len(holders[k]) > 1 && !slices.ContainsFunc(holders[k], func(o string) bool { return o != m.name && own[o] > 1 })
		})
		if own[m.name] > 1 || own[m.name] == 1 && shared {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b maker) int { return strings.Compare(a.name, b.name) })
	return found
}

// recogniseMaker decides which tool made the node.
func recogniseMaker(v *view) {
	seen := map[mark]bool{}
	for _, m := range makers {
		for _, k := range m.marks {
			if v.marked(k) {
				seen[k] = true
			}
		}
	}
	found, left, all := named(seen), map[string]bool{}, map[string]bool{}
	for k := range seen {
		left[k.String()] = true
	}
	var names []string
	for _, m := range found {
		its := map[string]bool{}
		for _, k := range m.marks {
			delete(left, k.String())
			if seen[k] {
				its[k.String()] = true
			}
		}
		maps.Copy(all, its)
		names = append(names, m.name)
		if m.reason != "" {
			v.stop = true
			v.refuse("Maker", m.name+" made this node: "+strings.Join(sorted(its), ", "), "this host", m.reason, m.hint)
		}
	}
	switch {
	case len(found) == 1:
		v.report.Maker = names[0]
	case v.stop:
	case len(found) > 1:
		v.refuse("Maker", "this node has marks of "+strings.Join(names, " and ")+": "+strings.Join(sorted(all), ", "), "this host",
			"their layouts differ, and it is not clear which one is in use", "remove what the earlier tool left")
	case v.value(kubeadmConfig, "ClusterConfiguration") != "" && v.host.exists(config.KubeletFlagsFile):
		v.report.Maker = Kubeadm
	default:
		v.refuse("Maker", "the tool that made this node is not known", "this host", "two marks name a tool, and there are not two of any. kubeadm's are ConfigMap "+kubeadmConfig+" and "+config.KubeletFlagsFile,
			"keep upgrading it with the tool that made it")
	}
	if v.stop {
		return
	}
	for _, text := range sorted(left) {
		v.find("Mark", "one mark of another tool: "+text, "this host", "none: one mark names no tool", "")
	}
}

// unitNames are the units whose state Read reads: marks, and the units that checks need.
func unitNames() []string {
	names := []string{kubeletUnitName, "containerd.service", "etcd.service", "kube-proxy.service", "keepalived.service", "haproxy.service"}
	for _, m := range makers {
		for _, k := range m.marks {
			if k.form == unit {
				names = append(names, k.name)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

package adoption

import (
	"maps"
	"path"
	"slices"
	"strings"

	"airlift/installer/config"
)

// A mark is something that a tool leaves on the nodes that it makes.
type mark struct {
	text string // what it is, for people: it identifies the mark
	has  func(*view) bool
	unit string // the unit whose existence it is; ""
}

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

// Why nodes of some makers cannot be adopted.
const (
	notKubeadm = "its control plane is not kubeadm's: there is no kubeadm-config, and no static pods that an upgrade could replace"
	moveHint   = "keep upgrading it with its own tool; or make a new cluster with ./install init, and move the workloads"
)

// makers are all makers except kubeadm. Where their marks are known from is in docs/adopt.md.
var makers = []maker{
	{name: "KubeKey", marks: []mark{
		line("/etc/hosts", "# kubekey hosts BEGIN"), line("/etc/hosts", "# kubekey kubernetes control_plane_endpoint"), hostName("lb.kubesphere.local"),
		file("/usr/local/bin/kube-scripts"), file("/etc/modules-load.d/kubekey-br_netfilter.conf"), file("/etc/kubekey/backup/kubernetes"),
		unit("backup-etcd.timer"), unit(renewTimerUnit), memberCertificates,
	}},
	{name: "kubespray", marks: []mark{
		{text: "/etc/kubernetes/kubelet.env and /etc/kubernetes/kubelet-config.yaml", has: func(v *view) bool {
			return v.host.exists("/etc/kubernetes/kubelet.env") && v.host.exists("/etc/kubernetes/kubelet-config.yaml")
		}},
		{text: "the link /etc/kubernetes/pki to /etc/kubernetes/ssl", has: func(v *view) bool {
			return v.host.files.place(config.CertificatesDir) == "/etc/kubernetes/ssl" && v.host.exists("/etc/kubernetes/ssl")
		}},
		{text: "the annotation createdby: kubespray", has: createdByKubespray},
		deployment("kube-system/dns-autoscaler"), unit(renewTimerUnit), memberCertificates,
	}},
	{name: "sealos", marks: []mark{
		hostName("apiserver.cluster.local"), hostName("sealos.hub"), unit("image-cri-shim.service"), unit("registry.service"), file(config.ManifestsDir + "/kube-sealos-lvscare.yaml"),
	}},
	{name: "kURL", marks: []mark{configMap("kurl/kurl-current-config"), configMap("kube-system/kurl-config"), deployment(ekco), label("kurl.sh/cluster")}},
	{name: "kubeone", marks: []mark{label("v1.kubeone.io/operating-system"), file("/etc/kubeone"), deployment("kube-system/machine-controller")}},

	{name: "Cluster API", marks: []mark{
		annotation("cluster.x-k8s.io/machine"), annotation("cluster.x-k8s.io/cluster-name"), annotation("cluster.x-k8s.io/owner-kind"), file("/etc/kubernetes-version"),
	}, reason: "a controller of the management cluster owns this machine: it replaces machines instead of upgrading them, and would undo changes",
		hint: "upgrade it by changing its objects in the management cluster; if these no longer exist, remove the annotations: kubectl annotate node NAME cluster.x-k8s.io/machine- cluster.x-k8s.io/cluster-name- cluster.x-k8s.io/owner-kind-"},
	{name: "kubeasz", marks: []mark{file("/opt/kube/bin"), unit("kube-apiserver.service"), unit("kube-lb.service")},
		reason: notKubeadm + "; one CA signs for Kubernetes, etcd and the front proxy", hint: moveHint},
	{name: "kube-ansible", marks: []mark{file("/etc/etcd/config.yml"), file("/etc/systemd/system/kubelet.service.d/10-kubelet.conf")},
		reason: "its static pods are not kubeadm's, and its Kubernetes is too old", hint: moveHint},
	{name: "embedded-cluster", marks: []mark{file("/etc/embedded-cluster/ec.yaml"), file("/var/lib/embedded-cluster")}, reason: "it is k0s: " + notKubeadm, hint: moveHint},
	{name: "RKE2", marks: []mark{unit("rke2-server.service"), unit("rke2-agent.service"), file("/etc/rancher/rke2"), file("/var/lib/rancher/rke2")}, reason: notKubeadm, hint: moveHint},
	{name: "k3s", marks: []mark{unit("k3s.service"), unit("k3s-agent.service"), file("/var/lib/rancher/k3s")}, reason: notKubeadm, hint: moveHint},
	{name: "k8e", marks: []mark{unit("k8e.service"), file("/var/lib/k8e")}, reason: notKubeadm, hint: moveHint},
	{name: "k0s", marks: []mark{unit("k0scontroller.service"), unit("k0sworker.service"), file("/var/lib/k0s")}, reason: notKubeadm, hint: moveHint},
	{name: "MicroK8s", marks: []mark{unitsLike("snap.microk8s.daemon-*"), file("/var/snap/microk8s")}, reason: notKubeadm, hint: moveHint},
	{name: "k8s-snap", marks: []mark{unitsLike("snap.k8s.*"), file("/var/snap/k8s/common")}, reason: notKubeadm, hint: moveHint},
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

const (
	renewTimerUnit = "k8s-certs-renew.timer"
	ekco           = "kurl/ekc-operator"
)

// memberCertificates are the names of etcd's certificates that KubeKey 1 to 3 have from kubespray.
var memberCertificates = mark{text: "/etc/ssl/etcd/ssl/member-*.pem", has: func(v *view) bool { return v.host.matches("/etc/ssl/etcd/ssl/member-*.pem") }}

func file(name string) mark {
	return mark{text: name, has: func(v *view) bool { return v.host.exists(name) }}
}

func line(name, text string) mark {
	return mark{text: "\"" + text + "\" in " + name, has: func(v *view) bool {
		for is := range strings.Lines(string(v.host.read(name))) {
			if strings.HasPrefix(strings.TrimSpace(is), text) {
				return true
			}
		}
		return false
	}}
}

func hostName(name string) mark {
	return mark{text: name + " in /etc/hosts", has: func(v *view) bool { return v.host.inHosts(name) }}
}

func unit(name string) mark {
	return mark{text: "the unit " + name, unit: name, has: func(v *view) bool { _, ok := v.Units[name]; return ok }}
}

func unitsLike(pattern string) mark {
	return mark{text: "units " + pattern, has: func(v *view) bool {
		return slices.ContainsFunc(unitDirs, func(dir string) bool { return v.host.matches(path.Join(dir, pattern)) })
	}}
}

// unitDirs are the directories of unit files, in the order of systemd.unit(5): the first file of a name counts.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

func label(name string) mark {
	return mark{text: "the label " + name + " of the Node", has: func(v *view) bool {
		return v.Cluster != nil && v.Cluster.Node != nil && has(v.Cluster.Node.Labels, name)
	}}
}

func annotation(name string) mark {
	return mark{text: "the annotation " + name + " of the Node", has: func(v *view) bool {
		return v.Cluster != nil && v.Cluster.Node != nil && has(v.Cluster.Node.Annotations, name)
	}}
}

func has(m map[string]string, name string) bool { _, ok := m[name]; return ok }

func configMap(name string) mark {
	return mark{text: "ConfigMap " + name, has: func(v *view) bool { return v.Cluster != nil && v.Cluster.ConfigMaps[name] != nil }}
}

func deployment(name string) mark {
	return mark{text: "Deployment " + name, has: func(v *view) bool { return v.Cluster != nil && v.Cluster.Deployments[name] != nil }}
}

// createdByKubespray reports whether a Service or the pods of a Deployment have kubespray's annotation.
func createdByKubespray(v *view) bool {
	const name, value = "createdby", "kubespray"
	if v.Cluster == nil {
		return false
	}
	for _, s := range v.Cluster.Services {
		if s.Annotations[name] == value {
			return true
		}
	}
	for _, d := range v.Cluster.Deployments {
		if d.Spec.Template.Annotations[name] == value {
			return true
		}
	}
	return false
}

// named returns the makers that marks name, sorted by name. seen reports whether a mark was found, by its text.
func named(seen func(text string) bool) (found []maker) {
	holders := map[string]int{} // of each mark
	for _, m := range makers {
		for _, k := range m.marks {
			holders[k.text]++
		}
	}
	own := func(m maker) (n int) {
		for _, k := range m.marks {
			if holders[k.text] == 1 && seen(k.text) {
				n++
			}
		}
		return n
	}
	// explained reports whether another maker that has a shared mark is named by its own marks.
	explained := func(m maker, text string) bool {
		return slices.ContainsFunc(makers, func(o maker) bool {
			return o.name != m.name && own(o) > 1 && slices.ContainsFunc(o.marks, func(k mark) bool { return k.text == text })
		})
	}
	for _, m := range makers {
		n := own(m)
		shared := slices.ContainsFunc(m.marks, func(k mark) bool { return holders[k.text] > 1 && seen(k.text) && !explained(m, k.text) })
		if n > 1 || n == 1 && shared {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b maker) int { return strings.Compare(a.name, b.name) })
	return found
}

// recogniseMaker decides which tool made the node.
func recogniseMaker(v *view) {
	marks := map[string]bool{}
	for _, m := range makers {
		for _, k := range m.marks {
			marks[k.text] = k.has(v)
		}
	}
	found := named(func(text string) bool { return marks[text] })
	refused := slices.DeleteFunc(slices.Clone(found), func(m maker) bool { return m.reason == "" })
	for _, m := range refused {
		v.stop = true
		v.refuse("Maker", m.name+" made this node: "+strings.Join(m.seen(marks), ", "), "this host", m.reason, m.hint)
	}
	switch {
	case len(refused) == 1 && len(found) == 1:
		v.report.Maker = refused[0].name
	case len(refused) > 0:
	case len(found) > 1:
		var names, all []string
		for _, m := range found {
			names, all = append(names, m.name), append(all, m.seen(marks)...)
		}
		v.refuse("Maker", "this node has marks of "+strings.Join(names, " and ")+": "+strings.Join(slices.Compact(slices.Sorted(slices.Values(all))), ", "), "this host",
			"their layouts differ, and it is not clear which one is in use", "remove what the earlier tool left")
	case len(found) == 1:
		v.report.Maker = found[0].name
	case v.value(kubeadmConfig, "ClusterConfiguration") != "" && v.host.exists(config.KubeletFlagsFile):
		v.report.Maker = Kubeadm
	default:
		v.refuse("Maker", "the tool that made this node is not known", "this host", "two marks name a tool, and there are not two of any. kubeadm's are ConfigMap "+kubeadmConfig+" and "+config.KubeletFlagsFile,
			"keep upgrading it with the tool that made it")
	}
	if v.stop {
		return
	}
	left := map[string]bool{}
	for _, m := range makers {
		for _, text := range m.seen(marks) {
			if !slices.ContainsFunc(found, func(o maker) bool { return slices.ContainsFunc(o.marks, func(k mark) bool { return k.text == text }) }) {
				left[text] = true
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(left)) {
		v.find("Mark", "one mark of another tool: "+text, "this host", "none: one mark names no tool", "")
	}
}

// seen returns the marks of a maker that were found, sorted.
func (m maker) seen(marks map[string]bool) (list []string) {
	for _, k := range m.marks {
		if marks[k.text] {
			list = append(list, k.text)
		}
	}
	slices.Sort(list)
	return list
}

// otherUnits are the units that checks need and that are no marks.
var otherUnits = []string{"kubelet.service", "containerd.service", "etcd.service", "kube-proxy.service", "keepalived.service", "haproxy.service"}

// UnitNames are the units whose state Read reads.
func UnitNames() []string {
	names := slices.Clone(otherUnits)
	for _, m := range makers {
		for _, k := range m.marks {
			if k.unit != "" {
				names = append(names, k.unit)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

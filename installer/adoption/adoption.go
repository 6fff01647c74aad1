// Package adoption recognises which tool made a node of a cluster, and how. It decides whether Airlift can
// take the node over, and finds what is odd there, with what an upgrade will do about it. Read gathers an
// Input from a host and its cluster; Recognise computes from it, and changes nothing.
package adoption

import (
	"cmp"
	"io/fs"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"airlift/images/store"
	"airlift/installer/etcd"
	"airlift/installer/host/ledger"
	"airlift/installer/host/systemd"
	"airlift/installer/runtimecheck"
)

// An Input is what is read of a host and its cluster. Its fields are data without side effects.
type Input struct {
	// Root is the host's root file system. Links in it are resolved below it.
	Root fs.FS
	// Kubelet and Containerd are the running processes; their PID is 0 if they do not run.
	Kubelet, Containerd Process
	// Units are the units that marks and checks need, and that systemd knows.
	Units map[string]systemd.UnitState
	// ReadOnly are directories to which an upgrade writes that are on a file system which is mounted read-only.
	ReadOnly []string
	// Packages are the packages that own files, by the path of the file.
	Packages map[string]Package
	// Runtime is what the container runtime reports.
	Runtime Runtime
	// Etcd are the members that the external etcd reports to a control plane.
	Etcd []etcd.Status
	// Served are the serial numbers, in hexadecimal, of the certificates that components of this host serve, by the path
	// of the certificate's file.
	Served map[string]string
	// Cluster is what the API returned; nil if it returned nothing.
	Cluster *Cluster
	// Target is the version of the file's Kubernetes: "v1.37.1".
	Target string
	Now    time.Time
	// Unread are the inputs that could not be read. Each is a refusal.
	Unread []Unread
}

// An Unread is an input that could not be read.
type Unread struct {
	What string // a path, an object or the state of a component
	Why  string
}

// A Process is a running process.
type Process struct {
	PID  int
	Exe  string   // path of its binary; "… (deleted)" if the file was replaced after its start
	Args []string // without the name of the binary
}

// A Package is the package that owns a file.
type Package struct {
	Name, Version string
	Manager       string // "dpkg" or "rpm"
	Held          bool   // its manager does not update it
	Diverted      bool   // the administrator moved its file elsewhere: dpkg-divert --local
}

// A Runtime is the container runtime that the kubelet uses.
type Runtime struct {
	Socket string // path
	// Other is the name of a runtime that is not containerd.
	Other string
	Info  store.Info
	// Images are the names of the images that it has.
	Images []string
	// Files are the problems with files that it reads at its next start.
	Files []runtimecheck.Problem
}

// A Cluster is what the API returned. Names of objects are "NAMESPACE/NAME".
type Cluster struct {
	// Node is this host's; nil if there is no Node of its name. Nodes are the names of all.
	Node  *corev1.Node
	Nodes []string
	// ConfigMaps, Services and Deployments are what recognition needs. DaemonSets are all of them.
	ConfigMaps  map[string]*corev1.ConfigMap
	Services    map[string]*corev1.Service
	Deployments map[string]*appsv1.Deployment
	DaemonSets  map[string]*appsv1.DaemonSet
	// APIGroups are the names of the groups that the API serves.
	APIGroups []string
	// Forbidden is what the kubelet of a worker may not read, by its plural: "daemonsets".
	Forbidden []string
}

// A Report is the result of Recognise.
type Report struct {
	// Maker is the tool that made the node, as in Makers; "" if it was not recognised.
	Maker string
	// Findings are odd, and Refusals are why the node cannot be adopted. Both are sorted.
	Findings, Refusals []Finding
	// Adoption is what the ledger gets, without Time.
	Adoption ledger.Adoption
}

// A Finding is something that differs from a node of kubeadm's or of Airlift's.
type Finding struct {
	Name   string `json:"name"`  // of the row in docs/adopt.md
	What   string `json:"what"`  // what was found
	Where  string `json:"where"` // the file, the unit or the object
	Effect string `json:"effect"`
	Hint   string `json:"hint,omitempty"`
}

// checks are all checks after the maker is known. They are independent of each other.
var checks = slices.Concat(kubeletChecks, flagChecks, runtimeChecks, controlPlaneChecks, certificateChecks, etcdChecks, clusterChecks, storedChecks)

// Recognise decides which tool made the node, and whether Airlift can take it over. The same input gives the
// same report.
func Recognise(in Input) Report {
	v := newView(in)
	recogniseMaker(v)
	if !v.stop {
		for _, check := range checks {
			check(v)
		}
		fillAdoption(v)
	}
	for _, u := range slices.Concat(in.Unread, v.host.unread) {
		v.refuse("Unreadable", u.What+" cannot be read", u.What, u.Why, "make it readable for root, or correct it, and run the same command again")
	}
	v.report.Findings, v.report.Refusals = ordered(v.report.Findings), ordered(v.report.Refusals)
	for _, f := range v.report.Findings {
		v.report.Adoption.Notes = append(v.report.Adoption.Notes, f.What)
	}
	return v.report
}

// ordered sorts findings, and removes repeated ones.
func ordered(list []Finding) []Finding {
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Where, b.Where), cmp.Compare(a.What, b.What), cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Hint, b.Hint))
	})
	return slices.Compact(list)
}

// Package images knows what a Kubernetes version is made of: which container
// images and which programs, at which versions, and where upstream publishes
// them. It only knows; nothing here reads the network, so the installer may
// import it too.
package images

import (
	"fmt"
	"slices"
	"strings"

	"airlift/fault"
)

// Pod networks a bundle can bring.
const (
	Flannel = "flannel"
	NoCNI   = "none"
)

// Names of the images. A bundle's manifest uses them as Image.Name.
const (
	Pause             = "pause"
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Proxy             = "kube-proxy"
	CoreDNS           = "coredns"
	// Flannel's image has the same name as the pod network: "flannel".
)

// An Image is one container image of the catalog.
type Image struct {
	Name      string // "kube-apiserver"
	Reference string // "registry.k8s.io/kube-apiserver:v1.29.15"
}

// A Binary is one published file that holds one or more programs.
type Binary struct {
	// Name is the component's name: "kubelet", "containerd", "cni-plugins".
	Name string
	// Version as its project writes it: "v1.29.15", "v2.4.2".
	Version string
	// URL is where upstream publishes the file; ChecksumURL is where it
	// publishes the file's sha256.
	URL, ChecksumURL string
	// Contents says which files become which payload entries.
	Contents Contents
	// Optional means that a bundle without it still installs a cluster.
	Optional bool
}

// Contents says what of a published file goes into a bundle, and where.
type Contents struct {
	// Entry is the payload entry ("bin/kubelet") of a file that is itself a
	// program. Empty for an archive.
	Entry string
	// Members maps the names inside a .tar.gz to payload entries, in the
	// order in which the payload has them.
	Members []Member
	// Folder, if set, takes every ELF file at the top of a .tar.gz into this
	// payload folder: "cni/".
	Folder string
}

// A Member is one file of an archive and the payload entry it becomes.
type Member struct{ Name, Entry string }

// A Catalog is everything a bundle holds for one Kubernetes version, apart
// from what a user adds. Both lists are in boot order.
type Catalog struct {
	Version  string // "v1.29.15"
	Arch     string // "amd64"
	CNI      string // Flannel or NoCNI
	Images   []Image
	Binaries []Binary
}

// Arches lists the architectures a bundle can be made for.
func Arches() []string { return []string{"amd64", "arm64"} }

// CNIs lists the pod networks a bundle can bring.
func CNIs() []string { return []string{Flannel, NoCNI} }

// Supported returns a usage error if a bundle cannot be made for that
// architecture or with that pod network.
func Supported(arch, cni string) error {
	if !slices.Contains(Arches(), arch) {
		return fault.New(fault.Usage, "known architectures: "+strings.Join(Arches(), ", "),
			"architecture %q is not known to this program", arch)
	}
	if !slices.Contains(CNIs(), cni) {
		return fault.New(fault.Usage, "known pod networks: "+strings.Join(CNIs(), ", "),
			"pod network %q is not known to this program", cni)
	}
	return nil
}

// For returns the catalog of a full Kubernetes version ("v1.29.15"), an
// architecture in Go's words and a pod network. What it does not know is a
// usage error that lists what it knows.
func For(version, arch, cni string) (*Catalog, error) {
	v, err := parse(version)
	if err != nil {
		return nil, err
	}
	m, ok := minors[v.minor]
	if !ok {
		return nil, fault.New(fault.Usage, "known minor versions: "+strings.Join(Known(), ", "),
			"kubernetes version %q is not known to this program", version)
	}
	if err := Supported(arch, cni); err != nil {
		return nil, err
	}
	own := m.at(v.patch)
	full := v.String()
	c := &Catalog{Version: full, Arch: arch, CNI: cni}
	for _, i := range []Image{
		{Pause, "registry.k8s.io/pause:" + own.pause},
		{Etcd, "registry.k8s.io/etcd:" + own.etcd},
		{APIServer, "registry.k8s.io/kube-apiserver:" + full},
		{ControllerManager, "registry.k8s.io/kube-controller-manager:" + full},
		{Scheduler, "registry.k8s.io/kube-scheduler:" + full},
		{Proxy, "registry.k8s.io/kube-proxy:" + full},
		{Flannel, "ghcr.io/flannel-io/flannel:" + flannelVersion},
		{CoreDNS, "registry.k8s.io/coredns/coredns:" + own.coredns},
	} {
		if i.Name != Flannel || cni == Flannel {
			c.Images = append(c.Images, i)
		}
	}
	c.Binaries = binaries(full, m.crictl, arch)
	return c, nil
}

// Known lists the minor versions of the catalog, oldest first: "v1.29", ….
func Known() []string {
	var known []string
	for minor := OldestMinor; minor <= NewestMinor; minor++ {
		known = append(known, fmt.Sprintf("v1.%d", minor))
	}
	return known
}

// Worker reports whether a worker node needs the catalog's image of that
// name. It needs all but the control plane's; a user's own images, whose
// names the catalog does not know, go to every node.
func Worker(name string) bool {
	switch name {
	case Etcd, APIServer, ControllerManager, Scheduler:
		return false
	}
	return true
}

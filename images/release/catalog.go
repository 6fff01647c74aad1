// Package release is the catalog of a Kubernetes version: its container images and
// binaries, their versions, and where upstream publishes them. It does not use the
// network, so the installer may import it.
package release

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"airlift/internal/fault"
)

// Pod networks that a bundle can have.
const (
	Flannel = "flannel"
	NoCNI   = "none"
)

// Names of images, used as Image.Name in a bundle's manifest.
const (
	Pause             = "pause"
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Proxy             = "kube-proxy"
	CoreDNS           = "coredns"
	// The image of the pod network flannel has the name of the pod network.
)

// An Image is one container image of the catalog.
type Image struct {
	Name      string // "kube-apiserver"
	Reference string // "registry.k8s.io/kube-apiserver:v1.29.15"
}

// A Binary is a published file with one or more binaries.
type Binary struct {
	// Name is the component's name: "kubelet", "containerd", "cni-plugins".
	Name string
	// Version is in the form that its project uses: "v1.29.15", "v2.4.2".
	Version string
	// URL is the URL of the published file, ChecksumURL the URL of its sha256.
	URL, ChecksumURL string
	// Contents maps its files to payload entries.
	Contents Contents
	// Optional means that a bundle without it can install a cluster.
	Optional bool
}

// Contents describes which files of a published file go into a bundle, and under which
// names.
type Contents struct {
	// Entry is the payload entry ("bin/kubelet") of a published file that is a
	// binary. It is empty for an archive.
	Entry string
	// Members maps the names in a .tar.gz to payload entries, in the order of the
	// payload.
	Members []Member
	// Dir, if set, is the payload directory, such as "cni/", for all ELF files at
	// the top level of a .tar.gz.
	Dir string
}

// A Member is a file of an archive and its payload entry.
type Member struct{ Name, Entry string }

// A Catalog lists everything in a bundle for one Kubernetes version, except the images
// that the user adds. Both lists are in boot order.
type Catalog struct {
	Version  string // "v1.29.15"
	Arch     string // "amd64"
	CNI      string // Flannel or NoCNI
	Images   []Image
	Binaries []Binary
	// Nearest is the nearest known release, "v1.29.15", if Version is newer than the
	// known ones. Otherwise it is empty.
	Nearest string
	// Assumed lists the components that are then assumed to be as in Nearest:
	// "etcd 3.5.16-0".
	Assumed []string
}

// Arches lists the supported architectures.
func Arches() []string { return []string{"amd64", "arm64"} }

// CNIs lists the supported pod networks.
func CNIs() []string { return []string{Flannel, NoCNI} }

// Supported returns a usage error if the architecture or the pod network is not
// supported.
func Supported(arch, cni string) error {
	if !slices.Contains(Arches(), arch) {
		return fault.New(fault.Usage, "architecture %q is not supported", arch).
			Hint("supported architectures: " + strings.Join(Arches(), ", "))
	}
	if !slices.Contains(CNIs(), cni) {
		return fault.New(fault.Usage, "pod network %q is not supported", cni).
			Hint("supported pod networks: " + strings.Join(CNIs(), ", "))
	}
	return nil
}

// For returns the catalog of a full Kubernetes version ("v1.29.15"), an architecture in
// Go's form ("amd64") and a pod network. given are versions of components, which a release
// that is newer than the known ones may need. For an unsupported value For returns a usage
// error with the supported ones.
func For(version, arch, cni string, given Versions) (*Catalog, error) {
	v, err := parse(version)
	if err != nil {
		return nil, err
	}
	own, assumed, err := v.versions(given)
	if err != nil {
		return nil, err
	}
	if err := Supported(arch, cni); err != nil {
		return nil, err
	}
	full := v.String()
	c := &Catalog{Version: full, Arch: arch, CNI: cni, Assumed: assumed}
	if near, newer := v.nearest(); newer {
		c.Nearest = near.String()
	}
	for _, i := range published(full, own) {
		if i.Name != Flannel || cni == Flannel {
			c.Images = append(c.Images, i)
		}
	}
	c.Binaries = binaries(full, own.Crictl, arch)
	return c, nil
}

const pauseRepository = "registry.k8s.io/pause"

// published lists the images of a version of Kubernetes and its components, in boot order, with the
// pod network flannel.
func published(version string, of Versions) []Image {
	return []Image{
		{Pause, pauseRepository + ":" + of.Pause},
		{Etcd, "registry.k8s.io/etcd:" + of.Etcd},
		{APIServer, "registry.k8s.io/kube-apiserver:" + version},
		{ControllerManager, "registry.k8s.io/kube-controller-manager:" + version},
		{Scheduler, "registry.k8s.io/kube-scheduler:" + version},
		{Proxy, "registry.k8s.io/kube-proxy:" + version},
		{Flannel, "ghcr.io/flannel-io/flannel:" + flannelVersion},
		{CoreDNS, "registry.k8s.io/coredns/coredns:" + of.CoreDNS},
	}
}

// Reserved reports whether a full reference is a tag of an image of Kubernetes or its pod network, of
// any version, or the image of an optional add-on. Nodes may use it for the cluster itself. A
// reference with a digest is not reserved, because it means the same content everywhere.
func Reserved(reference string) bool {
	for _, i := range published("", Versions{}) {
		repository, _, _ := strings.Cut(i.Reference, ":")
		if strings.HasPrefix(reference, repository+":") {
			return true
		}
	}
	return slices.ContainsFunc(addOns, func(a addOn) bool {
		return slices.ContainsFunc(a.versions, func(v addOnVersion) bool { return reference == a.repository+":"+v.version })
	})
}

// Nothing returns the catalog of a bundle without Kubernetes, for clusters of a full version
// and hosts of an architecture. The version may be newer than the known ones.
func Nothing(version, arch string) (*Catalog, error) {
	v, err := parse(version)
	if err == nil {
		err = v.supported()
	}
	if err == nil {
		err = Supported(arch, NoCNI)
	}
	return &Catalog{Version: v.String(), Arch: arch, CNI: NoCNI}, err
}

// Known lists the minor versions of the catalog, oldest first: "v1.29", ….
func Known() []string {
	var known []string
	for minor := OldestMinor; minor <= NewestMinor; minor++ {
		known = append(known, fmt.Sprintf("v1.%d", minor))
	}
	return known
}

// Newest is the newest minor version of the catalog: "v1.37".
func Newest() string { return fmt.Sprintf("v1.%d", NewestMinor) }

// NewestOf returns the newest release that the catalog has of a minor version:
// "v1.29.15" for "v1.29" and "stable-1.29". For anything else, such as "stable", it returns
// the newest release of all.
func NewestOf(version string) string {
	number := NewestMinor
	if m := minorVersion.FindStringSubmatch(version); m != nil {
		if n, _ := strconv.Atoi(m[1]); n >= OldestMinor && n <= NewestMinor {
			number = n
		}
	}
	return release{number, minors[number].newest}.String()
}

// Worker reports whether a worker node needs the image of this name. A worker needs all
// images but the images of the control plane. The user's images, which are not in the catalog,
// go to every node.
func Worker(name string) bool {
	switch name {
	case Etcd, APIServer, ControllerManager, Scheduler:
		return false
	}
	return true
}

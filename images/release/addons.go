package release

import (
	"fmt"
	"slices"
	"strings"

	"airlift/internal/fault"
)

// Names of the optional add-ons. A bundle has a manifest of the same name for each.
const (
	NetworkPolicy    = "network-policy"
	LocalPathStorage = "local-path-storage"
	MetricsServer    = "metrics-server"
	Ingress          = "ingress"
	LoadBalancer     = "load-balancer"
)

// IngressPorts are the ports of each node on which the add-on ingress serves HTTP and HTTPS.
var IngressPorts = []int{80, 443}

// VolumesDir is the directory on the hosts in which local-path-storage keeps volumes.
const VolumesDir = "/opt/local-path-provisioner"

// An AddOn is optional software for the cluster. A bundle contains it only if the user adds it.
type AddOn struct {
	Name    string `json:"name"`    // "metrics-server"
	Version string `json:"version"` // "v0.9.0"
	Image   string `json:"image"`   // its only image: "registry.k8s.io/metrics-server/metrics-server:v0.9.0"
	About   string `json:"about"`
}

// An addOn has the versions of an add-on, each from a minor version of Kubernetes on. They are
// sorted by it; older releases have no add-on of this name. Sources are the projects' own lists of
// supported versions.
type addOn struct {
	name, repository, about string
	versions                []addOnVersion
}

type addOnVersion struct {
	since   int // minor version of Kubernetes
	version string
}

// addOns is in the order in which init applies them: policies hold before other pods start.
var addOns = []addOn{
	{NetworkPolicy, "registry.k8s.io/networking/kube-network-policies",
		"enforces NetworkPolicy objects, with the pod network flannel (kube-network-policies)",
		[]addOnVersion{{OldestMinor, "v1.1.1"}}},
	{LocalPathStorage, "docker.io/rancher/local-path-provisioner",
		"the default StorageClass: volumes in a directory of the node (local-path-provisioner)",
		[]addOnVersion{{OldestMinor, "v0.0.30"}}},
	{MetricsServer, "registry.k8s.io/metrics-server/metrics-server",
		"the metrics API, for kubectl top and for autoscaling (metrics-server)",
		[]addOnVersion{{OldestMinor, "v0.7.2"}, {31, "v0.8.0"}, {34, "v0.9.0"}}},
	{Ingress, "docker.io/library/traefik",
		"the Gateway API and Ingress, on ports 80 and 443 of each node (Traefik)",
		[]addOnVersion{{31, "v3.7.13"}}}, // the Gateway API has rules in CEL with isIP
	// It is the command airlift of the node. The pause image only has a file system for it.
	{LoadBalancer, pauseRepository,
		"addresses for Services of type LoadBalancer, by ARP and NDP (Airlift's own)",
		[]addOnVersion{{OldestMinor, "v1"}}},
}

// AddOns lists the optional add-ons for a full Kubernetes version, in the order in which init
// applies them.
func AddOns(version string) ([]AddOn, error) {
	r, err := parse(version)
	if err != nil {
		return nil, err
	}
	var list []AddOn
	for _, a := range addOns {
		own := ""
		for _, v := range a.versions {
			if r.minor >= v.since {
				own = v.version
			}
		}
		tag := own
		if a.repository == pauseRepository {
			near, _ := r.nearest()
			if _, known := minors[near.minor]; !known {
				continue
			}
			tag = minors[near.minor].at(r.patch).Pause
		}
		if own != "" {
			list = append(list, AddOn{Name: a.name, Version: own, Image: a.repository + ":" + tag, About: a.about})
		}
	}
	return list, nil
}

// AddOnSince returns the oldest minor version of Kubernetes that an add-on supports, "v1.31".
func AddOnSince(name string) string {
	n := slices.IndexFunc(addOns, func(a addOn) bool { return a.name == name })
	return fmt.Sprintf("v1.%d", addOns[n].versions[0].since)
}

// AddOnNames lists the names of the optional add-ons.
func AddOnNames() (names []string) {
	for _, a := range addOns {
		names = append(names, a.name)
	}
	return names
}

// CheckAddOns returns a usage error if an add-on does not exist, or does not fit the pod network.
func CheckAddOns(names []string, cni string) error {
	for _, name := range names {
		if !slices.Contains(AddOnNames(), name) {
			return fault.New(fault.Usage, "add-on %q does not exist", name).Hint("known add-ons: " + strings.Join(AddOnNames(), ", "))
		}
	}
	if cni != Flannel && slices.Contains(names, NetworkPolicy) {
		return fault.New(fault.Usage, "the add-on %s is only for the pod network %s", NetworkPolicy, Flannel).
			Hint("remove it, and use the policies of your own pod network, or the pod network flannel")
	}
	return nil
}

package components

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Release is a Kubernetes release with the versions of its components.
type Release struct {
	Kubernetes string // "v1.29.15"
	Etcd       string // image tag, "3.5.16-0"; the part before the dash is etcd's own version
	CoreDNS    string // image tag, "v1.11.1"
	Pause      string // image tag, "3.9"
	Agnhost    string // image tag, test/utils/image/manifest.go of the release

	arm64 bool // cross-compiled
}

// For returns the release for another CPU architecture, "amd64" or "arm64".
func (r Release) For(arch string) (Release, error) {
	if arch != "amd64" && arch != "arm64" {
		return r, fmt.Errorf("unknown architecture %q; known: amd64 arm64", arch)
	}
	r.arm64 = arch == "arm64"
	return r, nil
}

// Arch is the CPU architecture of the release's components: amd64, unless For sets another one.
func (r Release) Arch() string {
	if r.arm64 {
		return "arm64"
	}
	return "amd64"
}

// Triplet is the name of an architecture in Debian's library directories and of its compiler.
func Triplet(arch string) string {
	return map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[arch]
}

// These do not depend on the Kubernetes release.
const (
	Containerd = "v2.4.2"
	Runc       = "v1.5.2" // containerd v2.4.2: script/setup/runc-version
	CNIPlugins = "v1.9.1" // containerd v2.4.2: go.mod
	Flannel    = "v0.28.4"

	// Optional add-ons.
	NetworkPolicies      = "v1.1.1"
	MetricsServer        = "v0.9.0"
	LocalPathProvisioner = "v0.0.30"
	Traefik              = "v3.7.13"

	// KubeRouter is a pod network that a site can carry. It is the last v2 that the Go module proxy serves.
	KubeRouter = "v2.1.0"

	// Distribution is a registry for tests.
	Distribution = "v3.1.2"

	// VersityGateway is a server of S3 for tests, with a directory as its storage.
	VersityGateway = "v1.8.0"

	// MetalLB is another load balancer, to compare the add-on with.
	MetalLB = "v0.16.2"
)

// releases has, for each minor version, a patch version of which the Go module proxy serves
// everything, or nearly everything, with the versions in its
// cmd/kubeadm/app/constants/constants.go.
var releases = []Release{
	{Kubernetes: "v1.29.15", Etcd: "3.5.16-0", CoreDNS: "v1.11.1", Pause: "3.9", Agnhost: "2.47"},
	{Kubernetes: "v1.30.4", Etcd: "3.5.12-0", CoreDNS: "v1.11.1", Pause: "3.9", Agnhost: "2.47"},
	{Kubernetes: "v1.31.14", Etcd: "3.5.24-0", CoreDNS: "v1.11.3", Pause: "3.10", Agnhost: "2.52"},
	{Kubernetes: "v1.32.13", Etcd: "3.5.24-0", CoreDNS: "v1.11.3", Pause: "3.10", Agnhost: "2.53"},
	{Kubernetes: "v1.33.13", Etcd: "3.5.24-0", CoreDNS: "v1.12.0", Pause: "3.10", Agnhost: "2.53"},
	{Kubernetes: "v1.34.4", Etcd: "3.6.5-0", CoreDNS: "v1.12.1", Pause: "3.10.1", Agnhost: "2.56"},
	{Kubernetes: "v1.35.4", Etcd: "3.6.6-0", CoreDNS: "v1.13.1", Pause: "3.10.1", Agnhost: "2.59"},
	{Kubernetes: "v1.36.3", Etcd: "3.6.8-0", CoreDNS: "v1.14.2", Pause: "3.10.2", Agnhost: "2.63.0"},
	{Kubernetes: "v1.37.1", Etcd: "3.7.0-0", CoreDNS: "v1.14.6", Pause: "3.10.2", Agnhost: "2.66.1"},
}

// patches are further patch versions of these minor versions, for what happens between two: a
// delta, an upgrade.
var patches = []Release{
	{Kubernetes: "v1.37.2", Etcd: "3.7.0-0", CoreDNS: "v1.14.6", Pause: "3.10.2", Agnhost: "2.66.1"},
}

// substitutes has, for a release, the modules that the module proxy does not serve, or whose
// checksum it does not serve, and their nearest available version with the same minor version. They
// are modules of the staging directory, and etcd's tools.
var substitutes = map[string]map[string]string{
	"v1.30.14": {"k8s.io/sample-apiserver": "v0.30.10"},
	"v1.31.14": {
		"go.etcd.io/etcd/etcdctl/v3":         "v3.5.21",
		"go.etcd.io/etcd/etcdutl/v3":         "v3.5.21",
		"k8s.io/cluster-bootstrap":           "v0.31.5",
		"k8s.io/cri-client":                  "v0.31.4",
		"k8s.io/csi-translation-lib":         "v0.31.12",
		"k8s.io/dynamic-resource-allocation": "v0.31.4",
		"k8s.io/endpointslice":               "v0.31.4",
		"k8s.io/kube-aggregator":             "v0.31.10",
		"k8s.io/kube-controller-manager":     "v0.31.4",
		"k8s.io/kube-proxy":                  "v0.31.5",
		"k8s.io/kube-scheduler":              "v0.31.10",
		"k8s.io/pod-security-admission":      "v0.31.12",
		"k8s.io/sample-apiserver":            "v0.31.4",
	},
	"v1.32.13": {
		"go.etcd.io/etcd/etcdctl/v3":     "v3.5.21",
		"go.etcd.io/etcd/etcdutl/v3":     "v3.5.21",
		"k8s.io/csi-translation-lib":     "v0.32.11",
		"k8s.io/endpointslice":           "v0.32.5",
		"k8s.io/kube-controller-manager": "v0.32.6",
		"k8s.io/kube-proxy":              "v0.32.7",
		"k8s.io/kube-scheduler":          "v0.32.10",
		"k8s.io/sample-apiserver":        "v0.32.5",
	},
	"v1.33.13": {
		"go.etcd.io/etcd/etcdctl/v3": "v3.5.21",
		"go.etcd.io/etcd/etcdutl/v3": "v3.5.21",
	},
	"v1.34.4": {"k8s.io/kube-proxy": "v0.34.2"}, // only types of its configuration
	"v1.35.6": {
		"k8s.io/externaljwt":      "v0.35.5",
		"k8s.io/kube-proxy":       "v0.35.5",
		"k8s.io/mount-utils":      "v0.35.4",
		"k8s.io/sample-apiserver": "v0.35.4",
	},
}

// sampleAPIServers has the tag of the sample API server's image that the tests of a release use,
// test/utils/image/manifest.go. The rig makes it for these releases.
var sampleAPIServers = map[string]string{
	"v1.37.1": "1.29.2",
}

// SampleAPIServer returns the tag of the sample API server's image, or "" if the rig does not make
// it for the release.
func (r Release) SampleAPIServer() string { return sampleAPIServers[r.Kubernetes] }

// Substitutes returns the modules of the release that are built from another patch version.
func (r Release) Substitutes() map[string]string { return substitutes[r.Kubernetes] }

// stagingSubstitutes returns the substitutes for modules of the staging directory; nil if there are
// none.
func (r Release) stagingSubstitutes() map[string]string {
	var of map[string]string
	for module, version := range r.Substitutes() {
		if strings.HasPrefix(module, "k8s.io/") {
			if of == nil {
				of = make(map[string]string)
			}
			of[module] = version
		}
	}
	return of
}

// Releases lists all releases, oldest first.
func Releases() []Release { return slices.Clone(releases) }

// Find returns the release for a version ("v1.29.15") or a minor ("v1.29").
func Find(version string) (Release, error) {
	var known []string
	for _, r := range append(Releases(), patches...) {
		if version == r.Kubernetes || version == r.Minor() {
			return r, nil
		}
		known = append(known, r.Kubernetes)
	}
	sort.Strings(known)
	return Release{}, fmt.Errorf("unknown version %q; known: %s", version, strings.Join(known, " "))
}

// Minor returns the release's minor, "v1.29".
func (r Release) Minor() string { return r.Kubernetes[:strings.LastIndexByte(r.Kubernetes, '.')] }

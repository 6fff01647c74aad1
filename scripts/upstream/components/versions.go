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
}

// These do not depend on the Kubernetes release.
const (
	Containerd = "v2.4.2"
	Runc       = "v1.5.2" // containerd v2.4.2: script/setup/runc-version
	CNIPlugins = "v1.9.1" // containerd v2.4.2: go.mod
	Flannel    = "v0.28.4"
)

// releases has, for each minor version, a patch version of which the Go module proxy serves
// everything, or nearly everything, with the versions in its
// cmd/kubeadm/app/constants/constants.go.
var releases = []Release{
	{"v1.29.15", "3.5.16-0", "v1.11.1", "3.9", "2.47"},
	{"v1.30.4", "3.5.12-0", "v1.11.1", "3.9", "2.47"},
	{"v1.31.14", "3.5.24-0", "v1.11.3", "3.10", "2.52"},
	{"v1.32.13", "3.5.24-0", "v1.11.3", "3.10", "2.53"},
	{"v1.33.13", "3.5.24-0", "v1.12.0", "3.10", "2.53"},
	{"v1.34.4", "3.6.5-0", "v1.12.1", "3.10.1", "2.56"},
	{"v1.35.4", "3.6.6-0", "v1.13.1", "3.10.1", "2.59"},
	{"v1.36.3", "3.6.8-0", "v1.14.2", "3.10.2", "2.63.0"},
	{"v1.37.1", "3.7.0-0", "v1.14.6", "3.10.2", "2.66.1"},
}

// substitutes has, for a release, the modules of its staging directory that the module proxy
// does not serve, and the nearest version of the same minor version that it serves.
var substitutes = map[string]map[string]string{
	"v1.30.14": {"k8s.io/sample-apiserver": "v0.30.10"},
	"v1.31.14": {
		"k8s.io/cri-client":              "v0.31.4",
		"k8s.io/csi-translation-lib":     "v0.31.12",
		"k8s.io/endpointslice":           "v0.31.4",
		"k8s.io/kube-controller-manager": "v0.31.5",
		"k8s.io/kube-proxy":              "v0.31.5",
		"k8s.io/kube-scheduler":          "v0.31.10",
		"k8s.io/sample-apiserver":        "v0.31.3",
	},
	"v1.32.13": {
		"k8s.io/cri-client":              "v0.32.10",
		"k8s.io/csi-translation-lib":     "v0.32.10",
		"k8s.io/endpointslice":           "v0.32.6",
		"k8s.io/kube-controller-manager": "v0.32.6",
		"k8s.io/kube-proxy":              "v0.32.7",
		"k8s.io/kube-scheduler":          "v0.32.10",
		"k8s.io/sample-apiserver":        "v0.32.5",
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

// Releases lists all releases, oldest first.
func Releases() []Release { return slices.Clone(releases) }

// Find returns the release for a version ("v1.29.15") or a minor ("v1.29").
func Find(version string) (Release, error) {
	var known []string
	for _, r := range releases {
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

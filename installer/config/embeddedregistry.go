package config

import (
	"fmt"
	"slices"
	"strings"

	"airlift/internal/documents"
)

// RegistryPort is the TCP port at which control planes serve the bundles that they keep, and the images in them.
const RegistryPort = 7444

// Where the cluster keeps the list of files, in kube-system.
const RegistryConfigMap, RegistryKey = "airlift-registry", "registry.yaml"

// EmbeddedRegistry is what the control planes of a cluster keep and serve. kubeadm has no fields for it: the cluster keeps
// it in an own ConfigMap.
type EmbeddedRegistry struct {
	// Used is set if the cluster has an embedded registry. One that was disabled stays in the cluster until all nodes have
	// removed their configuration.
	Used bool
	// Bundles are the files, in order of precedence: if two have an image with the same name, the first one decides.
	Bundles []KeptBundle
	// Images are the images that every node is to have on its disk, by reference.
	Images []string
	// Generation counts the changes that nodes follow. A node that follows one records its generation.
	Generation int
}

// A KeptBundle is a file that the control planes keep.
type KeptBundle struct {
	ID                string   `json:"id"`   // the sha256 of its trailer, in lower-case hex
	Size              int64    `json:"size"` // in bytes
	KubernetesVersion string   `json:"kubernetesVersion"`
	Platform          string   `json:"platform"` // "linux/amd64"
	ManifestSHA256    string   `json:"manifestSHA256"`
	Only              []string `json:"only,omitempty"` // of an additional bundle: images, manifests
	// Base is the manifestSHA256 of the file that has layers of its images, "" if it has all of them.
	Base string `json:"base,omitempty"`
	// Registries are the hosts in the names of its images: "registry.k8s.io".
	Registries []string `json:"registries,omitempty"`
}

// wireRegistry is an EmbeddedRegistry in its ConfigMap.
type wireRegistry struct {
	Generation int          `json:"generation,omitempty"`
	Disabled   bool         `json:"disabled,omitempty"`
	Bundles    []KeptBundle `json:"bundles"`
	Images     []string     `json:"images,omitempty"`
}

// Encode returns the registry as YAML.
func (r EmbeddedRegistry) Encode() ([]byte, error) {
	return documents.Encode("Registry", wireRegistry{r.Generation, !r.Used, append([]KeptBundle{}, r.Bundles...), r.Images})
}

// DecodeRegistry reads what Encode returns.
func DecodeRegistry(data []byte) (EmbeddedRegistry, error) {
	var w wireRegistry
	if err := documents.Decode(data, "Registry", &w); err != nil {
		return EmbeddedRegistry{}, err
	}
	for _, b := range w.Bundles {
		for _, host := range b.Registries { // each names a directory of a node
			if strings.Contains(host, "/") || strings.Trim(host, ".") == "" {
				return EmbeddedRegistry{}, fmt.Errorf("%q is not a registry", host)
			}
		}
	}
	return EmbeddedRegistry{Used: !w.Disabled, Bundles: w.Bundles, Images: w.Images, Generation: w.Generation}, nil
}

// Registries are the registries of all images in the files, sorted.
func (r EmbeddedRegistry) Registries() (hosts []string) {
	for _, b := range r.Bundles {
		hosts = append(hosts, b.Registries...)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Disable removes all files from the list. Nodes follow: they remove their configuration, and control planes their files.
func (r *EmbeddedRegistry) Disable() {
	if !r.Used {
		return
	}
	*r = EmbeddedRegistry{Generation: r.Generation + 1}
}

// Bring adds images that every node is to have. Nodes follow the change.
func (r *EmbeddedRegistry) Bring(images []string) {
	all := slices.Concat(r.Images, images)
	slices.Sort(all)
	if all = slices.Compact(all); !slices.Equal(all, r.Images) {
		r.Images = all
		r.Generation++
	}
}

// Forget removes images that every node was to have. Nodes keep what they have.
func (r *EmbeddedRegistry) Forget(images []string) {
	r.Images = slices.DeleteFunc(slices.Clone(r.Images), func(image string) bool { return slices.Contains(images, image) })
}

// Drop removes a file from the list. Nodes follow the change if no other file has images of its registries.
func (r *EmbeddedRegistry) Drop(id string) {
	before := r.Registries()
	r.Bundles = slices.DeleteFunc(slices.Clone(r.Bundles), func(b KeptBundle) bool { return b.ID == id })
	if !slices.Equal(before, r.Registries()) {
		r.Generation++
	}
}

// Prefer moves the files with Kubernetes of a version to the front.
func (r *EmbeddedRegistry) Prefer(version string) {
	r.Bundles = slices.Clone(r.Bundles)
	slices.SortStableFunc(r.Bundles, func(a, b KeptBundle) int {
		switch is, other := a.has(version), b.has(version); {
		case is == other:
			return 0
		case is:
			return -1
		}
		return 1
	})
}

// has reports whether a node with this version could have been installed from the file.
func (b KeptBundle) has(version string) bool {
	return len(b.Only) == 0 && b.KubernetesVersion == version
}

// Superseded returns the IDs of files with Kubernetes, except the first one, of which no node has the version, and no other
// file needs layers.
func (r EmbeddedRegistry) Superseded(versions []string) (ids []string) {
	first := true
	for _, b := range r.Bundles {
		switch {
		case len(b.Only) > 0:
		case first:
			first = false
		case slices.ContainsFunc(r.Bundles, func(other KeptBundle) bool { return other.Base == b.ManifestSHA256 && other.Base != "" }):
		case !slices.Contains(versions, b.KubernetesVersion):
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// Keep adds a file as the first one, unless it is in the list. Nodes follow the change if it has other registries.
func (r *EmbeddedRegistry) Keep(b KeptBundle) {
	if slices.ContainsFunc(r.Bundles, func(k KeptBundle) bool { return k.ID == b.ID }) {
		return
	}
	before := r.Registries()
	r.Bundles = append([]KeptBundle{b}, r.Bundles...)
	if !slices.Equal(before, r.Registries()) {
		r.Generation++
	}
}

package payload

import (
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/internal/fault"
)

// NeedsKubernetes refuses an additional bundle, which has no Kubernetes.
func (b *Bundle) NeedsKubernetes(command string) error { return NeedsKubernetes(b.Manifest, command) }

// NeedsKubernetes refuses the manifest of an additional bundle.
func NeedsKubernetes(m *bundle.Manifest, command string) error {
	if !m.Additional() {
		return nil
	}
	var use []string
	for _, only := range m.Only {
		switch only {
		case bundle.OnlyImages:
			use = append(use, "'import' on every node")
		case bundle.OnlyManifests:
			use = append(use, "'apply' on a control plane")
		}
	}
	return fault.New(fault.Usage, "this file has only %s and no Kubernetes: '%s' needs a full bundle", strings.Join(m.Only, " and "), command).
		Hint("use the file that installed the cluster; with this file, run " + strings.Join(use, ", then "))
}

// KubernetesVersion returns the version that the bundle has, or was built for.
func (b *Bundle) KubernetesVersion() string { return b.Manifest.KubernetesVersion }

// SiteImages returns the images that are not part of Kubernetes.
func (b *Bundle) SiteImages() []bundle.Image {
	return slices.DeleteFunc(slices.Clone(b.Manifest.Images), func(i bundle.Image) bool { return i.Name != i.Reference })
}

// HasID reports whether the bundle has an image, by the digest of its config.
func (b *Bundle) HasID(id string) bool {
	return slices.ContainsFunc(b.Manifest.Images, func(i bundle.Image) bool { return i.Config.Digest == id })
}

// Command returns a command of this bundle's file as a user types it.
func (b *Bundle) Command(verb string) string { return b.File.Path() + " " + verb }

// ApplyCommand returns the command that applies the bundle's manifests.
func (b *Bundle) ApplyCommand() string {
	if b.Manifest.Additional() {
		return b.Command("apply")
	}
	return "./install init phase manifests"
}

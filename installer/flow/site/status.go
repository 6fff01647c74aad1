package site

import (
	"slices"

	"airlift/bundle"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/status"
)

// Contents describes the bundle for the status of this host. version is the installer's.
func Contents(b *payload.Bundle, version string) status.Contents {
	c := status.Contents{
		Kubernetes: b.Manifest.KubernetesVersion, Airlift: version, Apply: b.ApplyCommand(), HasImage: b.HasImage,
		Images: func(kind string) []bundle.Image {
			r := phases.Worker
			if kind == node.ControlPlane {
				r = phases.FirstControlPlane
			}
			return slices.DeleteFunc(slices.Clone(b.Manifest.Images), func(i bundle.Image) bool { return !r.Needs(i.Name) })
		},
	}
	if !b.Manifest.Additional() {
		c.Packages = func(role string) []bundle.SitePackage { return phases.PackagesFor(b, role) }
	}
	for _, m := range b.Manifest.Manifests {
		c.Manifests = append(c.Manifests, b.ManifestOf(m))
	}
	return c
}

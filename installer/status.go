package installer

import (
	"slices"

	"airlift/bundle"
	"airlift/installer/status"
)

// Contents describes the bundle for the status of this host. version is the installer's.
func (b *Bundle) Contents(version string) status.Contents {
	c := status.Contents{
		Kubernetes: b.manifest.KubernetesVersion, Airlift: version, Apply: b.applyCommand(), HasImage: b.hasImage,
		Images: func(kind string) []bundle.Image {
			r := worker
			if kind == status.ControlPlane {
				r = firstControlPlane
			}
			return slices.DeleteFunc(slices.Clone(b.manifest.Images), func(i bundle.Image) bool { return !r.needs(i.Name) })
		},
	}
	for _, m := range b.manifest.Manifests {
		c.Manifests = append(c.Manifests, b.manifestOf(m))
	}
	return c
}

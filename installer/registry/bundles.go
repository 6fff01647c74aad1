package registry

import (
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/installer/config"
)

// ImagesPath is where the service lists the images that it serves: as JSON, a list of images.Served.
const ImagesPath = "/images"

// List is the answer of the service to GET /bundles, as JSON.
type List struct {
	Bundles []config.KeptBundle `json:"bundles"`
}

// Describe returns what the cluster stores about a file, thin or whole, which has the manifest m.
func Describe(f *bundle.File, m *bundle.Manifest) config.KeptBundle {
	k := config.KeptBundle{
		ID: f.ID(), Size: f.WholeSize(), KubernetesVersion: m.KubernetesVersion, Platform: m.Platform,
		ManifestSHA256: f.ManifestSHA256(), Only: m.Only,
	}
	if m.Base != nil {
		k.Base = m.Base.ManifestSHA256
	}
	for _, i := range m.Images {
		if full, err := release.Normalize(i.Reference); err == nil {
			host, _, _ := strings.Cut(full, "/")
			k.Registries = append(k.Registries, host)
		}
	}
	slices.Sort(k.Registries)
	k.Registries = slices.Compact(k.Registries)
	return k
}

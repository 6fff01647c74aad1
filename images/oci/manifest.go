package oci

import (
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/fault"
)

// ReadManifest reads an image's manifest and checks that all sizes in it are within the
// limits.
func ReadManifest(digest string, body []byte) (m v1.Manifest, err error) {
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("reading manifest %s: %w", digest, err)
	}
	if m.Config.Digest.Algorithm != "sha256" {
		return m, fmt.Errorf("manifest %s has no config, so it is not a container image", digest)
	}
	if m.Config.Size <= 0 || m.Config.Size > bundle.MaxDocument {
		return m, fmt.Errorf("reading manifest %s: the size of config %s is %d, not between 1 and %d", digest, m.Config.Digest, m.Config.Size, bundle.MaxDocument)
	}
	for _, l := range m.Layers {
		if l.Size <= 0 || l.Size > head.MaxEntry {
			return m, fmt.Errorf("reading manifest %s: the size of layer %s is %d, not between 1 and %d", digest, l.Digest, l.Size, int64(head.MaxEntry))
		}
	}
	return m, nil
}

// ReadConfig reads the config of an image for linux on arch and returns its layers, still
// without sizes. The manifest lists count layers.
//
// If the config is for another platform, the error is a *fetch.MissingError.
func ReadConfig(reference string, d bundle.Descriptor, body []byte, count int, arch string) ([]bundle.Layer, error) {
	if int64(len(body)) != d.Size {
		return nil, fmt.Errorf("config %s has %d bytes, but its descriptor lists %d", d.Digest, len(body), d.Size)
	}
	var cfg v1.ConfigFile
	if err := json.Unmarshal(body, &cfg); err != nil {
		return nil, fmt.Errorf("reading config %s: %w", d.Digest, err)
	}
	// Some tools omit the platform, and bundle verify would refuse the finished bundle.
	if cfg.OS == "" || cfg.Architecture == "" {
		return nil, fault.New(fault.Failure, "build the image again with a tool that sets both, for example: docker build --platform linux/"+arch,
			"config %s of %s has no os or no architecture, which OCI requires", d.Digest, reference)
	}
	if cfg.Architecture != arch || cfg.OS != "linux" {
		return nil, otherPlatform(reference, arch, []string{printable(cfg.OS + "/" + cfg.Architecture)})
	}
	if len(cfg.RootFS.DiffIDs) != count {
		return nil, fmt.Errorf("config %s lists %d layers, but the manifest lists %d", d.Digest, len(cfg.RootFS.DiffIDs), count)
	}
	var layers []bundle.Layer
	for _, id := range cfg.RootFS.DiffIDs {
		layers = append(layers, bundle.Layer{DiffID: id.String()})
	}
	return layers, nil
}

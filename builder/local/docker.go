package local

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/builder/oci"
	"airlift/bundle"
	"airlift/images/release"
)

// dockerFile lists the images of an archive of docker save.
const dockerFile = "manifest.json"

// oldDockerFile lists the names of images. Docker before version 1.10 wrote no manifest.json.
const oldDockerFile = "repositories"

// A dockerImage is an image of dockerFile. Config and Layers are names of files.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func findInDocker(f files, spec Spec) ([]candidate, error) {
	text, err := readSmall(f, dockerFile, bundle.MaxDocument)
	if err != nil {
		return nil, err
	}
	var all []dockerImage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.path(dockerFile), err)
	}
	var entries []entry
	for _, d := range all {
		var e entry
		for _, tag := range d.RepoTags {
			full, err := release.Normalize(tag)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", f.path(dockerFile), err)
			}
			e.full = append(e.full, full)
		}
		entries = append(entries, e)
	}
	choices, err := choose(entries, spec)
	if err != nil {
		return nil, err
	}
	var list []candidate
	for _, c := range choices {
		list = append(list, candidate{c.reference, all[c.entry].read})
	}
	return list, nil
}

// configName matches names of configs that have the digest of the content.
var configName = regexp.MustCompile(`^([0-9a-f]{64})(\.json)?$`)

// read puts the image into the cache. Its archive has no manifest, so read makes one, of
// uncompressed layers: it does not depend on a compressor.
func (d dockerImage) read(ctx context.Context, r *Reader, f files, img *bundle.Image) error {
	name := path.Clean(d.Config)
	config, err := readSmall(f, name, bundle.MaxDocument)
	if err != nil {
		return err
	}
	want := ""
	if m := configName.FindStringSubmatch(path.Base(name)); m != nil {
		want = m[1]
	}
	sum, size, err := r.Cache.Put(ctx, bytes.NewReader(config), want)
	if err != nil {
		return damaged(err, f.path(name))
	}
	img.Config = bundle.Descriptor{MediaType: string(types.DockerConfigJSON), Digest: "sha256:" + sum, Size: size}
	if img.Layers, err = oci.ReadConfig(img.Reference, img.Config, config, len(d.Layers), r.Arch); err != nil {
		return err
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.DockerManifestSchema2, Layers: []v1.Descriptor{},
		Config: v1.Descriptor{MediaType: types.DockerConfigJSON, Size: size, Digest: v1.Hash{Algorithm: "sha256", Hex: sum}}}
	for n := range img.Layers {
		layer := &img.Layers[n]
		name := path.Clean(strings.TrimPrefix(d.Layers[n], "/"))
		if err := r.store(ctx, f, name, "layer "+name, layer); err != nil {
			return err
		}
		digest, err := v1.NewHash(layer.DiffID)
		if err != nil {
			return err
		}
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: types.DockerUncompressedLayer, Size: layer.Size, Digest: digest})
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if img.Manifest, err = oci.Describe(body); err != nil {
		return err
	}
	img.Target = img.Manifest
	_, _, err = r.Cache.Put(ctx, bytes.NewReader(body), oci.Hex(img.Manifest.Digest))
	return err
}

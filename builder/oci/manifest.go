package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/builder/fetch"
	"airlift/bundle"
	"airlift/bundle/platform"
	"airlift/internal/fault"
)

// Resolve completes an image that has a reference and a target: it adds the indexes, the manifest
// and the config that nodes of linux on arch use, and the layers, still without sizes. It returns
// the manifest.
//
// If the image is not for the platform, the error is a *platform.MissingError.
func Resolve(ctx context.Context, from platform.Source, img *bundle.Image, arch string) (m v1.Manifest, err error) {
	target := ocispec.Descriptor{MediaType: img.Target.MediaType, Digest: digest.Digest(img.Target.Digest), Size: img.Target.Size}
	path, body, err := platform.Find(ctx, from, target, arch)
	if err != nil {
		return m, err
	}
	img.Manifest = descriptor(path.Manifest())
	for _, d := range path[1:max(len(path)-1, 1)] {
		img.Indexes = append(img.Indexes, descriptor(d))
	}
	if m, err = ReadManifest(img.Manifest.Digest, body); err != nil {
		return m, err
	}
	img.Config = Descriptor(m.Config)
	config, err := from.Config(ctx, ocispec.Descriptor{MediaType: img.Config.MediaType, Digest: digest.Digest(img.Config.Digest), Size: img.Config.Size})
	if err != nil {
		return m, err
	}
	if img.Layers, err = readConfig(img.Reference, img.Config, config, len(m.Layers), arch); err != nil {
		return m, err
	}
	for _, l := range m.Layers {
		if mediaType := string(l.MediaType); !platform.IsLayer(mediaType) {
			return m, notUnpacked(img.Reference, l.Digest.String(), mediaType, errors.New("containerd does not unpack this type"))
		}
	}
	return m, nil
}

// CheckLayers returns an error unless containerd can unpack all layers of the image that are in the cache. The
// cache may lack layers of a base.
func CheckLayers(ctx context.Context, cache *fetch.Cache, img *bundle.Image, inBase func(diffID string) bool) error {
	body, ok, err := cache.Read(ctx, Hex(img.Manifest.Digest))
	if err == nil && !ok {
		err = fmt.Errorf("the manifest %s of %s is not in the cache", img.Manifest.Digest, img.Reference)
	}
	if err != nil {
		return err
	}
	m, err := ReadManifest(img.Manifest.Digest, body)
	if err != nil {
		return err
	}
	for n, l := range img.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		file, err := cache.Open(Hex(l.DiffID))
		if errors.Is(err, fs.ErrNotExist) && inBase(l.DiffID) {
			continue
		}
		if err != nil {
			return err
		}
		err = bundle.CheckLayer(file)
		file.Close()
		if unread := (*fs.PathError)(nil); errors.As(err, &unread) {
			return fmt.Errorf("reading layer %s of %s: %w", l.DiffID, img.Reference, err)
		}
		if err != nil {
			return notUnpacked(img.Reference, m.Layers[n].Digest.String(), string(m.Layers[n].MediaType), err)
		}
	}
	return nil
}

// notUnpacked is the error for a layer with which the import would end at the site.
func notUnpacked(reference, digest, mediaType string, why error) error {
	hint := "use the image as it was before its conversion, or build it with layers that are tar archives, for example with docker build"
	if strings.HasSuffix(mediaType, "+encrypted") {
		hint = fmt.Sprintf("decrypt it first, for example with skopeo copy --decryption-key KEY docker://%[1]s oci-archive:app.tar:%[1]s, and use --image oci-archive:app.tar", reference)
	}
	return fault.New(fault.Failure, "image %s: layer %s of type %q cannot be unpacked: %w", reference, digest, mediaType, why).Hint(hint)
}

// Explain returns a *fetch.MissingError for a *platform.MissingError, and adds a hint to
// platform.ErrSchema1 and to platform.ErrSize.
func Explain(reference string, err error) error {
	var missing *platform.MissingError
	switch {
	case errors.As(err, &missing):
		return &fetch.MissingError{URL: reference, Why: missing.Error()}
	case errors.Is(err, platform.ErrSchema1):
		return fault.Wrap(err, fault.Failure, fmt.Sprintf("convert it, for example with skopeo copy --format oci docker://%[1]s oci-archive:app.tar:%[1]s, and use --image oci-archive:app.tar", reference))
	case errors.Is(err, platform.ErrSize):
		return fault.Wrap(fmt.Errorf("%s: %w", reference, err), fault.Failure, fmt.Sprintf("copy the image of one platform, for example with skopeo copy docker://%[1]s oci-archive:app.tar:%[1]s, and use --image oci-archive:app.tar", reference))
	}
	return err
}

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
		if l.Size <= 0 || l.Size > bundle.MaxEntry {
			return m, fmt.Errorf("reading manifest %s: the size of layer %s is %d, not between 1 and %d", digest, l.Digest, l.Size, int64(bundle.MaxEntry))
		}
	}
	return m, nil
}

// ReadConfig reads the config of an image for linux on arch and returns its layers, still
// without sizes. The manifest lists count layers.
//
// If the config is for another platform, the error is a *fetch.MissingError.
func ReadConfig(reference string, d bundle.Descriptor, body []byte, count int, arch string) ([]bundle.Layer, error) {
	layers, err := readConfig(reference, d, body, count, arch)
	return layers, Explain(reference, err)
}

func readConfig(reference string, d bundle.Descriptor, body []byte, count int, arch string) ([]bundle.Layer, error) {
	if int64(len(body)) != d.Size {
		return nil, fmt.Errorf("config %s has %d bytes, but its descriptor lists %d", d.Digest, len(body), d.Size)
	}
	if err := checkArtifact(reference, d.MediaType, body); err != nil {
		return nil, err
	}
	var cfg v1.ConfigFile
	if err := json.Unmarshal(body, &cfg); err != nil {
		return nil, fmt.Errorf("reading config %s: %w", d.Digest, err)
	}
	// Some tools omit the platform, and bundle verify would refuse the finished bundle.
	if cfg.OS == "" || cfg.Architecture == "" {
		return nil, fault.New(fault.Failure, "config %s of %s has no os or no architecture, which OCI requires", d.Digest, reference).
			Hint("build the image again with a tool that sets both, for example: docker build --platform linux/" + arch)
	}
	if !platform.Same(cfg.OS, cfg.Architecture, arch) {
		return nil, &platform.MissingError{Arch: arch, Has: []string{platform.Format(ocispec.Platform{OS: cfg.OS, Architecture: cfg.Architecture})}}
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

// helmConfig is the media type of the config of a Helm chart in a registry.
const helmConfig = "application/vnd.cncf.helm.config.v1+json"

// checkArtifact refuses artifacts that are stored like an image but are not images, such as charts.
// Some tools give configs of images another media type, so the content counts too.
func checkArtifact(reference, mediaType string, config []byte) error {
	var image struct {
		OS, Architecture string
		RootFS           json.RawMessage
	}
	_ = json.Unmarshal(config, &image) // the config of an artifact need not be JSON
	if image.OS != "" || image.Architecture != "" || image.RootFS != nil {
		return nil
	}
	switch mediaType {
	case string(types.DockerConfigJSON), string(types.OCIConfigJSON):
		return nil
	case helmConfig:
		return fault.New(fault.Usage, "%s is a Helm chart, not a container image", reference).
			Hint("list it in bundle.yaml as a chart with its oci:// URL, or download it with helm pull and use --images-from FILE")
	}
	return fault.New(fault.Usage, "%s is an artifact, not a container image: its config is of type %q", reference, mediaType).
		Hint("name an image of a container; a file can be added with files: in bundle.yaml")
}

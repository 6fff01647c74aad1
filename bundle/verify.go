package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"airlift/bundle/head"
	"airlift/fault"
	"airlift/images/platform"
)

// Verify reads the whole file and compares everything in it with its digest: the launcher,
// the compressed payload and every entry. Open has already compared the frames around the
// payload, so every byte of the file is checked. Then Verify checks that the index,
// manifest and config of every image match the bundle's manifest.
//
// Of a thin file, it compares the launcher, the installer and the manifest, which is all that is there.
//
// The error names the first damaged entry or part, and its place in the file. It carries
// fault.Bundle.
func (f *File) Verify(ctx context.Context, p Progress) error {
	if f.Thin() {
		return f.verifyHead(ctx)
	}
	if err := f.checkLauncher(ctx); err != nil {
		return err
	}
	s, err := f.stream(ctx, true)
	if err != nil {
		return err
	}
	defer s.Close()
	documents := imageDocuments(s.manifest)
	buf := make([]byte, 256<<10)
	for {
		e, r, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		document := documents[e.Name]
		for err == nil {
			var n int
			n, err = r.Read(buf)
			if document != nil {
				document.Write(buf[:n])
			}
			if p != nil && n > 0 {
				p(e, int64(n))
			}
		}
		if err != io.EOF {
			return err
		}
	}
	return checkImages(f, s.manifest, documents)
}

// imageDocuments returns a buffer, by entry name, for every index, manifest and config
// in m. Validate limits their sizes.
func imageDocuments(m *Manifest) map[string]*bytes.Buffer {
	docs := map[string]*bytes.Buffer{}
	for _, i := range m.Images {
		for _, d := range i.Documents() {
			docs[BlobName(d.Digest)] = new(bytes.Buffer)
		}
	}
	return docs
}

// checkImages follows every image from its target to its layers, through upstream's
// documents.
func checkImages(f *File, m *Manifest, documents map[string]*bytes.Buffer) error {
	for _, i := range m.Images {
		err := checkImage(i, m.Arch(), func(d Descriptor) []byte { return documents[BlobName(d.Digest)].Bytes() })
		if err != nil {
			return fault.New(fault.Bundle, "%s is inconsistent: image %q: %w", f.path, i.Reference, err).Hint(head.HintRebuild)
		}
	}
	return nil
}

func checkImage(i Image, arch string, content func(Descriptor) []byte) error {
	// The last two documents are the manifest and the config.
	for path := i.Documents(); len(path) > 2 && path[0] != i.Manifest; path = path[1:] {
		var index struct{ Manifests []Descriptor }
		if err := json.Unmarshal(content(path[0]), &index); err != nil {
			return fmt.Errorf("index %s: %w", path[0].Digest, err)
		}
		if !slices.Contains(index.Manifests, path[1]) {
			return fmt.Errorf("index %s does not list manifest %s", path[0].Digest, path[1].Digest)
		}
	}
	var manifest struct {
		Config Descriptor
		Layers []Descriptor
	}
	if err := json.Unmarshal(content(i.Manifest), &manifest); err != nil {
		return fmt.Errorf("manifest %s: %w", i.Manifest.Digest, err)
	}
	if manifest.Config != i.Config {
		return fmt.Errorf("manifest %s has config %s, not %s", i.Manifest.Digest, manifest.Config.Digest, i.Config.Digest)
	}
	var config struct {
		OS, Architecture string
		RootFS           struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(content(i.Config), &config); err != nil {
		return fmt.Errorf("config %s: %w", i.Config.Digest, err)
	}
	if !platform.Same(config.OS, config.Architecture, arch) {
		return fmt.Errorf("config %s is for %s/%s, not linux/%s", i.Config.Digest, config.OS, config.Architecture, arch)
	}
	var diffIDs []string
	for _, l := range i.Layers {
		diffIDs = append(diffIDs, l.DiffID)
	}
	if !slices.Equal(config.RootFS.DiffIDs, diffIDs) || len(manifest.Layers) != len(diffIDs) {
		return fmt.Errorf("config %s lists other layers", i.Config.Digest)
	}
	for n, l := range i.Layers {
		if c, listed := l.Compressed, manifest.Layers[n]; c != nil && (c.Digest != listed.Digest || c.Size != listed.Size) {
			return fmt.Errorf("manifest %s lists the layer %s, not %s", i.Manifest.Digest, listed.Digest, c.Digest)
		}
	}
	return nil
}

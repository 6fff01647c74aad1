package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"airlift/bundle/head"
	"airlift/bundle/platform"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// Verify reads the whole file and compares everything in it with its digest: the launcher,
// the compressed payload and every entry. Open has already compared the frames around the
// payload, so every byte of the file is checked. Then Verify checks that the index,
// manifest and config of every image match the bundle's manifest, and that containerd can unpack its layers.
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
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	// The stream verifies what it skips.
	s.Skip(func(e Entry) bool { return e.Name == ManifestName || e.Name == InstallerName })
	documents, layers := imageDocuments(m), imageLayers(m)
	buf := make([]byte, 256<<10)
	for {
		e, r, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		in := &interrupt.Input{Reader: r}
		if p != nil {
			in.Reader = io.TeeReader(r, interrupt.Meter(func(n int64) { p(e, n) }))
		}
		var rest io.Writer = struct{ io.Writer }{io.Discard}
		if document := documents[e.Name]; document != nil {
			rest = document
		}
		var notUnpacked error
		reference, isLayer := layers[e.Name]
		if isLayer {
			notUnpacked = CheckLayer(in)
		}
		_, _ = io.CopyBuffer(rest, in, buf)
		switch {
		case in.Err != nil: // it precedes what was made of the content
			return in.Err
		case notUnpacked != nil:
			return f.inconsistent("image %q: layer sha256:%s: %w", reference, e.SHA256, notUnpacked)
		}
	}
	return checkImages(f, m, documents)
}

// imageLayers returns the first image with the layer, by entry name.
func imageLayers(m *Manifest) map[string]string {
	layers := map[string]string{}
	for _, i := range slices.Backward(m.Images) {
		for _, l := range i.Layers {
			layers[BlobName(l.DiffID)] = i.Reference
		}
	}
	return layers
}

func (f *File) inconsistent(format string, args ...any) error {
	return fault.New(fault.Bundle, "%s is inconsistent: %w", f.path, fmt.Errorf(format, args...)).Hint(head.HintRebuild)
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
			return f.inconsistent("image %q: %w", i.Reference, err)
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
		c, listed := l.Compressed, manifest.Layers[n]
		if c != nil && (c.Digest != listed.Digest || c.Size != listed.Size) {
			return fmt.Errorf("manifest %s lists the layer %s, not %s", i.Manifest.Digest, listed.Digest, c.Digest)
		}
		if !platform.IsLayer(listed.MediaType) {
			return fmt.Errorf("manifest %s: layer %s is of type %q, which containerd does not unpack", i.Manifest.Digest, listed.Digest, listed.MediaType)
		}
	}
	return nil
}

package serve

import (
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/scripts/fixtures/fakesigstore"
	"airlift/scripts/oracle/upstream/image"
)

// Signed returns the content with the signatures that Kubernetes publishes: FILE.sig and
// FILE.cert on dl.k8s.io, and the tags sha256-HEX.sig on registry.k8s.io. It writes their blobs
// to dir.
func (c Content) Signed(s *fakesigstore.Sigstore, dir string) (Content, error) {
	files := maps.Clone(c.Files["dl.k8s.io"])
	for name, file := range c.Files["dl.k8s.io"] {
		if path.Ext(path.Base(name)) != "" { // a version or a checksum
			continue
		}
		f, err := fileWithSums(file.Path)
		if err != nil {
			return c, err
		}
		sum, err := hex.DecodeString(f.sha256)
		if err != nil {
			return c, err
		}
		sig, cert := s.FilesOf([32]byte(sum), fakesigstore.BinarySigner)
		files[name+".sig"], files[name+".cert"] = File{Data: sig}, File{Data: cert}
	}
	c.Files = maps.Clone(c.Files)
	c.Files["dl.k8s.io"] = files

	list := slices.Clone(c.Manifests["registry.k8s.io"])
	for _, m := range c.Manifests["registry.k8s.io"] {
		if len(m.Tags) == 0 {
			continue
		}
		signature, err := signatureOf(s, m, dir)
		if err != nil {
			return c, fmt.Errorf("signing %s: %w", m.Repository, err)
		}
		list = append(list, signature)
	}
	c.Manifests = maps.Clone(c.Manifests)
	c.Manifests["registry.k8s.io"] = list
	others := c.Blob
	c.Blob = func(h v1.Hash) string {
		if own := filepath.Join(dir, h.Hex); exists(own) {
			return own
		}
		return others(h)
	}
	return c, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// signatureOf returns the image with the signature of another, and writes its blobs to dir.
func signatureOf(s *fakesigstore.Sigstore, of image.Manifest, dir string) (image.Manifest, error) {
	img := s.Image("registry.k8s.io/"+of.Repository, of.Digest.String(), fakesigstore.ImageSigner)
	m := image.Manifest{Repository: of.Repository, Tags: []string{fakesigstore.Tag(of.Digest)}}
	var err error
	if m.Data, err = img.RawManifest(); err != nil {
		return m, err
	}
	if m.Digest, err = img.Digest(); err != nil {
		return m, err
	}
	if m.MediaType, err = img.MediaType(); err != nil {
		return m, err
	}
	config, err := img.ConfigName()
	if err != nil {
		return m, err
	}
	text, err := img.RawConfigFile()
	if err != nil {
		return m, err
	}
	if err := os.WriteFile(filepath.Join(dir, config.Hex), text, 0o644); err != nil {
		return m, err
	}
	layers, err := img.Layers()
	if err != nil {
		return m, err
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return m, err
		}
		r, err := l.Compressed()
		if err != nil {
			return m, err
		}
		content, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return m, err
		}
		if err := os.WriteFile(filepath.Join(dir, digest.Hex), content, 0o644); err != nil {
			return m, err
		}
	}
	return m, nil
}

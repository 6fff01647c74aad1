package ociarchive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"airlift/bundle"
	"airlift/bundle/blobs"
)

// Annotations that name an image in index.json.
const (
	containerdName = "io.containerd.image.name"          // of containerd and docker
	refName        = "org.opencontainers.image.ref.name" // of the specification
)

type descriptor struct {
	bundle.Descriptor
	Annotations map[string]string `json:"annotations"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type archive struct {
	tar     *tar.Writer
	written map[string]bool // digests
}

// Write writes images of a bundle to w. written counts bytes of layers; it may be nil.
//
// Of an index, the archive has the manifest of the bundle's platform only, like the archives of
// docker save and ctr images export.
func Write(ctx context.Context, w io.Writer, b *blobs.Bundle, images []bundle.Image, written func(int64)) error {
	if written == nil {
		written = func(int64) {}
	}
	documents, err := blobs.Documents(ctx, b.File, images)
	if err != nil {
		return err
	}
	var sources []*blobs.Source
	var docker []dockerImage
	seen := map[string]bool{}
	for _, i := range images {
		layers, err := blobs.Layers(b.File, i, documents[i.Manifest.Digest])
		if err != nil {
			return err
		}
		d := dockerImage{Config: blobPath(i.Config.Digest), RepoTags: []string{}, Layers: []string{}}
		if !strings.Contains(i.Reference, "@") {
			d.RepoTags = append(d.RepoTags, i.Reference)
		}
		for n, l := range layers {
			d.Layers = append(d.Layers, blobPath(l.Digest))
			if seen[l.Digest] {
				continue
			}
			seen[l.Digest] = true
			if s := b.Source(i.Reference, i.Layers[n], l); s != nil {
				sources = append(sources, s)
			}
		}
		docker = append(docker, d)
	}
	if err := b.Refusal("exported"); err != nil {
		return err
	}
	a := &archive{tar.NewWriter(w), map[string]bool{}}
	if err := a.add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	list := index{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json"}
	for _, i := range images {
		list.Manifests = append(list.Manifests, descriptor{i.Target, map[string]string{containerdName: i.Reference, refName: i.Reference}})
	}
	for _, document := range []struct {
		name    string
		content any
	}{{"index.json", list}, {"manifest.json", docker}} {
		text, err := json.Marshal(document.content)
		if err == nil {
			err = a.add(document.name, text)
		}
		if err != nil {
			return err
		}
	}
	for _, i := range images {
		for _, d := range i.Documents() {
			if err := a.blob(d.Digest, d.Size, bytes.NewReader(documents[d.Digest])); err != nil {
				return err
			}
		}
	}
	err = b.Make(ctx, sources, func(s *blobs.Source, content *io.SectionReader) error {
		written(s.Size)
		return a.blob(s.Digest, s.Size, content)
	})
	if err != nil {
		return err
	}
	return a.tar.Close()
}

// A dockerImage is an image of manifest.json, which docker load reads. skopeo finds images with
// docker's media types only there.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func blobPath(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }

func (a *archive) blob(digest string, size int64, content io.Reader) error {
	if a.written[digest] {
		return nil
	}
	a.written[digest] = true
	if err := a.header(blobPath(digest), size); err != nil {
		return err
	}
	_, err := io.Copy(a.tar, content)
	return err
}

func (a *archive) add(name string, content []byte) error {
	if err := a.header(name, int64(len(content))); err != nil {
		return err
	}
	_, err := a.tar.Write(content)
	return err
}

// header writes a header without a time and an owner, so that the same images give the same
// bytes.
func (a *archive) header(name string, size int64) error {
	return a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)})
}

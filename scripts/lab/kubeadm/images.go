package kubeadm

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/scripts/oracle/upstream/components"
	"airlift/scripts/oracle/upstream/image"
)

// Archive is an image as a file: an OCI layout in a tar, with the manifest and the gzip
// layers of a registry.
type Archive struct {
	Reference    string // "registry.k8s.io/pause:3.9"
	Path         string // on this machine
	ControlPlane bool   // only control planes use it
}

func (a Archive) remote() string { return path.Join("/root/images", filepath.Base(a.Path)) }

// archives writes the release's images that are not in the cache yet.
func archives(ctx context.Context, b *image.Builder, release components.Release) ([]Archive, error) {
	sites, err := b.Build(ctx, release)
	if err != nil {
		return nil, err
	}
	var list []Archive
	for host, manifests := range sites {
		for i, m := range manifests {
			// An index is followed by the manifest of the only platform of the rig.
			if !m.MediaType.IsIndex() || len(m.Tags) == 0 || i+1 >= len(manifests) {
				continue
			}
			a, err := writeArchive(b.Cache, host+"/"+m.Repository+":"+m.Tags[0], manifests[i+1], b.Store())
			if err != nil {
				return nil, err
			}
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b Archive) int { return strings.Compare(a.Reference, b.Reference) })
	return list, nil
}

func writeArchive(cache, reference string, m image.Manifest, store *image.Store) (Archive, error) {
	name := path.Base(m.Repository)
	a := Archive{
		Reference:    reference,
		Path:         filepath.Join(cache, "kubeadm", "images", name+"-"+m.Digest.Hex[:12]+".tar"),
		ControlPlane: name == "etcd" || strings.HasPrefix(name, "kube-") && name != "kube-proxy",
	}
	if _, err := os.Stat(a.Path); err == nil {
		return a, nil
	}
	if err := os.MkdirAll(filepath.Dir(a.Path), 0o755); err != nil {
		return a, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(a.Path), ".writing-")
	if err != nil {
		return a, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := writeLayout(tmp, reference, m, store); err != nil {
		return a, fmt.Errorf("archiving %s: %w", reference, err)
	}
	if err := tmp.Chmod(0o644); err != nil {
		return a, err
	}
	return a, os.Rename(tmp.Name(), a.Path)
}

// writeLayout writes an OCI image layout (image-layout.md of the image specification).
// containerd names the images by the annotation.
func writeLayout(w io.Writer, reference string, m image.Manifest, store *image.Store) error {
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: m.MediaType, Digest: m.Digest, Size: int64(len(m.Data)),
			Platform:    &v1.Platform{OS: "linux", Architecture: "amd64"},
			Annotations: map[string]string{"io.containerd.image.name": reference},
		}},
	})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for name, data := range map[string][]byte{
		"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`),
		"index.json": index,
	} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := tw.Write(data); err != nil {
			return err
		}
	}
	var parsed v1.Manifest
	if err := json.Unmarshal(m.Data, &parsed); err != nil {
		return err
	}
	blobs := map[v1.Hash]bool{}
	for _, d := range append(parsed.Layers, parsed.Config, v1.Descriptor{Digest: m.Digest}) {
		if blobs[d.Digest] {
			continue
		}
		blobs[d.Digest] = true
		if err := addBlob(tw, d.Digest, store.Blob(d.Digest)); err != nil {
			return err
		}
	}
	return tw.Close()
}

func addBlob(tw *tar.Writer, digest v1.Hash, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	err = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, Size: info.Size(),
		Name: path.Join("blobs", digest.Algorithm, digest.Hex)})
	if err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}

package bundle_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"airlift/bundle"
)

func sum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// A sample is a small bundle's worth of content.
type sample struct {
	manifest *bundle.Manifest
	content  map[string][]byte // by entry name
}

// newSample makes two programs, a CNI plugin and two images that share a
// layer; one image has an index. The content is the same every time.
func newSample() sample {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := sample{&bundle.Manifest{
		FormatVersion:     bundle.FormatVersion,
		Platform:          "linux/amd64",
		KubernetesVersion: "v1.29.15",
		CNI:               "flannel",
	}, map[string][]byte{}}
	add := func(name string, size int) []byte {
		b := make([]byte, size)
		for i := range b {
			b[i] = "abcdefgh"[rnd.IntN(8)]
		}
		if name == "" {
			name = bundle.BlobDir + sum(b)
		}
		s.content[name] = b
		s.manifest.Entries = append(s.manifest.Entries, bundle.Entry{Name: name, Size: int64(size), SHA256: sum(b)})
		return b
	}
	blob := func(mediaType string, size int) bundle.Descriptor {
		b := add("", size)
		return bundle.Descriptor{MediaType: mediaType, Digest: "sha256:" + sum(b), Size: int64(size)}
	}
	layer := func(size int) bundle.Layer {
		return bundle.Layer{DiffID: "sha256:" + sum(add("", size)), Size: int64(size)}
	}
	add("bin/runc", 70_000)
	add("bin/kubelet", 300_001)
	const oci = "application/vnd.oci.image."
	pause := bundle.Image{
		Name: "pause", Reference: "registry.k8s.io/pause:3.9",
		Target: blob(oci+"index.v1+json", 700), Manifest: blob(oci+"manifest.v1+json", 500),
		Config: blob(oci+"config.v1+json", 400), Layers: []bundle.Layer{layer(10_240)},
	}
	etcd := bundle.Image{
		Name: "etcd", Reference: "registry.k8s.io/etcd:3.5.16-0",
		Manifest: blob(oci+"manifest.v1+json", 501), Config: blob(oci+"config.v1+json", 401),
		Layers: []bundle.Layer{pause.Layers[0], layer(200_704)},
	}
	etcd.Target = etcd.Manifest
	s.manifest.Images = []bundle.Image{pause, etcd}
	add("cni/bridge", 0)
	component := func(name, entry string) bundle.Component {
		return bundle.Component{Name: name, Version: "v1.0.0", URL: "https://example.com/" + name,
			Checksum: "sha256:" + sum([]byte(name)), Entries: []string{entry}}
	}
	s.manifest.Components = []bundle.Component{
		component("cni-plugins", "cni/bridge"), component("kubelet", "bin/kubelet"), component("runc", "bin/runc"),
	}
	return s
}

func (s sample) open(e bundle.Entry) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s.content[e.Name])), nil
}

const script = "#!/bin/sh\necho stub\n"

// write writes the sample behind a small script and returns the path.
func (s sample) write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "install")
	if _, err := bundle.WriteFile(t.Context(), path, bytes.NewReader([]byte(script)), s.manifest, bundle.Options{}, s.open, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrittenFileReadsBack(t *testing.T) {
	s := newSample()
	f, err := bundle.Open(s.write(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, want := range s.manifest.Entries {
		e, r, err := st.Next()
		if err != nil || e != want {
			t.Fatalf("Next() = %v, %v; want %v", e, err, want)
		}
		b, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(b, s.content[e.Name]) {
			t.Fatalf("%s: %d bytes, %v", e.Name, len(b), err)
		}
	}
	if _, _, err := st.Next(); err != io.EOF {
		t.Fatalf("after the last entry: %v", err)
	}
	if err := f.Verify(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
}

func TestStockToolsUnpackIt(t *testing.T) {
	s := newSample()
	path := s.write(t)
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	for _, offset := range []int64{f.PayloadOffset(), int64(len(script))} {
		cmd := exec.Command("sh", "-c", fmt.Sprintf("tail -c +%d %s | tar --zstd -xvf - -C %s", offset+1, path, dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, e := range s.manifest.Entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name))
			if err != nil || !bytes.Equal(b, s.content[e.Name]) {
				t.Errorf("%s: %d bytes, %v", e.Name, len(b), err)
			}
		}
	}
}

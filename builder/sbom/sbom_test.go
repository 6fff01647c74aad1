package sbom

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"airlift/bundle"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testbundle"
)

// golden is a bundle whose layers are no tars.
const golden = "../../bundle/testdata/v1.bundle"

// A tarFile is one entry of a layer for tests. A name that ends in a slash is a directory.
type tarFile struct{ name, content, link string }

func tarOf(t *testing.T, files ...tarFile) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if f.link != "" {
			h.Typeflag, h.Linkname = tar.TypeLink, f.link
		} else if f.name[len(f.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func hexSum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// bundleOf writes a bundle with one kubelet, and one image with the layers.
func bundleOf(t *testing.T, kubelet []byte, layers ...[]byte) *bundle.File {
	t.Helper()
	return bundleWith(t, nil, kubelet, layers...)
}

// bundleWith writes such a bundle that has lists, by format.
func bundleWith(t *testing.T, lists map[Format][]byte, kubelet []byte, layers ...[]byte) *bundle.File {
	t.Helper()
	content := map[string][]byte{}
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "none",
		Components: []bundle.Component{{Name: "kubelet", Version: "v1.29.15", URL: "https://dl.k8s.io/kubelet",
			Checksum: "sha256:" + hexSum(kubelet), Entries: []string{"bin/kubelet"}}}}
	add := func(name string, b []byte) bundle.Descriptor {
		if content[name] == nil {
			content[name] = b
			m.Entries = append(m.Entries, bundle.Entry{Name: name, Size: int64(len(b)), SHA256: hexSum(b)})
		}
		return bundle.Descriptor{MediaType: "application/json", Digest: "sha256:" + hexSum(b), Size: int64(len(b))}
	}
	blob := func(b []byte) bundle.Descriptor { return add(bundle.BlobName("sha256:"+hexSum(b)), b) }
	add("bin/kubelet", kubelet)
	site := []byte("kind: ConfigMap\n")
	add("manifests/site.yaml", site)
	m.Manifests = []bundle.SiteManifest{{Name: "site", Chart: "site 1.2.3"}}
	file := []byte("options\n")
	add(bundle.FileName(hexSum(file)), file)
	m.Files = []bundle.SiteFile{{Path: "/etc/site.conf", Mode: "0600", Entry: bundle.FileName(hexSum(file))}}
	image := bundle.Image{Name: "app", Reference: "registry.example:5000/team/app:v1", Target: blob([]byte("{}")), Config: blob([]byte("{ }"))}
	image.Manifest = image.Target
	for _, l := range layers {
		d := blob(l)
		image.Layers = append(image.Layers, bundle.Layer{DiffID: d.Digest, Size: d.Size})
	}
	m.Images = []bundle.Image{image}
	for _, format := range []Format{CycloneDX, SPDX} {
		if lists[format] != nil {
			add(format.Entry(), lists[format])
			m.SBOMs = append(m.SBOMs, bundle.SBOM{Format: string(format), Entry: format.Entry()})
		}
	}

	stub := fakesites.Executable(t, elf.EM_X86_64)
	path := filepath.Join(t.TempDir(), "install")
	testbundle.WriteFile(t, path, bundle.Executables{Launcher: stub, Installer: stub}, m, bundle.Fastest, content)
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func read(t *testing.T, f *bundle.File) *Contents {
	t.Helper()
	c, err := Read(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// inImage returns the items of a kind in the image, as "name version".
func inImage(t *testing.T, c *Contents, kind Kind) (names []string) {
	t.Helper()
	for _, i := range c.Items {
		if i.Kind != Image {
			continue
		}
		for _, id := range i.Contains {
			if item := c.byID[id]; item.Kind == kind {
				names = append(names, item.Name+" "+item.Version)
			}
		}
	}
	return names
}

// launcher is a small binary that Go built from several modules.
var launcher = sync.OnceValues(func() (b []byte, err error) {
	dir, err := os.MkdirTemp("", "sbom")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-o", dir, "airlift/cmd/launch")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(filepath.Join(dir, "launch"))
})

func launch(t *testing.T) []byte {
	t.Helper()
	rig.Tool(t, "go")
	b, err := launcher()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestInterrupted(t *testing.T) {
	f, err := bundle.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, f, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// fileLayer is a layer with one file, which can be executed.
func fileLayer(t *testing.T, name, text string) v1.Layer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Format: tar.FormatGNU}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return static.NewLayer(out.Bytes(), types.OCIUncompressedLayer)
}

// marked is agnhost with one file more, so that each image has a digest of its own.
func marked(t *testing.T, agnhost v1.Image, text string) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(agnhost, fileLayer(t, "marked.txt", text))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// indexOf is an index with images, each with a platform, or with none if its OS is empty.
func indexOf(list ...mutate.IndexAddendum) v1.ImageIndex {
	for i := range list {
		if p := list[i].Platform; p != nil && p.OS == "" {
			list[i].Platform = nil
		}
	}
	return mutate.IndexMediaType(mutate.AppendManifests(empty.Index, list...), types.OCIImageIndex)
}

func on(image mutate.Appendable, variant string) mutate.IndexAddendum {
	return mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH, Variant: variant}}}
}

// TestImageKinds imports images of every kind that a bundle can have into a node, and a pod runs from
// each: chosen in indexes as containerd does, with 200 layers, with file names that are not UTF-8, and
// pinned by digest to an image from an archive. Without network, nothing can be pulled.
func TestImageKinds(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-imagekinds", Hosts: 1})
	h := s.Hosts[0]
	reference, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	agnhost := imageInBundle(t, reference)
	dir := t.TempDir()
	oci, err := layout.Write(filepath.Join(dir, "oci"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	unusable := marked(t, empty.Image, "another variant")
	names := map[string]string{}
	addIndex := func(tag string, i v1.ImageIndex) {
		t.Helper()
		names[tag] = "registry.example/kinds/" + tag + ":1"
		if err := oci.AppendIndex(i, layout.WithAnnotations(map[string]string{"io.containerd.image.name": names[tag]})); err != nil {
			t.Fatal(err)
		}
	}
	addIndex("variant", indexOf(on(unusable, "v3"), on(marked(t, agnhost, "plain"), "")))
	addIndex("nested", indexOf(mutate.IndexAddendum{Add: indexOf(on(unusable, "v4"), on(marked(t, agnhost, "nested"), ""))}))
	addIndex("no-platform", indexOf(mutate.IndexAddendum{Add: marked(t, agnhost, "no platform")}))
	many := agnhost
	for i := range 200 {
		if many, err = mutate.AppendLayers(many, fileLayer(t, fmt.Sprintf("layers/%d", i), fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	latin, err := mutate.AppendLayers(agnhost, fileLayer(t, "caf\xe9", "Latin-1"))
	if err != nil {
		t.Fatal(err)
	}
	archives := []string{}
	for tag, image := range map[string]v1.Image{"many": many, "latin": latin, "pinned": marked(t, agnhost, "pinned")} {
		names[tag] = "registry.example/kinds/" + tag + ":1"
		to, err := name.NewTag(names[tag])
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, tag+".tar")
		if err := tarball.WriteToFile(file, to, image); err != nil {
			t.Fatal(err)
		}
		archives = append(archives, "--image", "docker-archive:"+file)
	}
	file := filepath.Join(dir, "more")
	build := func(output string, more ...string) (string, error) {
		args := []string{"run", "./scripts/buildbundle", "--version", version, "--compression", "fastest", "--output", output, "--", "--only", "images"}
		cmd := exec.CommandContext(t.Context(), "go", append(args, more...)...)
		cmd.Dir = ".."
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := build(file, append(archives, "--image", "oci:"+filepath.Join(dir, "oci"))...)
	if err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	if _, err := h.CopyIn(t.Context(), file, "/root/more", 0o755); err != nil {
		t.Fatal(err)
	}
	inOrder(t, s, []stage{
		{"an image without layers is refused", func(t *testing.T) {
			tag, err := name.NewTag("registry.example/kinds/none:1")
			if err != nil {
				t.Fatal(err)
			}
			none := filepath.Join(dir, "none.tar")
			if err := tarball.WriteToFile(none, tag, empty.Image); err != nil {
				t.Fatal(err)
			}
			if out, err := build(filepath.Join(dir, "none"), "--image", "docker-archive:"+none); err == nil || !strings.Contains(out, "registry.example/kinds/none:1") || !strings.Contains(out, "hint: ") {
				t.Errorf("%v\n%s", err, out)
			}
		}},
		{"import", func(t *testing.T) {
			install(t, h, 0, "init")
			systemIsUp(t, s, 1)
			more(t, h, 0, "import")
			contains(t, more(t, h, 0, "import"), "Nothing to do: this node has all images")
		}},
		{"a pod runs from each", func(t *testing.T) {
			kubectl(t, s, "taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-")
			digests := strings.Fields(run(t, h, "sh", "-c", "ctr -n k8s.io images ls | awk '$1 == \""+names["pinned"]+"\" {print $3}'"))
			if len(digests) != 1 {
				t.Fatalf("containerd has the digests %q of %s", digests, names["pinned"])
			}
			names["by-digest"] = strings.TrimSuffix(names["pinned"], ":1") + "@" + digests[0]
			names["by-tag-and-digest"] = names["pinned"] + "@" + digests[0]
			var manifest strings.Builder
			for pod, image := range names {
				fmt.Fprintf(&manifest, "---\n{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: %q, imagePullPolicy: IfNotPresent, args: [pause]}]}}\n", pod, image)
			}
			if err := s.Apply(t.Context(), manifest.String()); err != nil {
				t.Fatal(err)
			}
			eventually(t, 3*time.Minute, func() string {
				out := kubectl(t, s, "get", "pods", "--no-headers")
				if strings.Count(out, " Running ") != len(names) {
					return out
				}
				return ""
			})
		}},
		{"reset", func(t *testing.T) { install(t, h, 0, "reset", "--force") }},
	})
}

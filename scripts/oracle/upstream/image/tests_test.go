package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/oracle/upstream/components"
)

// The images that e2e.test names are made with its tags, agnhost with more than the image for
// other purposes. Those that the rig cannot make are reported.
func TestTestImages(t *testing.T) {
	release, err := components.Find("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	const (
		agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
		older   = "registry.k8s.io/e2e-test-images/agnhost:2.55"
		sample  = "registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2"
		pause   = "registry.k8s.io/pause:3.10.2"
	)
	b := &Builder{Cache: t.TempDir()}
	made, missing := b.makes(release, []string{sample, agnhost, "registry.k8s.io/e2e-test-images/sample-apiserver:1.17.7", older, pause, "gcr.io/k8s-authenticated-test/agnhost:2.6", pause})
	if want := []string{older, agnhost, sample, pause}; !slices.Equal(made, want) {
		t.Errorf("made %q, want %q", made, want)
	}
	if want := []string{"gcr.io/k8s-authenticated-test/agnhost:2.6", "registry.k8s.io/e2e-test-images/sample-apiserver:1.17.7"}; !slices.Equal(missing, want) {
		t.Errorf("missing %q, want %q", missing, want)
	}
	b.TestImages = made
	specs, err := b.all(release)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]string{} // of the layers
	versions := map[string]string{}
	for _, s := range specs {
		if keys[s.reference()] != nil {
			t.Errorf("%s is made twice", s.reference())
		}
		for _, l := range s.layers {
			keys[s.reference()] = append(keys[s.reference()], l.key)
		}
		versions[s.reference()] = s.config.Labels["org.opencontainers.image.version"]
	}
	if len(specs) != len(b.specs(release))+2 { // older and sample
		t.Errorf("%d images", len(specs))
	}
	if !slices.Contains(keys[agnhost], "agnhost tools 2") || !slices.Equal(keys[agnhost], keys[older]) {
		t.Errorf("agnhost has the layers %q and %q", keys[agnhost], keys[older])
	}
	// The same layers, but two images.
	if versions[agnhost] != "2.66.1" || versions[older] != "2.55" {
		t.Errorf("versions %q", versions)
	}
	b.TestImages = []string{"registry.k8s.io/no/such:1"}
	if _, err := b.Build(t.Context(), release); err == nil || !strings.Contains(err.Error(), "registry.k8s.io/no/such:1") {
		t.Errorf("an image that the rig does not make: %v", err)
	}
}

// nnp gains its owner's rights, or the test of AllowPrivilegeEscalation would pass anywhere.
func TestNoNewPrivsIsSetuid(t *testing.T) {
	release, err := components.Find("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	b := &Builder{Cache: t.TempDir()}
	recipe, err := release.Recipe("nnp")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(recipe.Dir(b.Cache), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(recipe.Dir(b.Cache), "nnp"), []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	layers := b.noNewPrivs(release).layers
	tree := newTree("amd64")
	if err := layers[len(layers)-1].fill(t.Context(), tree); err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := tree.write(&written); err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(&written); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("the layer has no nnp")
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "usr/local/bin/nnp" {
			if mode := h.FileInfo().Mode(); mode&os.ModeSetuid == 0 || mode&os.ModeSetgid == 0 || mode.Perm() != 0o755 {
				t.Errorf("mode %v", mode)
			}
			return
		}
	}
}

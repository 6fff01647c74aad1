//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"airlift/bundle"
	"airlift/scripts/fixtures/siteregistry"
	"airlift/scripts/lab"
)

// additional is a bundle with an image and a manifest for the nodes of another bundle.
type additional struct {
	path  string
	image string // a reference
	size  int64
}

// aLayer is the content of a layer that only an additional bundle has.
const aLayer = "a file of the layer that only the additional bundle has\n"

// buildAdditional builds a bundle without Kubernetes and without the layers of base. Its image has one layer more than
// agnhost, with a file of this content.
func buildAdditional(t *testing.T, registry *siteregistry.Registry, agnhost v1.Image, content, base string) additional {
	t.Helper()
	image, err := mutate.AppendLayers(agnhost, fileLayer(t, "later.txt", content))
	if err != nil {
		t.Fatal(err)
	}
	registry.Push("public/later:1", image)
	a := additional{path: filepath.Join(t.TempDir(), "more"), image: registry.Host + "/public/later:1"}
	buildFile(t, a.path, "more.yaml", map[string]string{
		"later.yaml": fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: later, namespace: web}
spec:
  selector: {matchLabels: {app: later}}
  template:
    metadata: {labels: {app: later}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{operator: Exists}]
      containers:
      - {name: later, image: %q, args: [pause]}
`, a.image),
		"more.yaml": fmt.Sprintf(`
apiVersion: airlift/v1
kind: Bundle
only: [images, manifests]
base: %s
registryCAs: [%s]
manifests:
- {name: later, path: later.yaml}
`, base, registry.CA),
	})
	i, err := os.Stat(a.path)
	if err != nil {
		t.Fatal(err)
	}
	a.size = i.Size()
	f, err := bundle.Open(a.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range m.Entries {
		if strings.HasPrefix(e.Name, bundle.BinDir) || e.Size > int64(len(content))+1<<20 {
			t.Errorf("the additional bundle has %s with %d bytes", e.Name, e.Size)
		}
	}
	return a
}

// more runs the additional bundle on a host.
func more(t *testing.T, h *lab.Host, wantCode int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	err := h.Exec(t.Context(), nil, &out, &out, append([]string{"/root/more"}, args...)...)
	if code := exitCode(err); code != wantCode {
		t.Fatalf("%s: more %s: exit code %d, want %d: %v\n%s", h.Name, strings.Join(args, " "), code, wantCode, err, &out)
	}
	return out.String()
}

package site

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/registry"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// TestAllNodesNeedsTheRegistry: nothing is imported if the images could not be brought to the nodes.
func TestAllNodesNeedsTheRegistry(t *testing.T) {
	images := testbundle.NewImages("images")
	images.Add(t, "site.example/app:1", "site.example/app:1", nil, testbundle.Layer(t, "file", "text"))
	b := images.Write(t, "more")
	m := node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: new(strings.Builder)})
	for _, c := range []struct {
		allNodes, unpinned bool
		code               fault.Code
	}{{false, false, 0}, {false, true, 0}, {true, false, fault.Preflight}, {true, true, fault.Usage}} {
		k := &keeper{Machine: m, bundle: b, allNodes: c.allNodes}
		if err := k.check(t.Context(), c.unpinned); fault.ExitCode(err) != c.code || err != nil && fault.Hint(err) == "" {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestKeep: one import on a control plane keeps the file there and lists it. With --all-nodes, the list also has the images, and
// the import waits for the nodes that are Ready.
func TestKeep(t *testing.T) {
	images := testbundle.NewImages("images")
	images.Add(t, "site.example/app:1", "site.example/app:1", nil, testbundle.Layer(t, "file", "text"))
	b := images.Write(t, "more")
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	files, err := registry.For(testhost.Config(nil)).Files()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile(files[0].Path, files[0].Data, files[0].Mode); err != nil {
		t.Fatal(err)
	}
	two := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two", Annotations: map[string]string{"airlift.dev/registry": "1"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "off"}}}}
	client, _ := testclient.Fake(two)
	if _, err := client.EditRegistry(t.Context(), func(r *config.EmbeddedRegistry) {
		r.Used = true
		r.Keep(config.KeptBundle{ID: "a", Size: 1, Registries: []string{"registry.k8s.io"}})
	}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for run := range 2 { // a repeated run changes nothing
		k := &keeper{Machine: node.NewMachine(h, &workflow.Console{Out: &out}), bundle: b, allNodes: true, client: client}
		if k.needsFile() != (run == 0) { // a thin file then needs another control plane, also if no image is missing
			t.Errorf("run %d: it needs the file: %t", run, k.needsFile())
		}
		for _, step := range []func(context.Context) error{k.keep, k.wait} {
			if err := step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(k.off, []string{"two"}) || k.generation != 3 {
			t.Errorf("off %v, generation %d", k.off, k.generation)
		}
	}
	if _, err := os.Stat(h.Path(filepath.Join(registry.Directory, b.File.ID()))); err != nil {
		t.Error(err)
	}
	now, err := client.Registry(t.Context())
	if err != nil || len(now.Bundles) != 2 || now.Bundles[0].ID != b.File.ID() || !slices.Equal(now.Images, []string{"site.example/app:1"}) || !slices.Contains(now.Registries(), "site.example") {
		t.Errorf("%+v, %v", now, err)
	}
	if !strings.Contains(out.String(), "two") {
		t.Errorf("the node that is off is not named:\n%s", &out)
	}
}

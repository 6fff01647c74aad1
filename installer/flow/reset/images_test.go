package reset

import (
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testhost"
)

// TestResetOfImportedImages: reset removes the images that import added to an existing containerd.
func TestResetOfImportedImages(t *testing.T) {
	root := testhost.Node(t)
	lower := testbundle.Layer(t, "lower", "lower")
	images := testbundle.NewImages(bundle.OnlyImages)
	for _, ref := range []string{"site.example/app:1", "site.example/app:2"} {
		images.Add(t, ref, ref, nil, lower, testbundle.Layer(t, "upper", ref))
	}
	b := images.Write(t, "more")

	m := node.NewMachine(testhost.Open(t, root), &workflow.Console{Out: new(strings.Builder)})
	runtime, err := m.NodeRuntime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.Close()
	stream := payload.NewBundleStream(b.File, b.Manifest, m.Host, func(string) bool { return false }, payload.ImageRequest{Wanted: b.SiteImages()}, payload.SiteRequest{})
	stream.Start(t.Context(), b.Manifest)
	stream.Images.Runtime <- runtime
	if err := stream.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := testhost.Open(t, root).Records().ImageNames(); len(names) != 6 { // three of each image
		t.Errorf("the ledger has %v", names)
	}

	r := newReset(config.Reset{}, "", node.NewMachine(testhost.Open(t, root), &workflow.Console{Out: new(strings.Builder)}))
	if err := r.images.restore(t.Context()); err != nil || len(r.images.left) > 0 {
		t.Fatalf("reset: %v, left %q", err, r.images.left)
	}
	if list, err := runtime.Images(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("after reset: %v, %v", list, err)
	}
	if names := testhost.Open(t, root).Records().ImageNames(); len(names) > 0 {
		t.Errorf("after reset, the ledger has %v", names)
	}
}

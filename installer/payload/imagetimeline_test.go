package payload

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/timeline"
)

// drawn returns a recorder's spans as "row: label".
func drawn(t *testing.T, r *timeline.Recorder) (spans []string) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteTrace(&b, timeline.About{}); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			Tid      int
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(b.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	rows := map[int]any{}
	for _, e := range trace.TraceEvents {
		if e.Name == "thread_name" {
			rows[e.Tid] = e.Args["name"]
		}
		if e.Ph == "X" {
			spans = append(spans, rows[e.Tid].(string)+": "+e.Name)
		}
	}
	return spans
}

// TestImagesAreDrawn has a layer that two images share, and a layer that occurs
// twice in one image.
func TestImagesAreDrawn(t *testing.T) {
	blob := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	entry := func(c string) string { return bundle.BlobDir + strings.Repeat(c, 64) }
	image := func(reference, target, manifest, config string, layers ...string) bundle.Image {
		i := bundle.Image{Reference: reference}
		i.Target.Digest, i.Manifest.Digest, i.Config.Digest = blob(target), blob(manifest), blob(config)
		for _, l := range layers {
			i.Layers = append(i.Layers, bundle.Layer{DiffID: blob(l)})
		}
		return i
	}
	it := newImageTimeline([]bundle.Image{
		image("registry.k8s.io/etcd:3.5", "1", "2", "3", "a", "b", "b"),
		image("registry.k8s.io/coredns/coredns:v1.11", "4", "4", "5", "a", "c"),
	})
	for entry, want := range map[string]string{
		entry("1"): "index of etcd:3.5", entry("2"): "manifest of etcd:3.5", entry("3"): "config of etcd:3.5",
		entry("4"): "manifest of coredns:v1.11", entry("a"): "layer of etcd:3.5", entry("c"): "layer of coredns:v1.11",
		"bin/runc": "bin/runc",
	} {
		if got := it.name(entry); got != want {
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
	}
	r := timeline.New("", 0)
	ctx := r.Context(t.Context())
	var seen []string
	for _, c := range []string{"a", "b", "b", "3"} {
		it.comes(ctx, entry(c))
		spans := drawn(t, r)
		seen = append(seen, strings.Join(spans, ", "))
	}
	it.usable("registry.k8s.io/etcd:3.5")
	it.usable("registry.k8s.io/coredns/coredns:v1.11") // already in containerd: nothing to draw
	it.comes(ctx, entry("c"))
	spans := drawn(t, r)
	seen = append(seen, strings.Join(spans, ", "))
	etcd := "images: registry.k8s.io/etcd:3.5"
	if want := []string{"", etcd, etcd, etcd, etcd + ", images: registry.k8s.io/coredns/coredns:v1.11"}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

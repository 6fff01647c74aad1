package installer

import (
	"context"
	"path"
	"strings"

	"airlift/bundle"
	"airlift/installer/timeline"
)

// imageTimeline draws the images' lane of the timeline: each from its first
// byte in the stream to where pods can use it. It belongs to the stream's
// goroutine.
type imageTimeline struct {
	of    map[string][]string // by entry: the references of the images it is part of
	spans map[string]*timeline.Span
}

func newImageTimeline(images []bundle.Image) *imageTimeline {
	t := &imageTimeline{of: map[string][]string{}, spans: map[string]*timeline.Span{}}
	for _, i := range images {
		blobs := []string{i.Target.Digest, i.Manifest.Digest, i.Config.Digest}
		for _, l := range i.Layers {
			blobs = append(blobs, l.DiffID)
		}
		for _, digest := range blobs {
			entry := bundle.BlobDir + strings.TrimPrefix(digest, "sha256:")
			t.of[entry] = append(t.of[entry], i.Reference)
		}
	}
	return t
}

// comes begins the images that the entry is the first part of.
func (t *imageTimeline) comes(ctx context.Context, entry string) {
	for _, reference := range t.of[entry] {
		if t.spans[reference] == nil {
			_, t.spans[reference] = timeline.Start(ctx, timeline.Images, reference)
		}
	}
}

// usable ends an image's span.
func (t *imageTimeline) usable(reference string) { t.spans[reference].End() }

// spanName says in the timeline what an entry of the bundle is: a blob's own
// name says nothing to people.
func (t *imageTimeline) spanName(entry string) string {
	if images := t.of[entry]; len(images) > 0 {
		return "blob of " + shortName(images[0])
	}
	return entry
}

// shortName leaves out an image's registry: "kube-proxy:v1.29.15".
func shortName(name string) string {
	if strings.HasPrefix(name, bundle.BinDir) || strings.HasPrefix(name, bundle.CNIDir) {
		return name
	}
	return path.Base(name)
}

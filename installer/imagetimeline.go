package installer

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"

	"airlift/bundle"
	"airlift/installer/timeline"
)

// imageTimeline draws the images' lane of the timeline: each from the first
// byte in the stream that is its own, and not shared with another, to where
// pods can use it.
type imageTimeline struct {
	blobs map[string]imageBlob // by entry

	mu    sync.Mutex // images begin in one goroutine and end in another
	spans map[string]*timeline.Span
}

// imageBlob says what a blob is to people, to whom its name says nothing.
type imageBlob struct {
	kind   string   // "layer"
	images []string // the references it is part of
}

func newImageTimeline(images []bundle.Image) *imageTimeline {
	t := &imageTimeline{blobs: map[string]imageBlob{}, spans: map[string]*timeline.Span{}}
	for _, i := range images {
		part := func(digest, kind string) {
			entry := bundle.BlobDir + strings.TrimPrefix(digest, "sha256:")
			of := t.blobs[entry].images
			if !slices.Contains(of, i.Reference) {
				of = append(of, i.Reference)
			}
			t.blobs[entry] = imageBlob{kind, of}
		}
		if i.Target.Digest != i.Manifest.Digest {
			part(i.Target.Digest, "index")
		}
		part(i.Manifest.Digest, "manifest")
		part(i.Config.Digest, "config")
		for _, l := range i.Layers {
			part(l.DiffID, "layer")
		}
	}
	return t
}

// comes begins the image that the entry is the first part of.
func (t *imageTimeline) comes(ctx context.Context, entry string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.blobs[entry].images
	if len(of) == 1 && t.spans[of[0]] == nil {
		_, t.spans[of[0]] = timeline.Start(ctx, timeline.Images, of[0])
	}
}

// usable ends an image's span.
func (t *imageTimeline) usable(reference string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans[reference].End()
}

// name says what an image's entry is: "layer of kube-proxy:v1.29.15".
func (t *imageTimeline) name(entry string) string {
	blob := t.blobs[entry]
	if len(blob.images) == 0 {
		return entry
	}
	return blob.kind + " of " + shortName(blob.images[0])
}

// shortName leaves out an image's registry: "kube-proxy:v1.29.15".
func shortName(name string) string {
	if strings.HasPrefix(name, bundle.BinDir) || strings.HasPrefix(name, bundle.CNIDir) {
		return name
	}
	return path.Base(name)
}

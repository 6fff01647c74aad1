package payload

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"

	"airlift/bundle"
	"airlift/installer/timeline"
)

// imageTimeline records the images in the timeline. An image's span starts with
// the first entry that only this image uses, and ends when pods can use the
// image.
type imageTimeline struct {
	blobs map[string]imageBlob // by entry

	mu    sync.Mutex // spans start and end in different goroutines
	spans map[string]*timeline.Span
}

// imageBlob describes a blob for the timeline.
type imageBlob struct {
	kind   string   // "layer"
	images []string // references of the images that contain it
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
		for _, d := range i.Documents() {
			part(d.Digest, "index")
		}
		part(i.Manifest.Digest, "manifest")
		part(i.Config.Digest, "config")
		for _, l := range i.Layers {
			part(l.DiffID, "layer")
		}
	}
	return t
}

// comes starts the span of an image, if the entry belongs to that image alone.
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

// name returns a description of an entry: "layer of kube-proxy:v1.29.15".
func (t *imageTimeline) name(entry string) string {
	blob := t.blobs[entry]
	if len(blob.images) == 0 {
		return entry
	}
	return blob.kind + " of " + shortName(blob.images[0])
}

// shortName removes the registry from an image name: "kube-proxy:v1.29.15".
func shortName(name string) string {
	if strings.HasPrefix(name, bundle.BinDir) || strings.HasPrefix(name, bundle.CNIDir) {
		return name
	}
	if strings.HasPrefix(name, bundle.FileDir) { // it is named by its sha256
		return "the site's files"
	}
	return path.Base(name)
}

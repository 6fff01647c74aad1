package builder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/builder/events"
	"airlift/images/local"
	"airlift/images/release"
	"airlift/internal/fault"
)

// A localReader puts the images of local sources into the cache.
type localReader struct {
	local.Reader
	report *reporter
}

// readAll returns the images of the sources by reference, and named with their references added.
func (r localReader) readAll(ctx context.Context, sources []local.Spec, named []string) (map[string]*local.Image, []string, error) {
	found := map[string]*local.Image{}
	var given []string // names that the user wrote as =NAME
	for _, spec := range sources {
		if spec.Named {
			given = append(given, spec.Reference)
		}
	}
	for _, spec := range sources {
		item := r.report.Work(spec.String(), 0)
		list, err := r.Read(ctx, spec)
		if err != nil {
			item.Failed()
			return nil, named, err
		}
		var names []string
		var contents []events.DownloadFinished
		for _, img := range list {
			names = append(names, img.Reference)
			contents = append(contents, events.DownloadFinished{Kind: events.Image, Name: img.Reference, Source: img.Kind,
				From: events.Local, Size: layersSize(img.Layers), Digest: img.Target.Digest})
			if release.Reserved(img.Reference) && !slices.Contains(given, img.Reference) {
				item.Failed()
				return nil, named, replaces(spec, img.Reference)
			}
			if old := found[img.Reference]; old != nil && old.Target == img.Target {
				continue
			}
			if found[img.Reference] != nil || slices.Contains(named, img.Reference) {
				item.Failed()
				return nil, named, fault.New(fault.Usage, "%s: the image %s is also in another --image", spec, img.Reference).
					Hint("name each image once; =NAME gives an image another name: --image " + spec.String() + "=registry.example/app:1")
			}
			found[img.Reference] = img
			named = append(named, img.Reference)
		}
		item.Done(fmt.Sprintf("%s: read, digests verified", strings.Join(names, ", ")), contents...)
	}
	return found, named, nil
}

// replaces is the error for an image that a source would replace without being asked to.
func replaces(spec local.Spec, reference string) error {
	one := spec
	if spec.Path != "" {
		one.Select = reference
	}
	return fault.New(fault.Usage, "%s: the image %s has a name of Kubernetes' own images, and would replace it", spec, reference).
		Hint(fmt.Sprintf("to replace it, add --image %s=%s; otherwise select the images that you need by their names", one, reference))
}

func layersSize(layers []bundle.Layer) (n int64) {
	for _, l := range layers {
		n += l.Size
	}
	return n
}

// takeLocal returns the image of a local source.
func takeLocal(w *wantedImage) (*image, error) {
	l := w.local
	if w.digest != "" && w.digest != l.Target.Digest {
		return nil, fault.New(fault.Failure, "the %s image %s has digest %s, but --checksum requires %s", l.Kind, w.Reference, l.Target.Digest, w.digest).Hint("use the image with the pinned digest, or remove the --checksum")
	}
	l.Name = w.Name
	return &image{Image: &l.Image, local: l, pinned: w.digest != ""}, nil
}

package delta

import "airlift/bundle"

// references returns, for entries of a new bundle, the entries of the old one that are likely
// to be similar, both by name.
func references(before, after *bundle.Manifest) map[string]string {
	found := map[string]string{}
	pair := func(new, old string) {
		if _, ok := before.Entry(old); ok && found[new] == "" {
			found[new] = old
		}
	}
	for _, e := range after.Entries {
		pair(e.Name, e.Name) // binaries and manifests of the site
	}
	for _, f := range after.Files {
		for _, o := range before.Files {
			if o.Path == f.Path {
				pair(f.Entry, o.Entry)
			}
		}
	}
	for _, p := range after.Packages {
		for _, o := range before.Packages {
			if o.Release == p.Release && o.Name == p.Name {
				pair(p.Entry, o.Entry)
			}
		}
	}
	for _, i := range after.Images {
		for _, o := range before.Images {
			if o.Name != i.Name && bundle.Untagged(o.Reference) != bundle.Untagged(i.Reference) {
				continue
			}
			pair(bundle.BlobName(i.Target.Digest), bundle.BlobName(o.Target.Digest))
			pair(bundle.BlobName(i.Manifest.Digest), bundle.BlobName(o.Manifest.Digest))
			pair(bundle.BlobName(i.Config.Digest), bundle.BlobName(o.Config.Digest))
			for n, l := range i.Layers {
				if len(o.Layers) == len(i.Layers) {
					pair(bundle.BlobName(l.DiffID), bundle.BlobName(o.Layers[n].DiffID))
				} else if nearest := nearestSize(o.Layers, l.Size); nearest != nil {
					pair(bundle.BlobName(l.DiffID), bundle.BlobName(nearest.DiffID))
				}
			}
		}
	}
	return found
}

func nearestSize(layers []bundle.Layer, size int64) (nearest *bundle.Layer) {
	distance := func(l *bundle.Layer) int64 { return max(l.Size-size, size-l.Size) }
	for i := range layers {
		if nearest == nil || distance(&layers[i]) < distance(nearest) {
			nearest = &layers[i]
		}
	}
	return nearest
}

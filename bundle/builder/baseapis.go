package builder

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/builder/apirules"
	"airlift/bundle/builder/manifests"
	"airlift/internal/fault"
)

// objects returns the objects in the base's manifests. An additional bundle may use them, as if earlier
// manifests had them.
func (b base) objects(ctx context.Context) (all []apirules.Object, err error) {
	if b.manifest == nil || !slices.ContainsFunc(b.manifest.Entries, isManifest) {
		return nil, nil
	}
	f, err := bundle.OpenWhole(b.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.ManifestSHA256() != b.sha256 {
		return nil, fault.New(fault.Failure, "%q changed while the bundle was built", b.path).Hint("run the command again")
	}
	s, err := f.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.Skip(func(e bundle.Entry) bool { return !isManifest(e) })
	for {
		e, content, err := s.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(content) // at most bundle.MaxManifest
		if err != nil {
			return nil, err
		}
		objects, err := manifests.Decode(e.Name, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.path, err)
		}
		i := slices.IndexFunc(b.manifest.Manifests, func(m bundle.SiteManifest) bool { return m.Entry() == e.Name })
		for _, o := range objects {
			all = append(all, apirules.Object{Object: o, Default: b.manifest.Manifests[i].Namespace})
		}
	}
}

func isManifest(e bundle.Entry) bool { return strings.HasPrefix(e.Name, bundle.ManifestDir) }

package builder_test

import (
	"encoding/json"
	"errors"
	"testing"

	"airlift/builder/fetch"
	"airlift/bundle"
	"airlift/scripts/fixtures/fakesites"
)

// An earlier version stored, after an interruption, that no encoder gives a layer. That is not believed: the bundle has
// the same bytes as one that is built with an empty cache.
func TestAnswersOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	clean := run(t, options(t, u))
	if n, _, of := clean.Manifest.Reproduced(); n == 0 || n != of {
		t.Fatalf("%d of %d layers can be reproduced", n, of)
	}
	o := options(t, u)
	cache, err := fetch.OpenCache(o.CacheDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range clean.Manifest.Images {
		for _, l := range i.Layers {
			text, err := json.Marshal(bundle.Compressed{Digest: l.Compressed.Digest, Size: l.Compressed.Size})
			err = errors.Join(err, cache.Remember("encoder of "+l.Compressed.Digest+", version 2", string(text)))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if again := run(t, o); again.SHA256 != clean.SHA256 {
		t.Errorf("sha256 %s, not %s", again.SHA256, clean.SHA256)
	}
}

package platform_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/bundle/platform"
	"airlift/scripts/fixtures/fakesites"
)

const (
	index    = ocispec.MediaTypeImageIndex
	manifest = ocispec.MediaTypeImageManifest
)

func source(d fakesites.Documents) platform.Source {
	return platform.Reader(func(_ context.Context, desc ocispec.Descriptor) ([]byte, error) {
		body, ok := d[desc.Digest]
		if !ok {
			return nil, errors.New(desc.Digest.String() + " is missing")
		}
		return body, nil
	})
}

// Find returns the manifest that containerd uses, or an error. An error where containerd finds a
// manifest means that only some nodes can run it.
func TestFindEqualsContainerd(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	equal, refused, both, sized := 0, 0, 0, 0
	for n := range 10_000 {
		d := fakesites.Documents{}
		target := d.RandomIndex(r)
		for _, arch := range []string{"amd64", "arm64"} {
			want, wantErr := d.Chosen(target, arch)
			path, body, err := platform.Find(t.Context(), source(d), target, arch)
			var missing *platform.MissingError
			switch {
			case err == nil && wantErr == nil && strings.Contains(string(body), string(want)) && digest.FromBytes(body) == path.Manifest().Digest:
				equal++
			case err != nil && wantErr != nil:
				both++
			case errors.As(err, &missing) && wantErr == nil && strings.Contains(err.Error(), map[string]string{"amd64": "386", "arm64": "arm"}[arch]):
				refused++
			case errors.Is(err, platform.ErrSize) && wantErr == nil:
				sized++
			default:
				t.Fatalf("index %d, %s: %v, %v, containerd: %v, %v\n%s", n, arch, path, err, want, wantErr, d[target.Digest])
			}
			if missing != nil && strings.HasSuffix(err.Error(), "only for ") {
				t.Fatalf("%v", err)
			}
		}
	}
	t.Logf("%d are equal, %d are errors in both, %d are images that only some nodes can run, %d are refused by the CRI", equal, both, refused, sized)
	if equal < 1500 || both < 2500 || refused < 50 || sized < 50 {
		t.Error("the indexes show little")
	}
}

// The matcher equals containerd's matcher on a node. The test compares it with this machine's, if
// its architecture is supported.
func TestNodesMatcher(t *testing.T) {
	own := platforms.DefaultSpec()
	if own.Architecture != "amd64" && own.Architecture != "arm64" {
		t.Fatalf("the tests run on %s", own.Architecture)
	}
	for _, p := range []ocispec.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "amd64", Variant: "v1"}, {OS: "linux", Architecture: "amd64", Variant: "v2"},
		{OS: "linux", Architecture: "arm64"}, {OS: "linux", Architecture: "arm64", Variant: "v8"}, {OS: "linux", Architecture: "arm64", Variant: "v8.2"}, {OS: "linux", Architecture: "arm64", Variant: "v9"}} {
		if got, want := platform.Usable(p, own.Architecture) == nil, platforms.Default().Match(p); got != want {
			t.Errorf("%s: %v, and containerd %v", platforms.Format(p), got, want)
		}
	}
}

func TestMissingPlatforms(t *testing.T) {
	d := fakesites.Documents{}
	at := func(p ocispec.Platform) ocispec.Descriptor {
		m := d.AddManifest(manifest, "app", p)
		m.Platform = &p
		return m
	}
	for want, target := range map[string]ocispec.Descriptor{
		"lists no image with a platform":  d.AddIndex(index),
		"lists no image with a platform ": d.AddIndex(index, at(ocispec.Platform{OS: "unknown", Architecture: "unknown"})),
		"only for linux/amd64/v3":         d.AddIndex(index, at(ocispec.Platform{OS: "linux", Architecture: "amd64", Variant: "v3"})),
		"only for linux/386":              d.AddIndex(index, at(ocispec.Platform{OS: "linux", Architecture: "386"})),
		"only for an empty platform":      d.AddIndex(index, at(ocispec.Platform{})),
		"only for linux/arm64, linux/s390x": d.AddIndex(index, at(ocispec.Platform{OS: "linux", Architecture: "s390x"}),
			at(ocispec.Platform{OS: "linux", Architecture: "arm64"}), at(ocispec.Platform{OS: "linux", Architecture: "s390x"})),
		`only for "linux/\x1b[31m"`: d.AddIndex(index, at(ocispec.Platform{OS: "linux", Architecture: "\x1b[31m"})),
		// Without a platform in the index, the config's platform counts.
		"only for linux/amd64 with the features a,b": d.AddIndex(index, at(ocispec.Platform{OS: "linux", Architecture: "amd64", OSFeatures: []string{"a", "b"}})),
		"only for linux/riscv64":                     d.AddIndex(index, d.AddManifest(manifest, "app", ocispec.Platform{OS: "linux", Architecture: "riscv64"})),
		// containerd reads the first index only.
		"only for linux/ppc64le": d.AddIndex(index, d.AddIndex(index, at(ocispec.Platform{OS: "linux", Architecture: "ppc64le"})), d.AddIndex(index, at(ocispec.Platform{OS: "linux", Architecture: "amd64"}))),
	} {
		_, _, err := platform.Find(t.Context(), source(d), target, "amd64")
		var missing *platform.MissingError
		if !errors.As(err, &missing) || !strings.HasSuffix(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("err = %v, want %s", err, want)
		}
	}
}

// A chain of indexes without an end is refused.
func TestDeepIndexes(t *testing.T) {
	d := fakesites.Documents{}
	target := d.AddManifest(manifest, "app", ocispec.Platform{OS: "linux", Architecture: "amd64"})
	for n := range 20 {
		target = d.AddIndex(index, target)
		path, _, err := platform.Find(t.Context(), source(d), target, "amd64")
		if n < 16 && (err != nil || len(path) != n+2) || n >= 16 && (err == nil || !strings.Contains(err.Error(), "in more than 16 indexes")) {
			t.Errorf("%d indexes: %d documents, %v", n+1, len(path), err)
		}
	}
}

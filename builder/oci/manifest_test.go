package oci_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/builder/fetch"
	"airlift/builder/oci"
	"airlift/bundle"
	"airlift/internal/fault"
)

// A config that bundle verify would refuse is refused when it is read.
func TestPlatformOfConfig(t *testing.T) {
	for _, c := range []struct {
		os, architecture string
		want             string // part of the error
		missing          bool   // the image is not there for the platform
	}{
		{"linux", "amd64", "", false},
		{"", "", "has no os or no architecture", false},
		{"linux", "", "has no os or no architecture", false},
		{"", "amd64", "has no os or no architecture", false},
		{"linux", "arm64", "only for linux/arm64", true},
		{"windows", "amd64", "only for windows/amd64", true},
	} {
		body, err := json.Marshal(v1.ConfigFile{OS: c.os, Architecture: c.architecture, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{{Algorithm: "sha256", Hex: strings.Repeat("ab", 32)}}}})
		if err != nil {
			t.Fatal(err)
		}
		d := bundle.Descriptor{Digest: "sha256:" + strings.Repeat("cd", 32), Size: int64(len(body))}
		layers, err := oci.ReadConfig("registry.example/app:1", d, body, 1, "amd64")
		if c.want == "" {
			if err != nil || len(layers) != 1 {
				t.Errorf("%s/%s: %v, %v", c.os, c.architecture, layers, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "registry.example/app:1") {
			t.Errorf("%s/%s: %v", c.os, c.architecture, err)
		}
		if missing := (*fetch.MissingError)(nil); errors.As(err, &missing) != c.missing || !c.missing && fault.Hint(err) == "" {
			t.Errorf("%s/%s: %v (hint %q)", c.os, c.architecture, err, fault.Hint(err))
		}
	}
}

// A layer in a compression that containerd does not support has an error with its name.
func TestLayerInAnotherCompression(t *testing.T) {
	cache, err := fetch.OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for magic, name := range map[string]string{"\xfd7zXZ\x00": "xz", "BZh9": "bzip2", "\x04\x22\x4d\x18": "lz4"} {
		_, err := oci.StoreLayer(t.Context(), cache, strings.NewReader(magic+"content"), "sha256:"+strings.Repeat("ab", 32), 100, "layer", "registry")
		if err == nil || !strings.Contains(err.Error(), "layer is compressed with "+name) || fault.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A tar may begin with any name.
	sum := sha256.Sum256([]byte("BZh is a name"))
	if _, err := oci.StoreLayer(t.Context(), cache, strings.NewReader("BZh is a name"), fmt.Sprintf("sha256:%x", sum), 100, "layer", "registry"); err != nil {
		t.Error(err)
	}
}

package encoder_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle/encoder"
)

// golden lists the sha256 of what each encoder makes of golden's content.
//
//go:embed testdata/golden.txt
var golden string

var stockHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

func encode(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	r := encoder.Recipe{Encoder: name}
	if encoder.HasHeader(name) {
		r.Header = stockHeader
	}
	return compressed(t, content, r.NewWriter)
}

// A file that was built years ago names an encoder. Its output must never change: another version of a library is
// another encoder with another name, and the version before stays in the tree.
func TestEncodersStay(t *testing.T) {
	var got strings.Builder
	content := layer(1_200_000)
	for _, name := range encoder.Names() {
		fmt.Fprintf(&got, "%s %x\n", name, sha256.Sum256(encode(t, name, content)))
	}
	if got.String() != golden {
		t.Errorf("the output of an encoder changed; keep the version of the library that gave the recorded bytes:\n%s", got.String())
	}
}

// The layers of registry.k8s.io/etcd:3.7.0-0, which are also layers of gcr.io/distroless images. Their names are upstream's digests.
func TestRealLayers(t *testing.T) {
	paths, err := filepath.Glob("testdata/layers/*")
	if err != nil || len(paths) != 3 {
		t.Fatal(err, paths)
	}
	for _, path := range paths {
		blob, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(blob))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(encode(t, "go-gzip-6", content))); got != filepath.Base(path) {
			t.Errorf("%s: %s", path, got)
		}
		if r, ok := reproduce(t, blob, content); !ok || r.Encoder != "go-gzip-6" {
			t.Errorf("%s: found %q", path, r.Encoder)
		}
	}
}

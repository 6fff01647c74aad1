package encoder

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// A build with another Go does not use its gzip encoder, and no answer of the cache from a build with Go 1.26, or the other way round.
func TestAnotherGo(t *testing.T) {
	layer := []byte(strings.Repeat("usr/lib/file\n", 1000))
	header := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}
	var blob bytes.Buffer
	z, err := Recipe{Encoder: "go-gzip-6", Header: header}.NewWriter(&blob)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(layer); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	open := func(b []byte) Opener {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	}
	version := Version()
	if r, ok, err := Find(t.Context(), open(blob.Bytes()), open(layer)); err != nil || !ok || r.Encoder != "go-gzip-6" {
		t.Fatalf("%+v %t %v", r, ok, err)
	}
	had := hasGo126
	defer func() { hasGo126 = had }()
	hasGo126 = func() bool { return false }
	if r, _, err := Find(t.Context(), open(blob.Bytes()), open(layer)); err != nil || strings.HasPrefix(r.Encoder, goGzip) {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := (Recipe{Encoder: "go-gzip-6", Header: header}).NewWriter(io.Discard); !errors.Is(err, errOtherGo) {
		t.Error(err)
	}
	if Version() == version {
		t.Error("the cache has one answer for both builds")
	}
}

package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"airlift/internal/fault"
)

// Verify refuses a layer that containerd cannot unpack, and names its image.
func TestVerifyRefusesOtherLayers(t *testing.T) {
	odd := func(kind byte) []byte {
		var b bytes.Buffer
		if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "odd", Typeflag: kind, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"wasm":            {append([]byte("\x00asm\x01\x00\x00\x00"), make([]byte, 2000)...), "not a tar archive"},
		"short":           {[]byte("\x00asm\x01\x00\x00\x00"), "not a tar archive"},
		"encrypted":       {newSample().bytes(5000), "not a tar archive"},
		"contiguous file": {odd('7'), `file "odd" is of type '7'`},
		"cut tar":         {newSample().content["bin/runc"][:0], ""},
		"device":          {odd(tar.TypeChar), ""},
		"global header":   {make([]byte, 1024), ""},
	} {
		s := newSample()
		s.add(BlobDir+sha(c.content), c.content)
		s.image("app", "registry.example/app:1", false, Layer{DiffID: "sha256:" + sha(c.content), Size: int64(len(c.content))})
		err := checkFile(t, s.write(t))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || fault.ExitCode(err) != fault.Bundle || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `image "registry.example/app:1": layer sha256:`+sha(c.content)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// flaky returns an error for one read.
type flaky struct {
	io.ReaderAt
	fails atomic.Bool
}

var errFlaky = errors.New("flaky disk")

func (f *flaky) ReadAt(p []byte, at int64) (int, error) {
	if f.fails.CompareAndSwap(true, false) {
		return 0, errFlaky
	}
	return f.ReaderAt.ReadAt(p, at)
}

// A manifest that could not be read is read again.
func TestManifestAfterAnError(t *testing.T) {
	whole := openFile(t, newSample().write(t))
	disk := &flaky{ReaderAt: whole.file}
	f, err := OpenAt(disk, whole.Size(), "install")
	if err != nil {
		t.Fatal(err)
	}
	disk.fails.Store(true)
	if _, err := f.Manifest(); !errors.Is(err, errFlaky) {
		t.Fatal(err)
	}
	if m, err := f.Manifest(); err != nil || m == nil {
		t.Errorf("%v, %v", m, err)
	}
}

package bundle

import (
	"bytes"
	"strings"
	"testing"
)

const gzipHeader = "1f8b08000000000000ff"

// compressedSample has two images with the same layer, compressed in the same way.
func compressedSample() (m *Manifest, layers []*Layer) {
	m = newSample().manifest
	for n := range m.Images {
		for k := range m.Images[n].Layers {
			layers = append(layers, &m.Images[n].Layers[k])
		}
	}
	return m, layers
}

func digestOf(c string) string { return "sha256:" + strings.Repeat(c, 64) }

func TestCompressedIsValidated(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(m *Manifest, layers []*Layer)
		want string // part of the error, empty if valid
	}{
		{"gzip", func(_ *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{digestOf("a"), 10, "go-gzip-6", gzipHeader}
		}, ""},
		{"zstd", func(_ *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{digestOf("a"), 10, "klauspost-zstd-2", ""}
		}, ""},
		{"no encoder", func(_ *Manifest, l []*Layer) { l[0].Compressed = &Compressed{Digest: digestOf("a"), Size: 10} }, ""},
		{"kept", func(m *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{Digest: digestOf("a"), Size: 10}
			m.Entries = append(m.Entries, Entry{BlobName(digestOf("a")), 10, strings.Repeat("a", 64)})
		}, ""},
		{"kept with another size", func(m *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{Digest: digestOf("a"), Size: 10}
			m.Entries = append(m.Entries, Entry{BlobName(digestOf("a")), 11, strings.Repeat("a", 64)})
		}, "the entry's is 11"},
		{"kept with an encoder", func(m *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{digestOf("a"), 10, "go-gzip-6", gzipHeader}
			m.Entries = append(m.Entries, Entry{BlobName(digestOf("a")), 10, strings.Repeat("a", 64)})
		}, "nothing in the bundle uses"},
		{"digest of the layer", func(_ *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{l[0].DiffID, 10, "go-gzip-6", gzipHeader}
		}, "digest of the layer"},
		{"no digest", func(_ *Manifest, l []*Layer) { l[0].Compressed = &Compressed{Size: 10} }, "not sha256:"},
		{"no size", func(_ *Manifest, l []*Layer) { l[0].Compressed = &Compressed{Digest: digestOf("a")} }, "not between 1 and"},
		{"another encoder", func(_ *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{digestOf("a"), 10, "zip-6", gzipHeader}
		}, `"zip-6" is not known`},
		{"gzip without a header", func(_ *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{digestOf("a"), 10, "go-gzip-6", ""}
		}, "header"},
		{"a long header", func(_ *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{digestOf("a"), 10, "go-gzip-6", gzipHeader + "00"}
		}, "header"},
		{"upper case", func(_ *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{digestOf("a"), 10, "go-gzip-6", strings.ToUpper(gzipHeader)}
		}, "lower case"},
		{"zstd with a header", func(_ *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{digestOf("a"), 10, "klauspost-zstd-2", gzipHeader}
		}, "has a header"},
		{"header without encoder", func(_ *Manifest, l []*Layer) {
			l[0].Compressed = &Compressed{digestOf("a"), 10, "", gzipHeader}
		}, "no encoder"},
		{"one blob of two layers", func(_ *Manifest, l []*Layer) {
			for _, layer := range l {
				layer.Compressed = &Compressed{digestOf("a"), 10, "go-gzip-6", gzipHeader}
			}
		}, "two descriptions"},
	} {
		m, layers := compressedSample()
		c.set(m, layers)
		b, err := m.Encode()
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: err = %v, want %q", c.name, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		again, err := DecodeManifest(b)
		if err != nil || !bytes.Equal(again.canonical(), b) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestReproducedCountsBlobs(t *testing.T) {
	m, layers := compressedSample()
	layers[0].Compressed = &Compressed{digestOf("a"), 10, "go-gzip-6", gzipHeader}
	layers[1].Compressed = &Compressed{Digest: digestOf("b"), Size: 10}
	layers[2].Compressed = &Compressed{Digest: digestOf("c"), Size: 11}
	m.Entries = append(m.Entries, Entry{BlobName(digestOf("c")), 11, strings.Repeat("c", 64)})
	if n, kept, all := m.Reproduced(); n != 1 || kept != 1 || all != 3 {
		t.Errorf("%d reproduced, %d kept, %d in total", n, kept, all)
	}
}

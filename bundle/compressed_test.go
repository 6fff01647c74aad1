package bundle

import (
	"bytes"
	"slices"
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

// TestUnservable takes each layer of a bundle through what a manifest can say of it.
func TestUnservable(t *testing.T) {
	for i := range 3 {
		for _, c := range []struct {
			name       string
			compressed *Compressed
			kept       bool
			inBase     bool
			servable   bool
		}{
			{"uncompressed", nil, false, false, true},
			{"made again", &Compressed{digestOf("a"), 10, "go-gzip-6", gzipHeader}, false, false, true},
			{"made again from the base", &Compressed{digestOf("a"), 10, "go-gzip-6", gzipHeader}, false, true, true},
			{"kept", &Compressed{Digest: digestOf("a"), Size: 10}, true, false, true},
			{"neither kept nor made", &Compressed{Digest: digestOf("a"), Size: 10}, false, false, false},
			{"in the base in another form", nil, false, true, false},
		} {
			m, layers := compressedSample()
			for _, l := range layers { // images share layers
				if l.DiffID == layers[i].DiffID {
					l.Compressed = c.compressed
				}
			}
			if c.kept {
				m.Entries = append(m.Entries, Entry{BlobName(digestOf("a")), 10, strings.TrimPrefix(digestOf("a"), "sha256:")})
			}
			if c.inBase {
				m.Base = &Base{Layers: []string{layers[i].DiffID}}
			}
			var want []string
			for _, image := range m.Images {
				if !c.servable && slices.ContainsFunc(image.Layers, func(l Layer) bool { return l.DiffID == layers[i].DiffID }) {
					want = append(want, image.Reference)
				}
			}
			if got := m.Unservable(); !slices.Equal(got, want) || !c.servable && len(want) == 0 {
				t.Errorf("layer %d, %s: %q, want %q", i, c.name, got, want)
			}
		}
	}
}

package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"airlift/bundle/head"
)

// The decompressed size follows from the manifest only if tar headers have the length
// head.HeaderLen.
func TestHeaderLen(t *testing.T) {
	for _, size := range []int64{0, 1, 1<<33 - 1, 1 << 33, MaxEntry} {
		var b bytes.Buffer
		name := BlobDir + sha(nil)
		if err := tar.NewWriter(&b).WriteHeader(tarHeader(name, size)); err != nil {
			t.Fatal(err)
		}
		if int64(b.Len()) != head.HeaderLen(size) {
			t.Errorf("an entry of %d bytes has a header of %d, want %d", size, b.Len(), head.HeaderLen(size))
		}
		if h, err := tar.NewReader(&b).Next(); err != nil || h.Size != size || h.Name != name {
			t.Errorf("size %d reads back as %+v, %v", size, h, err)
		}
	}
}

func TestTarSize(t *testing.T) {
	s := newSample()
	manifest, err := s.manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	f := openFile(t, s.write(t))
	want := map[string]int64{HeadPart: tarSize([]Entry{{Name: ManifestName, Size: int64(len(manifest))}, f.Installer()})}
	for name, entries := range partsOf(s.manifest.Entries) {
		want[name] = tarSize(entries)
	}
	want[ImagesPart] += tarEnd
	z, err := newDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, p := range f.Parts() {
		if err := z.Reset(io.NewSectionReader(f.file, p.Offset, p.Size)); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, z); err != nil || n != want[p.Name] {
			t.Errorf("%s: the tar has %d bytes, %v; want %d", p.Name, n, err, want[p.Name])
		}
		delete(want, p.Name)
	}
	if len(want) > 0 {
		t.Errorf("parts that are not there: %v", want)
	}
}

func TestWindowFor(t *testing.T) {
	for size, want := range map[int64]int{
		0: 1 << 20, 1<<20 - 1: 1 << 20, 1 << 20: 2 << 20, 5 << 20: 8 << 20,
		100 << 20: 128 << 20, 128<<20 - 1: 128 << 20, 128 << 20: 128 << 20, 1 << 50: 128 << 20,
	} {
		if got := windowFor(size); got != want {
			t.Errorf("windowFor(%d) = %d, want %d", size, got, want)
		}
	}
}

func TestBinariesReadBack(t *testing.T) {
	f := openFile(t, newSample().write(t))
	b, err := io.ReadAll(f.Launcher())
	if err != nil || !bytes.Equal(b, executables().Launcher) {
		t.Errorf("launcher: %d bytes, %v", len(b), err)
	}
	var out bytes.Buffer
	if err := head.CopyInstaller(&out, f.payload, f.path, f.trailer); err != nil || !bytes.Equal(out.Bytes(), executables().Installer) {
		t.Errorf("installer: %d bytes, %v", out.Len(), err)
	}
	want := Entry{Name: "install", Size: int64(out.Len()), SHA256: sha(out.Bytes())}
	if got := f.Installer(); got != want {
		t.Errorf("Installer() = %v, want %v", got, want)
	}
}

// BenchmarkStream reads the bundle at $AIRLIFT_BUNDLE.
func BenchmarkStream(b *testing.B) {
	path := os.Getenv("AIRLIFT_BUNDLE")
	if path == "" {
		b.Skip("AIRLIFT_BUNDLE names no bundle file to read")
	}
	f, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		unwanted func(Entry) bool
	}{
		{"everything", nil},
		{"entries", func(Entry) bool { return false }},
		{"binaries", func(e Entry) bool { return !isBinary(e) }},
		{"images", isBinary},
	} {
		b.Run(c.name, func(b *testing.B) {
			size := int64(0)
			for _, e := range m.Entries {
				if c.unwanted == nil || !c.unwanted(e) {
					size += e.Size
				}
			}
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				s, err := f.Stream(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				if c.unwanted != nil {
					s.Skip(c.unwanted)
				}
				if err := errors.Join(readAll(s), s.Close()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

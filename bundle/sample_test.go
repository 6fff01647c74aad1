package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"airlift/internal/fault"
)

func sha(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// A sample is the content of a small bundle: two binaries, a CNI plugin, and two images that
// share a layer, one of them with an index. It is always the same.
type sample struct {
	manifest *Manifest
	content  map[string][]byte // by entry name
	random   *rand.Rand
}

func newSample() *sample {
	s := &sample{
		manifest: &Manifest{
			FormatVersion:     FormatVersion,
			Platform:          "linux/amd64",
			KubernetesVersion: "v1.29.15",
			CNI:               "flannel",
		},
		content: map[string][]byte{},
		random:  rand.New(rand.NewPCG(1, 2)),
	}
	s.binary("bin/runc", 9_000)
	s.binary("bin/kubelet", 20_001)
	base := s.layer(10_240)
	s.image("pause", "registry.k8s.io/pause:3.9", true, base)
	s.image("etcd", "registry.k8s.io/etcd:3.5.16-0", false, base, s.layer(11_264))
	s.binary("cni/bridge", 0)
	s.manifest.Components = []Component{
		component("cni-plugins", "cni/bridge"), component("kubelet", "bin/kubelet"), component("runc", "bin/runc"),
	}
	return s
}

// large has a binary and a layer that are longer than some pieces of the payload.
func large() *sample {
	s := newSample()
	s.binary("bin/large", 1<<20)
	s.binary("bin/last", 1<<20)
	s.manifest.Components = append(s.manifest.Components, component("zy", "bin/large"), component("zz", "bin/last"))
	s.image("large", "example.com/large:v1", false, s.layer(1<<20), s.layer(1<<20))
	return s
}

func component(name, entry string) Component {
	return Component{Name: name, Version: "v1.0.0", URL: "https://example.com/" + name,
		Checksum: "sha256:" + sha([]byte(name)), Entries: []string{entry}}
}

func (s *sample) add(name string, b []byte) {
	s.content[name] = b
	e := Entry{Name: name, Size: int64(len(b)), SHA256: sha(b)}
	at := len(s.manifest.Entries)
	if n := slices.IndexFunc(s.manifest.Entries, func(e Entry) bool { return !isBinary(e) }); n >= 0 && isBinary(e) {
		at = n
	}
	s.manifest.Entries = slices.Insert(s.manifest.Entries, at, e)
}

// bytes returns size incompressible bytes, which a bundle contains literally.
func (s *sample) bytes(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(s.random.Uint32())
	}
	return b
}

func (s *sample) binary(name string, size int) { s.add(name, s.bytes(size)) }

// layer adds a layer of size bytes, a multiple of 512: a tar archive with one file, without the blocks at its end.
func (s *sample) layer(size int) Layer {
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(size - 512)}); err != nil {
		panic(err)
	}
	b := append(head.Bytes(), s.bytes(size-512)...)
	s.add(BlobDir+sha(b), b)
	return Layer{DiffID: "sha256:" + sha(b), Size: int64(size)}
}

func (s *sample) document(mediaType string, v any) Descriptor {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	s.add(BlobDir+sha(b), b)
	return Descriptor{MediaType: "application/vnd.oci.image." + mediaType + ".v1+json", Digest: "sha256:" + sha(b), Size: int64(len(b))}
}

func (s *sample) image(name, reference string, index bool, layers ...Layer) {
	i := Image{Name: name, Reference: reference, Layers: layers}
	var diffIDs []string
	var blobs []Descriptor
	for _, l := range layers {
		diffIDs = append(diffIDs, l.DiffID)
		blobs = append(blobs, Descriptor{MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Digest: "sha256:" + sha([]byte(l.DiffID)), Size: l.Size / 2})
	}
	type m = map[string]any
	i.Config = s.document("config", m{"os": "linux", "architecture": "amd64", "rootfs": m{"type": "layers", "diff_ids": diffIDs}})
	i.Manifest = s.document("manifest", m{"schemaVersion": 2, "config": i.Config, "layers": blobs})
	i.Target = i.Manifest
	if index {
		i.Target = s.document("index", m{"schemaVersion": 2, "manifests": []Descriptor{{"other", "sha256:" + sha(nil), 1}, i.Manifest}})
	}
	s.manifest.Images = append(s.manifest.Images, i)
}

func (s *sample) open(e Entry) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s.content[e.Name])), nil
}

// stub is a launcher: the smallest executable for head.ELFEnd: an ELF header, one program
// header, and its segment.
func stub() []byte {
	const size = 200
	b := make([]byte, size)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint64(b[32:], 64)       // e_phoff
	le.PutUint16(b[54:], 56)       // e_phentsize
	le.PutUint16(b[56:], 1)        // e_phnum
	le.PutUint64(b[64+32:], size)  // p_filesz
	copy(b[64+56:], "the program") // so that every byte has a known value
	return b
}

// executables returns a launcher and an installer that does not compress.
func executables() Executables {
	random := rand.New(rand.NewPCG(5, 6))
	installer := make([]byte, 3001)
	for i := range installer {
		installer[i] = byte(random.Uint32())
	}
	return Executables{stub(), installer}
}

// write writes the sample to a file. Readers treat all levels alike, so it uses the one that
// costs the least.
func (s *sample) write(t testing.TB) (path string) {
	t.Helper()
	return s.writeLevel(t, Fastest)
}

func (s *sample) writeLevel(t testing.TB, level Level) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "install")
	if _, err := writeFile(t.Context(), path, executables(), s.manifest, level, s.open, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeFile writes a draft and gives it its name.
func writeFile(ctx context.Context, path string, executables Executables, m *Manifest, level Level, open func(Entry) (io.ReadCloser, error), p Progress) (Summary, error) {
	d, err := WriteDraft(ctx, path, executables, m, level, open, p)
	if err != nil {
		return Summary{}, err
	}
	defer d.Discard()
	return d.Summary, d.Replace()
}

func openFile(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// check opens and verifies the bytes as a file.
func check(t testing.TB, b []byte) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "install")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return checkFile(t, path)
}

func checkFile(t testing.TB, path string) error {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Verify(t.Context(), nil)
}

// wantFault fails unless err is a fault of the bundle and contains want.
func wantFault(t testing.TB, err error, want string) {
	t.Helper()
	if err == nil || fault.ExitCode(err) != fault.Bundle || !bytes.Contains([]byte(err.Error()), []byte(want)) {
		t.Errorf("error is %v (exit code %d), want exit code 4 and %q", err, fault.ExitCode(err), want)
	}
}

// readAll reads every entry of the stream. It returns the error that ended it, or nil for
// io.EOF.
func readAll(s *Stream) error {
	for {
		_, r, err := s.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return err
		}
	}
}

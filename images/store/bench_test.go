package store_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/bundle"
)

// BenchmarkBundle imports the images of the bundle at $AIRLIFT_BUNDLE, once with this
// package and once with `ctr images import` from an archive with gzip layers, into a fresh
// containerd each time:
//
//	AIRLIFT_BUNDLE=out/install go test -run=NONE -bench=Bundle -benchtime=3x ./images/store
//
// It reports seconds per import, until everything is on the disk; processor seconds of the
// importing process and containerd; and MB of disk. The containerds keep their files in
// AIRLIFT_STORE_DIR or /var/tmp. On an ext4 from which many files were removed recently,
// creating files is slow; on a new one in a loop device it is not.
func BenchmarkBundle(b *testing.B) {
	path := os.Getenv("AIRLIFT_BUNDLE")
	if path == "" {
		b.Skip("AIRLIFT_BUNDLE names no bundle file to import")
	}
	path = must(filepath.Abs(path))
	bench := func(name string, load func(b *testing.B, d *daemon)) {
		b.Run(name, func(b *testing.B) {
			var disk int64
			var spent float64
			for b.Loop() {
				b.StopTimer()
				d := startDaemon(b, ours(b), "overlayfs")
				d.connect()
				syscall.Sync()
				before := spentWith(b, d)
				b.StartTimer()
				load(b, d)
				b.StopTimer()
				spent += spentWith(b, d) - before
				disk = diskUsage(b, d.path("root"))
				d.stop()
				removeTree(b, d.dir)
				b.StartTimer()
			}
			b.ReportMetric(spent/float64(b.N), "cpu-s/op")
			b.ReportMetric(float64(disk)/1e6, "MB-disk")
		})
	}
	bench("airlift", func(b *testing.B, d *daemon) {
		if _, err := importBundle(b, d.connect(), path); err != nil {
			b.Fatal(err)
		}
	})
	archive := ""
	bench("ctr", func(b *testing.B, d *daemon) {
		if archive == "" {
			b.StopTimer()
			archive = gzipArchive(b, path)
			b.StartTimer()
		}
		d.importTar("k8s.io", archive)
		syscall.Sync()
	})
}

// spentWith returns the processor seconds of this process, its children and the daemon.
func spentWith(t testing.TB, d *daemon) (seconds float64) {
	t.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err != nil {
			t.Fatal(err)
		}
		seconds += float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	}
	stat := must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid)))
	after := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))
	const perSecond = 100 // USER_HZ, proc(5)
	return seconds + float64(must(strconv.Atoi(after[12]))+must(strconv.Atoi(after[13])))/perSecond
}

// gzipArchive writes an OCI archive of a bundle's images with gzip layers, as in a registry.
func gzipArchive(t testing.TB, path string) string {
	t.Helper()
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stream, err := f.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	stream.Skip(func(e bundle.Entry) bool { return !strings.HasPrefix(e.Name, bundle.BlobDir) })

	dir := t.TempDir()
	blob := func(mediaType string, write func(w io.Writer) error) ocispec.Descriptor {
		tmp := must(os.Create(filepath.Join(dir, "blob")))
		defer tmp.Close()
		sum := sha256.New()
		if err := write(io.MultiWriter(tmp, sum)); err != nil {
			t.Fatal(err)
		}
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.NewDigest(digest.SHA256, sum), Size: must(tmp.Stat()).Size()}
		if err := os.Rename(tmp.Name(), filepath.Join(dir, d.Digest.Encoded())); err != nil {
			t.Fatal(err)
		}
		return d
	}
	document := func(mediaType string, v any) ocispec.Descriptor {
		return blob(mediaType, func(w io.Writer) error { return json.NewEncoder(w).Encode(v) })
	}
	layers := map[string]ocispec.Descriptor{}
	blobs := map[string]bool{}
	for _, i := range must(f.Manifest()).Images {
		for _, l := range i.Layers {
			blobs[bundle.BlobName(l.DiffID)] = true
		}
	}
	for {
		e, r, err := stream.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if blobs[e.Name] {
			layers[e.Name] = blob(ocispec.MediaTypeImageLayerGzip, func(w io.Writer) error {
				z := gzip.NewWriter(w)
				if _, err := io.Copy(z, r); err != nil {
					return err
				}
				return z.Close()
			})
		} else {
			blob("", func(w io.Writer) error { _, err := io.Copy(w, r); return err })
		}
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, i := range must(f.Manifest()).Images {
		m := ocispec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
			Config: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.Digest(i.Config.Digest), Size: i.Config.Size},
		}
		for _, l := range i.Layers {
			m.Layers = append(m.Layers, layers[bundle.BlobName(l.DiffID)])
		}
		d := document(ocispec.MediaTypeImageManifest, m)
		d.Annotations = map[string]string{"io.containerd.image.name": i.Reference}
		index.Manifests = append(index.Manifests, d)
	}
	top := document("", index)

	out := filepath.Join(dir, "images.tar")
	file := must(os.Create(out))
	defer file.Close()
	w := tar.NewWriter(file)
	add := func(name, from string) {
		b := must(os.ReadFile(from))
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b))}); err != nil {
			t.Fatal(err)
		}
		must(w.Write(b))
	}
	layout := document("", ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	add("oci-layout", filepath.Join(dir, layout.Digest.Encoded()))
	add("index.json", filepath.Join(dir, top.Digest.Encoded()))
	for _, e := range must(os.ReadDir(dir)) {
		if e.Name() != "images.tar" {
			add("blobs/sha256/"+e.Name(), filepath.Join(dir, e.Name()))
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// diskUsage returns the disk space of the files below dir, in bytes.
func diskUsage(t testing.TB, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		total += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

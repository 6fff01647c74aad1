package store_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/internal/fault"
)

// crossed are images that share layers in every way: shared lower layers, one layer on top
// of different others, the same layer twice in one image, an empty layer in several places,
// the same layers in another order, no layers.
func crossed(t *testing.T) (imageSet, map[string]v1.Image) {
	t.Helper()
	a := layer(t, dir("d/"), text("d/a", "a"), text("same", "from a"))
	b := layer(t, text("b", "b"), text("same", "from b"), text("d/.wh.a", ""))
	c := layer(t, text("c", noise(3, 100_000)))
	none := layer(t)
	var p imageSet
	images := map[string]v1.Image{}
	for name, layers := range map[string][]v1.Layer{
		"ab": {a, b}, "abc": {a, b, c}, "cba": {c, b, a}, "bac": {b, a, c}, "b": {b},
		"twice": {a, none, b, none, a}, "thrice": {c, c, c}, "empty": {none}, "bare": {},
	} {
		images["registry.example.com/"+name+":1"] = image(t, "/"+name, layers...)
	}
	for _, ref := range sortedKeys(images) {
		p.add(t, ref, images[ref], nil)
	}
	return p, images
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// One pass imports all images for any order of the blobs, and each has the files of ctr's import.
func TestAnyOrderInOnePass(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		s := d.connect()
		p, images := crossed(t)
		want := map[string]map[string]string{}
		for ref, img := range images {
			if strings.Contains(ref, "bare") {
				continue // ctr cannot import an image without layers
			}
			d.importTar("oracle", archive(t, d, ref, img))
			want[ref] = d.contents("oracle", img)
		}
		reversed := slices.Clone(p.entries)
		slices.Reverse(reversed)
		orders := [][]bundle.Entry{slices.Clone(p.entries), reversed}
		for seed := range uint64(2) {
			shuffled := slices.Clone(p.entries)
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(shuffled), func(i, j int) {
				shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
			})
			orders = append(orders, shuffled)
		}
		for i, order := range orders {
			p.entries = order
			imported := importAll(t, s, &p)
			if slices.Sort(imported); !slices.Equal(imported, sortedKeys(images)) {
				t.Fatalf("order %d: imported = %q", i, imported)
			}
			assertMissing(t, s, &p)
			for ref := range want {
				compareTrees(t, d.contents("k8s.io", images[ref]), want[ref])
			}
			if left := d.leases(); len(left) > 0 {
				t.Errorf("order %d: leases left: %q", i, left)
			}
			// No layer remains as a blob.
			if blobs, documents := len(d.blobs()), 2*len(images); blobs != documents {
				t.Errorf("order %d: %d blobs in the content store, want %d documents", i, blobs, documents)
			}
			if err := s.RemoveImages(t.Context(), sortedKeys(images)); err != nil {
				t.Fatal(err)
			}
			if left := d.snapshots(); len(left) > 0 {
				t.Fatalf("order %d: snapshots left after removing all images: %q", i, left)
			}
		}
	})
}

// A layer that does not match its digest must leave nothing, and the error names the image.
func TestDamagedLayer(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		s := d.connect()
		const ref = "registry.example.com/rich:v1"
		for _, test := range []struct {
			name   string
			damage func([]byte) []byte
		}{
			{"one bit", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
			{"bit after the archive's end", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }},
			{"cut short", func(b []byte) []byte { return b[:len(b)/2] }},
			{"no tar", func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) }},
			{"nothing", func(b []byte) []byte { return nil }},
			{"too long", func(b []byte) []byte { return append(b, 0) }},
		} {
			t.Run(test.name, func(t *testing.T) {
				var p imageSet
				b := p.add(t, ref, richImage(t, "/rich"), nil)
				e := entryOf(&p, b.Layers[1].DiffID)
				p.blobs[e.Name] = test.damage(slices.Clone(p.blobs[e.Name]))

				im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{OnImage: func(context.Context, bundle.Image) error { t.Error("a damaged image was called usable"); return nil }})
				if err != nil {
					t.Fatal(err)
				}
				err = p.feed(t.Context(), im, p.entries)
				want := fmt.Sprintf("unpacking layer %s of %s: content has digest sha256:", b.Layers[1].DiffID, ref)
				if err == nil || !strings.HasPrefix(err.Error(), want) || fault.ExitCode(err) != fault.Bundle {
					t.Errorf("err = %v, exit code %d", err, fault.ExitCode(err))
				}
				for _, key := range d.snapshots() {
					if key != b.Layers[0].DiffID && !strings.HasPrefix(key, "extract-") {
						t.Errorf("snapshot %q is finished, want none but the good layer below", key)
					}
				}
				if err := im.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if sn, b, r := d.snapshots(), d.blobs(), d.records(); len(sn)+len(b)+len(r) > 0 {
					t.Errorf("left after Close: snapshots %q, blobs %q, records %v", sn, b, r)
				}
			})
		}
	})
}

// Blobs that go to the content store are also checked: documents, and layers that are
// needed twice.
func TestDamagedBlob(t *testing.T) {
	onEach(t, func(t *testing.T, rel release) {
		d := startDaemon(t, rel, "overlayfs")
		s := d.connect()
		l := layer(t, text("a", noise(1, 1<<20)))
		img := image(t, "/a", l, l)
		for what, pick := range map[string]func(bundle.Image) string{
			"layer":  func(b bundle.Image) string { return b.Layers[0].DiffID },
			"config": func(b bundle.Image) string { return b.Config.Digest },
			"index":  func(b bundle.Image) string { return b.Target.Digest },
		} {
			for how, damage := range map[string]func([]byte) []byte{
				"bit":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
				"short": func(b []byte) []byte { return b[:len(b)-1] },
				"long":  func(b []byte) []byte { return append(b, 0) },
				"huge":  func(b []byte) []byte { return append(b, make([]byte, 5<<20)...) },
			} {
				t.Run(what+" "+how, func(t *testing.T) {
					var p imageSet
					b := p.add(t, "registry.example.com/a:1", img, index(t, img))
					name := entryOf(&p, pick(b)).Name
					p.blobs[name] = damage(slices.Clone(p.blobs[name]))
					im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
					if err != nil {
						t.Fatal(err)
					}
					err = p.feed(t.Context(), im, p.entries)
					if err == nil || fault.ExitCode(err) != fault.Bundle || !strings.Contains(err.Error(), pick(b)) {
						t.Errorf("err = %v, exit code %d", err, fault.ExitCode(err))
					}
					if err := im.Close(t.Context()); err != nil {
						t.Error(err)
					}
					if sn, b, r := d.snapshots(), d.blobs(), d.records(); len(sn)+len(b)+len(r) > 0 {
						t.Errorf("left after Close: snapshots %q, blobs %q, records %v", sn, b, r)
					}
				})
			}
		}
	})
}

// Documents that do not match the bundle's manifest would make an image that looks complete
// until a pod needs it.
func TestContradictingDocuments(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	a, b := layer(t, text("a", "a")), layer(t, text("b", "b"))
	for name, change := range map[string]func(p *imageSet, img, other bundle.Image) bundle.Image{
		"lists other layers: [sha256:": func(p *imageSet, img, other bundle.Image) bundle.Image { img.Layers = other.Layers; return img },
		" lists config sha256:": func(p *imageSet, img, other bundle.Image) bundle.Image {
			img.Config, img.Layers = other.Config, other.Layers
			return img
		},
		" does not contain manifest sha256:": func(p *imageSet, img, other bundle.Image) bundle.Image {
			img.Manifest, img.Config, img.Layers = other.Manifest, other.Config, other.Layers
			return img
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p imageSet
			ia, ib := image(t, "/a", a), image(t, "/b", b)
			one := p.add(t, "registry.example.com/a:1", ia, index(t, ia))
			two := p.add(t, "registry.example.com/b:1", ib, index(t, ib))
			p.images = []bundle.Image{change(&p, one, two)}
			im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer im.Close(t.Context())
			err = p.feed(t.Context(), im, p.entries)
			if err == nil || !strings.Contains(err.Error(), name) || fault.ExitCode(err) != fault.Bundle {
				t.Errorf("err = %v", err)
			}
			if r := d.records(); len(r) > 0 {
				t.Errorf("records = %v", r)
			}
		})
	}
}

// An image whose index has another manifest for this node is refused at once: containerd would not
// find it, and the import would wait for it.
func TestManifestThatContainerdDoesNotUse(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	plain, v3 := image(t, "/plain", layer(t, text("a", "a"))), image(t, "/v3", layer(t, text("b", "b")))
	on := func(img v1.Image, variant string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64", Variant: variant}}}
	}
	for name, c := range map[string]struct {
		img v1.Image
		idx v1.ImageIndex
	}{
		"a variant before":  {v3, mutate.AppendManifests(empty.Index, on(v3, "v3"), on(plain, ""))},
		"only a variant":    {v3, mutate.AppendManifests(empty.Index, on(v3, "v3"))},
		"the second of two": {v3, mutate.AppendManifests(empty.Index, on(plain, ""), on(v3, ""))},
		"not in the index":  {v3, mutate.AppendManifests(empty.Index, on(plain, ""))},
	} {
		var p imageSet
		p.add(t, "registry.example.com/a:1", c.img, c.idx)
		im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		err = p.feed(t.Context(), im, p.entries)
		if err == nil || !strings.Contains(err.Error(), "linux/amd64") || fault.ExitCode(err) != fault.Bundle {
			t.Errorf("%s: %v", name, err)
		}
		if err := im.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if r := d.records(); len(r) > 0 {
		t.Errorf("records = %v", r)
	}
}

// cancelling cancels a context when half of the content has been read.
type cancelling struct {
	r      io.Reader
	left   int
	cancel context.CancelFunc
}

func (c *cancelling) Read(b []byte) (int, error) {
	n, err := c.r.Read(b[:min(len(b), 4096)])
	if c.left -= n; c.left < 0 {
		c.cancel()
	}
	return n, err
}

func TestCancelled(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		s := d.connect()
		var p imageSet
		b := p.add(t, "registry.example.com/rich:v1", richImage(t, "/rich"), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		im, err := s.NewImporter(ctx, p.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e := entryOf(&p, b.Layers[0].DiffID)
		err = im.Blob(ctx, e, &cancelling{bytes.NewReader(p.blobs[e.Name]), int(e.Size / 2), cancel})
		if !errors.Is(err, context.Canceled) || fault.ExitCode(err) != fault.Interrupted {
			t.Errorf("err = %v", err)
		}
		if err := im.Close(ctx); err != nil {
			t.Errorf("closing with a cancelled context: %v", err)
		}
		if got := d.snapshots(); len(got) > 0 {
			t.Errorf("snapshots after cancelling = %q", got)
		}
		if l := d.leases(); len(l) > 0 {
			t.Errorf("leases = %q", l)
		}
		importAll(t, s, &p)
		assertMissing(t, s, &p)
	})
}

// Parallel importers must not disturb each other, nor treat the other's lease as abandoned.
func TestAtOnce(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		p, _ := crossed(t)
		img := richImage(t, "/rich")
		p.add(t, "registry.example.com/rich:v1", img, index(t, img))
		var start sync.WaitGroup
		start.Add(3)
		var group errgroup.Group
		for range 3 {
			s := d.connect()
			group.Go(func() error {
				im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
				start.Done()
				if err != nil {
					return err
				}
				start.Wait() // all have listed the missing images before one begins
				if err := p.feed(t.Context(), im, p.entries); err != nil {
					return err
				}
				if incomplete, err := im.Finish(t.Context()); err != nil || len(incomplete) > 0 {
					return fmt.Errorf("%d images are not complete, %v", len(incomplete), err)
				}
				return im.Close(t.Context())
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		assertMissing(t, d.connect(), &p)
		d.importTar("oracle", archive(t, d, "registry.example.com/rich:v1", img))
		compareTrees(t, d.contents("k8s.io", img), d.contents("oracle", img))
		for _, key := range d.snapshots() {
			if strings.HasPrefix(key, "extract-") {
				t.Errorf("unfinished snapshot %q left", key)
			}
		}
		if l := d.leases(); len(l) > 0 {
			t.Errorf("leases left: %q", l)
		}
	})
}

// sampling records the largest heap while it is read.
type sampling struct {
	r    io.Reader
	n    int
	peak uint64
}

func (s *sampling) Read(b []byte) (int, error) {
	if s.n++; s.n%16 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.peak = max(s.peak, m.HeapAlloc)
	}
	return s.r.Read(b)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// bigLayer is a layer tar with one generated file of the given size.
func bigLayer(t *testing.T, size int64) io.Reader {
	t.Helper()
	var header bytes.Buffer
	if err := tar.NewWriter(&header).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Mode: 0o644, Size: size}); err != nil {
		t.Fatal(err)
	}
	const end = 1024 // two empty blocks
	return io.MultiReader(&header, io.LimitReader(zeros{}, size+end))
}

// Memory must not grow with the size of a layer, whether it is unpacked at once or stored first.
func TestFlatMemory(t *testing.T) {
	const size, limit = 128 << 20, 48 << 20
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	h := sha256.New()
	n, err := io.Copy(h, bigLayer(t, size))
	if err != nil {
		t.Fatal(err)
	}
	diffID := fmt.Sprintf("%x", h.Sum(nil))
	for name, layers := range map[string]int{"once": 1, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			img := bundle.Image{Reference: "registry.example.com/big:" + name}
			for range layers {
				img.Layers = append(img.Layers, bundle.Layer{DiffID: "sha256:" + diffID, Size: n})
			}
			none := sha256.Sum256(nil)
			img.Target.Digest = fmt.Sprintf("sha256:%x", none)
			img.Manifest, img.Config = img.Target, img.Target
			im, err := s.NewImporter(t.Context(), []bundle.Image{img}, store.ImportOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer im.Close(t.Context())
			r := &sampling{r: bigLayer(t, size)}
			if err := im.Blob(t.Context(), bundle.Entry{Name: bundle.BlobDir + diffID, Size: n, SHA256: diffID}, r); err != nil {
				t.Fatal(err)
			}
			// The snapshots are committed in the background; the image has no config.
			if _, err := im.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := len(d.snapshots()); got != layers {
				t.Errorf("%d snapshots, want %d", got, layers)
			}
			if r.peak == 0 || r.peak > limit {
				t.Errorf("the heap grew to %d bytes, want at most %d", r.peak, limit)
			}
		})
	}
}

// No snapshot is created before its parent is committed.
func TestPreparedAhead(t *testing.T) {
	onEach(t, func(t *testing.T, rel release) {
		d := startDaemon(t, rel, "overlayfs")
		var p imageSet
		p.add(t, "registry.example.com/rich:v1", richImage(t, "/rich"), nil)
		im, err := d.connect().NewImporter(t.Context(), p.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := d.snapshots()
		for end := time.Now().Add(10 * time.Second); len(got) == 0 && time.Now().Before(end); got = d.snapshots() {
			time.Sleep(20 * time.Millisecond)
		}
		if len(got) != 1 {
			t.Errorf("prepared %q, want one", got)
		}
		if err := im.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The error about a full disk must not blame the bundle, and the space must be free again
// afterwards.
func TestDiskFull(t *testing.T) {
	onEach(t, func(t *testing.T, rel release) {
		d := newDaemon(t, rel, "overlayfs")
		root := d.path("root")
		if err := os.Mkdir(root, 0o711); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=16m"); err != nil {
			t.Fatal(err)
		}
		d.start()
		s := d.connect()
		var p imageSet
		b := p.add(t, "registry.example.com/a:1", image(t, "/a", layer(t, text("small", "s")), layer(t, text("big", noise(1, 24<<20)))), nil)
		im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		err = p.feed(t.Context(), im, p.entries)
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), b.Layers[1].DiffID) || !strings.Contains(fault.Hint(err), "free some space") || fault.ExitCode(err) != fault.Failure {
			t.Errorf("err = %v, hint %q, exit code %d", err, fault.Hint(err), fault.ExitCode(err))
		}
		if err := im.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := im.Close(t.Context()); err != nil {
			t.Errorf("closing again: %v", err)
		}
		if sn, b := d.snapshots(), d.blobs(); len(sn)+len(b) > 0 {
			t.Errorf("left: snapshots %q, blobs %q", sn, b)
		}
		if used := diskUsage(t, root); used > 4<<20 {
			t.Errorf("%d bytes still in use", used)
		}
	})
}

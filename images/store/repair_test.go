package store_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"

	"airlift/bundle"
	"airlift/images/store"
)

// collect runs containerd's garbage collection and waits for it.
func (d *daemon) collect() {
	d.t.Helper()
	c := d.client("k8s.io")
	defer c.Close()
	lease, err := c.LeasesService().Create(d.t.Context(), leases.WithID("garbage"))
	if err != nil {
		d.t.Fatal(err)
	}
	if err := c.LeasesService().Delete(d.t.Context(), lease, leases.SynchronousDelete); err != nil {
		d.t.Fatal(err)
	}
}

// Missing must find every kind of damage to an image, and an import must repair it.
func TestMissingSeesDamageAndImportHeals(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		const ref = "registry.example.com/rich:v1"
		s := d.connect()
		var p imageSet
		img := richImage(t, "/rich")
		b := p.add(t, ref, img, index(t, img))
		importAll(t, s, &p)
		want := d.contents("k8s.io", img)
		healthy, labels := d.records(), d.gcLabels()
		c := d.client("k8s.io")
		defer c.Close()
		ctx := t.Context()

		removeBlob := func(dgst string) func() error {
			return func() error { return c.ContentStore().Delete(ctx, digest.Digest(dgst)) }
		}
		removeLabel := func(dgst, key string) func() error {
			return func() error {
				_, err := c.ContentStore().Update(ctx,
					content.Info{Digest: digest.Digest(dgst), Labels: map[string]string{key: ""}}, "labels."+key)
				return err
			}
		}
		relabel := func(name, key string) func() error {
			return func() error {
				_, err := c.ImageService().Update(ctx,
					images.Image{Name: name, Labels: map[string]string{key: ""}}, "labels."+key)
				return err
			}
		}
		removeRecord := func(name string) func() error {
			return func() error { return c.ImageService().Delete(ctx, name) }
		}
		snapshotLabel := "containerd.io/gc.ref.snapshot." + d.snapshotter
		for name, damage := range map[string]func() error{
			"top snapshot removed":    func() error { return c.SnapshotService(d.snapshotter).Remove(ctx, d.topSnapshot()) },
			"all snapshots collected": func() error { err := removeLabel(b.Config.Digest, snapshotLabel)(); d.collect(); return err },
			"config collected": func() error {
				err := removeLabel(b.Manifest.Digest, "containerd.io/gc.ref.content.config")()
				d.collect()
				return err
			},
			"manifest collected": func() error {
				err := removeLabel(b.Target.Digest, "containerd.io/gc.ref.content.m.0")()
				d.collect()
				return err
			},
			"index removed":          removeBlob(b.Target.Digest),
			"manifest removed":       removeBlob(b.Manifest.Digest),
			"config removed":         removeBlob(b.Config.Digest),
			"snapshot label removed": removeLabel(b.Config.Digest, snapshotLabel),
			"config label removed":   removeLabel(b.Manifest.Digest, "containerd.io/gc.ref.content.config"),
			"manifest label removed": removeLabel(b.Target.Digest, "containerd.io/gc.ref.content.m.0"),
			"unpinned":               relabel(ref, "io.cri-containerd.pinned"),
			"tag removed":            removeRecord(ref),
			"ID removed":             removeRecord(b.Config.Digest),
			"name by digest removed": removeRecord("registry.example.com/rich@" + b.Target.Digest),
			"everything removed":     func() error { return s.RemoveImages(ctx, []string{ref}) },
			"tag moved to another one": func() error {
				_, err := c.ImageService().Update(ctx, images.Image{Name: ref, Target: descriptorOf(b.Manifest)}, "target")
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				assertMissing(t, s, &p)
				if err := damage(); err != nil {
					t.Fatal(err)
				}
				assertMissing(t, s, &p, ref)
				importAll(t, s, &p)
				assertMissing(t, s, &p)
				d.collect()
				assertMissing(t, s, &p)
				compareTrees(t, d.contents("k8s.io", img), want)
				if got := d.records(); !maps.Equal(got, healthy) {
					t.Errorf("records = %v, want %v", got, healthy)
				}
				if got := d.gcLabels(); !slices.Equal(got, labels) {
					t.Errorf("labels = %v, want %v", got, labels)
				}
			})
		}
	})
}

// Intact parts must not be imported again.
func TestOnlyGapsAreWanted(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		s := d.connect()
		a, b, c := layer(t, text("a", "a")), layer(t, text("b", "b")), layer(t, text("c", "c"))
		// Another tool imported an image with the same lower layers.
		other := image(t, "/other", a, b)
		d.importTar("k8s.io", archive(t, d, "example.com/other:1", other))
		var p imageSet
		img := image(t, "/mine", a, b, c)
		mine := p.add(t, "registry.example.com/mine:1", img, index(t, img))
		im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range mine.Layers {
			if got, want := im.Wants(entryOf(&p, l.DiffID).Name), i == 2; got != want {
				t.Errorf("wants layer %d = %v, want %v", i, got, want)
			}
		}
		for _, name := range []string{"bin/kubelet", "blobs/sha256/" + strings.Repeat("0", 64), "manifest.json"} {
			if im.Wants(name) {
				t.Errorf("wants %s", name)
			}
		}
		// The other image's record is removed while the import uses its layers.
		d.ctr("k8s.io", "images", "rm", "--sync", "example.com/other:1", must(other.ConfigName()).String())
		d.collect()
		if err := p.feed(t.Context(), im, p.entries); err != nil {
			t.Error(err)
		}
		if err := im.Close(t.Context()); err != nil {
			t.Error(err)
		}
		d.collect()
		assertMissing(t, s, &p)
		if got := d.contents("k8s.io", img); len(got) != 4 {
			t.Errorf("files = %v", got)
		}
		im, err = s.NewImporter(t.Context(), p.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.entries {
			if im.Wants(e.Name) {
				t.Errorf("wants %s of a complete image", e.Name)
			}
		}
		if incomplete, err := im.Finish(t.Context()); err != nil || len(incomplete) > 0 || !im.Done() {
			t.Errorf("%d complete images are pending, %v", len(incomplete), err)
		}
		if err := im.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Images survive garbage collection, restarts and the removal of images that share their
// layers; with the last image everything is removed.
func TestGarbageCollection(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		s := d.connect()
		base, top := layer(t, text("base", noise(1, 1<<20))), layer(t, text("top", "top"))
		one, two := image(t, "/one", base), image(t, "/two", base, top)
		var p imageSet
		p.add(t, "registry.example.com/one:1", one, index(t, one))
		p.add(t, "registry.example.com/two:1", two, index(t, two))
		importAll(t, s, &p)
		files := d.contents("k8s.io", two)

		d.collect()
		d.restart()
		s = d.connect()
		d.collect()
		assertMissing(t, s, &p)
		compareTrees(t, d.contents("k8s.io", two), files)
		// The state after discard_unpacked_layers: usable, unpacked, and only the layers
		// are missing among the blobs (ctr counts configs and layers).
		for _, ref := range refs(p.images) {
			line := d.ctr("k8s.io", "images", "check", "--snapshotter", d.snapshotter, "name=="+ref)
			if !strings.Contains(line, ref) || !strings.HasSuffix(strings.TrimSpace(line), "true") || !strings.Contains(line, "incomplete (1/") {
				t.Errorf("ctr images check says:\n%s", line)
			}
		}

		if err := s.RemoveImages(t.Context(), []string{"registry.example.com/one:1"}); err != nil {
			t.Fatal(err)
		}
		d.collect()
		assertMissing(t, s, &p, "registry.example.com/one:1")
		compareTrees(t, d.contents("k8s.io", two), files)
		if err := s.RemoveImages(t.Context(), []string{"registry.example.com/two:1"}); err != nil {
			t.Fatal(err)
		}
		if sn, b := d.snapshots(), d.blobs(); len(sn)+len(b) > 0 {
			t.Errorf("left: snapshots %q, blobs %q", sn, b)
		}
	})
}

// The environment of TestHangingImporter: its containerd, and where it hangs, if not in the
// middle of the second layer: at the config, with all layers unpacked.
const (
	hangEnv   = "AIRLIFT_STORE_TEST_HANG_ON"
	hangAtEnv = "AIRLIFT_STORE_TEST_HANG_AT"
	atConfig  = "config"
)

func killedV1(t *testing.T) v1.Image {
	return image(t, "/k", layer(t, text("a", noise(1, 1<<20))), layer(t, text("b", noise(2, 1<<20))), layer(t, text("c", "c")))
}

// killedImage is the image that the killed importer imports.
func killedImage(t *testing.T) (imageSet, []string) {
	var p imageSet
	img := killedV1(t)
	b := p.add(t, "registry.example.com/k:1", img, index(t, img))
	var layers []string
	for _, l := range b.Layers {
		layers = append(layers, entryOf(&p, l.DiffID).Name)
	}
	return p, layers
}

// TestHangingImporter is not a test but the process that TestKilledImporter and others
// kill: it imports, and hangs in the middle.
func TestHangingImporter(t *testing.T) {
	socket := os.Getenv(hangEnv)
	if socket == "" {
		return
	}
	s, err := store.Connect(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	p, layers := killedImage(t)
	im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hangAt := layers[1]
	if os.Getenv(hangAtEnv) == atConfig {
		config := entryOf(&p, p.images[0].Config.Digest)
		hangAt = config.Name
		p.entries = append(slices.DeleteFunc(p.entries, func(e bundle.Entry) bool { return e == config }), config)
	}
	for _, e := range p.entries {
		var r io.Reader = bytes.NewReader(p.blobs[e.Name])
		if e.Name == hangAt {
			r = io.MultiReader(io.LimitReader(r, e.Size/2), hang{})
		}
		if err := im.Blob(t.Context(), e, r); err != nil {
			t.Fatal(err)
		}
	}
}

type hang struct{}

func (hang) Read([]byte) (int, error) {
	fmt.Println("hanging")
	select {}
}

// startHanging starts TestHangingImporter, and returns when it hangs.
func startHanging(t *testing.T, d *daemon, at string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHangingImporter$")
	cmd.Env = append(os.Environ(), hangEnv+"="+d.socket, hangAtEnv+"="+at)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		cmd.Wait()
	})
	t.Cleanup(kill)
	scanner := bufio.NewScanner(out)
	for scanner.Scan() && scanner.Text() != "hanging" {
	}
	if scanner.Text() != "hanging" {
		t.Fatal("the importer ended before it hung")
	}
	return kill
}

// The committed layers of a killed importer are used, its other snapshots are removed.
func TestKilledImporter(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		s := d.connect()
		kill := startHanging(t, d, "")
		// The blocked importer must count as alive: its snapshots stay while another
		// importer starts and ends. The first layer is committed in the background, and
		// another snapshot is prepared.
		unfinished := func(key string) bool { return strings.HasPrefix(key, "extract-") }
		isHalf := func(keys []string) bool {
			return len(keys) > 1 && len(slices.DeleteFunc(slices.Clone(keys), unfinished)) == 1
		}
		half := d.snapshots()
		for end := time.Now().Add(10 * time.Second); !isHalf(half) && time.Now().Before(end); half = d.snapshots() {
			time.Sleep(20 * time.Millisecond)
		}
		if !isHalf(half) {
			t.Fatalf("snapshots of half an import = %q", half)
		}
		var others imageSet
		others.add(t, "registry.example.com/other:1", image(t, "/other", layer(t, text("o", "o"))), nil)
		importAll(t, s, &others)
		d.collect()
		for _, key := range half {
			if !slices.Contains(d.snapshots(), key) {
				t.Errorf("snapshot %q of a running import was collected", key)
			}
		}

		whole := d.snapshots() // including snapshots of other images
		kill()
		d.restart()
		s = d.connect()
		d.collect()
		if got := d.snapshots(); len(got) != len(whole) {
			t.Errorf("snapshots after the kill = %q, before %q", got, whole)
		}

		p, layers := killedImage(t)
		im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if im.Wants(layers[0]) || !im.Wants(layers[1]) || !im.Wants(layers[2]) {
			t.Error("wants not just the layers that were not finished")
		}
		for _, key := range d.snapshots() { // the new importer may have prepared some
			if strings.HasPrefix(key, "extract-") && slices.Contains(half, key) {
				t.Errorf("unfinished snapshot %q of the killed importer left", key)
			}
		}
		if err := p.feed(t.Context(), im, p.entries); err != nil {
			t.Error(err)
		}
		if err := im.Close(t.Context()); err != nil {
			t.Error(err)
		}
		assertMissing(t, s, &p)
		if got, l := d.snapshots(), d.leases(); len(got) != 4 || len(l) > 0 {
			t.Errorf("at last: snapshots %q, leases %q", got, l)
		}
	})
}

// What an importer unpacked before a power cut cannot be trusted: the database says
// committed, but the files may never have been written to the disk.
func TestPowerCut(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		s := d.connect()
		p, layers := killedImage(t)
		im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.feed(t.Context(), im, p.entries[:len(p.entries)-1]); err != nil {
			t.Fatal(err)
		}
		// Power cut: the lease stays, with the ID of another boot.
		c := d.client("k8s.io")
		defer c.Close()
		ctx := t.Context()
		held, err := c.LeasesService().List(ctx)
		if err != nil || len(held) != 1 {
			t.Fatalf("leases = %v, %v", held, err)
		}
		resources, err := c.LeasesService().ListResources(ctx, held[0])
		if err != nil {
			t.Fatal(err)
		}
		before, err := c.LeasesService().Create(ctx, leases.WithID("airlift-before"), leases.WithLabel("airlift.dev/import", "another boot"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resources {
			if err := c.LeasesService().AddResource(ctx, before, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := im.Close(ctx); err != nil {
			t.Fatal(err)
		}
		finished := slices.DeleteFunc(d.snapshots(), func(key string) bool { return strings.HasPrefix(key, "extract-") })
		if len(finished) != 2 {
			t.Fatalf("finished snapshots after the power cut = %q", finished)
		}

		im, err = s.NewImporter(ctx, p.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range layers {
			if !im.Wants(l) {
				t.Errorf("does not want %s again", l)
			}
		}
		if err := p.feed(ctx, im, p.entries); err != nil {
			t.Error(err)
		}
		if err := im.Close(ctx); err != nil {
			t.Error(err)
		}
		assertMissing(t, s, &p)
		if l := d.leases(); len(l) > 0 {
			t.Errorf("leases left: %q", l)
		}
	})
}

// A lease that no importer deletes expires.
func TestLeaseExpires(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	im, err := s.NewImporter(t.Context(), nil, store.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close(t.Context())
	c := d.client("k8s.io")
	defer c.Close()
	leases, err := c.LeasesService().List(t.Context())
	if err != nil || len(leases) != 1 {
		t.Fatalf("leases = %v, %v", leases, err)
	}
	until, err := time.Parse(time.RFC3339, leases[0].Labels["containerd.io/gc.expire"])
	if err != nil || time.Until(until) < time.Hour || time.Until(until) > 48*time.Hour {
		t.Errorf("the lease expires at %v (%v)", until, err)
	}
}

package store_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"

	"airlift/bundle"
	"airlift/images/store"
)

func (p *imageSet) feed(ctx context.Context, im *store.Importer, entries []bundle.Entry) error {
	for _, e := range entries {
		if im.Wants(e.Name) {
			if err := im.Blob(ctx, e, bytes.NewReader(p.blobs[e.Name])); err != nil {
				return err
			}
		}
	}
	_, err := im.Finish(ctx)
	return err
}

// importAll imports the missing images in one pass, as the installer does.
func importAll(t testing.TB, s *store.Store, p *imageSet) (imported []string) {
	t.Helper()
	ctx := t.Context()
	missing, err := s.Missing(ctx, p.images)
	if err != nil {
		t.Fatal(err)
	}
	im, err := s.NewImporter(ctx, missing, store.ImportOptions{
		OnImage: func(_ context.Context, img bundle.Image) error {
			imported = append(imported, img.Reference)
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.feed(ctx, im, p.entries); err != nil {
		t.Error(err)
	}
	if incomplete, err := im.Finish(ctx); err != nil || len(incomplete) > 0 {
		t.Errorf("%d images are not complete after the whole stream, %v", len(incomplete), err)
	}
	if err := im.Close(ctx); err != nil {
		t.Error(err)
	}
	return imported
}

func refs(images []bundle.Image) []string {
	var r []string
	for _, img := range images {
		r = append(r, img.Reference)
	}
	return r
}

func assertMissing(t *testing.T, s *store.Store, p *imageSet, want ...string) {
	t.Helper()
	missing, err := s.Missing(t.Context(), p.images)
	if err != nil {
		t.Fatal(err)
	}
	if got := refs(missing); !slices.Equal(got, want) {
		t.Errorf("missing = %q, want %q", got, want)
	}
}

// contents returns the files of an image as in a container.
func (d *daemon) contents(namespace string, img v1.Image) map[string]string {
	d.t.Helper()
	var diffIDs []digest.Digest
	for _, id := range must(img.ConfigFile()).RootFS.DiffIDs {
		diffIDs = append(diffIDs, digest.Digest(id.String()))
	}
	c := d.client(namespace)
	defer c.Close()
	ctx := d.t.Context()
	sn := c.SnapshotService(d.snapshotter)
	root := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "test"})
	mounts, err := sn.View(ctx, "test", identity.ChainID(diffIDs).String(), root)
	if err != nil {
		d.t.Fatal(err)
	}
	defer sn.Remove(ctx, "test")
	var files map[string]string
	err = mount.WithReadonlyTempMount(ctx, mounts, func(dir string) error {
		files = tree(d.t, dir)
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return files
}

func TestImportEqualsCtrImport(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		const ref = "registry.example.com/rich:v1"
		img := richImage(t, "/rich")
		var p imageSet
		p.add(t, ref, img, index(t, img))

		s := d.connect()
		assertMissing(t, s, &p, ref)
		if got := importAll(t, s, &p); !slices.Equal(got, []string{ref}) {
			t.Errorf("imported = %q", got)
		}
		assertMissing(t, s, &p)

		d.importTar("oracle", archive(t, d, ref, img))
		compareTrees(t, d.contents("k8s.io", img), d.contents("oracle", img))
	})
}

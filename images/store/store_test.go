package store_test

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/images/store"
)

// releases are the containerds that every behaviour is shown on.
func releases(t *testing.T) []release {
	t.Helper()
	ctr, err := exec.LookPath("containerd")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(ctr, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(strings.Fields(string(out))[2], "v")
	return []release{{name, filepath.Dir(ctr)}}
}

// onEach runs a test against each release with each snapshotter.
func onEach(t *testing.T, test func(t *testing.T, d *daemon)) {
	for _, rel := range releases(t) {
		for _, sn := range []string{"overlayfs", "native"} {
			t.Run(rel.name+"/"+sn, func(t *testing.T) { test(t, startDaemon(t, rel, sn)) })
		}
	}
}

func (p *payload) feed(ctx context.Context, im *store.Importer, entries []bundle.Entry) error {
	for _, e := range entries {
		if im.Wants(e.Name) {
			if err := im.Blob(ctx, e, bytes.NewReader(p.blobs[e.Name])); err != nil {
				return err
			}
		}
	}
	return nil
}

// importAll imports the payload as the installer would: what is missing, in
// one pass.
func importAll(t *testing.T, s *store.Store, p *payload) (imported []string) {
	t.Helper()
	ctx := t.Context()
	missing, err := s.Missing(ctx, p.images)
	if err != nil {
		t.Fatal(err)
	}
	im, err := s.NewImporter(ctx, missing, store.ImportOptions{
		OnImage: func(img bundle.Image) { imported = append(imported, img.Reference) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.feed(ctx, im, p.entries); err != nil {
		t.Error(err)
	}
	if pending := im.Pending(); len(pending) > 0 {
		t.Errorf("%d images are not complete after the whole stream", len(pending))
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

func assertMissing(t *testing.T, s *store.Store, p *payload, want ...string) {
	t.Helper()
	missing, err := s.Missing(t.Context(), p.images)
	if err != nil {
		t.Fatal(err)
	}
	if got := refs(missing); !slices.Equal(got, want) {
		t.Errorf("missing = %q, want %q", got, want)
	}
}

// mounted returns the tree of an image as ctr mounts it.
func (d *daemon) mounted(namespace, ref string) map[string]string {
	d.t.Helper()
	dir := d.t.TempDir()
	d.ctr(namespace, "images", "mount", "--snapshotter", d.snapshotter, ref, dir)
	defer d.ctr(namespace, "images", "unmount", dir)
	return tree(d.t, dir)
}

func TestImportEqualsCtrImport(t *testing.T) {
	onEach(t, func(t *testing.T, d *daemon) {
		const ref = "registry.example.com/rich:v1"
		img := richImage(t, "/rich")
		var p payload
		p.add(t, ref, img, index(t, img))

		s := d.connect()
		assertMissing(t, s, &p, ref)
		if got := importAll(t, s, &p); !slices.Equal(got, []string{ref}) {
			t.Errorf("imported = %q", got)
		}
		assertMissing(t, s, &p)

		d.importTar("oracle", archive(t, d, ref, img))
		compareTrees(t, d.mounted("k8s.io", ref), d.mounted("oracle", ref))
	})
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
)

// write writes a bundle file with the images. The test's own executable is the launcher.
func (p *imageSet) write(t *testing.T) string {
	t.Helper()
	m := &bundle.Manifest{
		FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "none",
		Images: p.images, Entries: p.entries,
	}
	binary := must(os.ReadFile(os.Args[0]))
	executables := bundle.Executables{Launcher: binary, Installer: []byte("not a binary")}
	path := filepath.Join(t.TempDir(), "install")
	testbundle.WriteFile(t, path, executables, m, bundle.Fastest, p.blobs)
	return path
}

// importBundle does what the installer does with a bundle file.
func importBundle(t testing.TB, s *store.Store, path string) (imported []string, err error) {
	t.Helper()
	ctx := t.Context()
	f, err := bundle.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	stream, err := f.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	stream.Skip(func(e bundle.Entry) bool { return !strings.HasPrefix(e.Name, bundle.BlobDir) })
	missing, err := s.Missing(ctx, must(f.Manifest()).Images)
	if err != nil {
		return nil, err
	}
	im, err := s.NewImporter(ctx, missing, store.ImportOptions{
		OnImage: func(_ context.Context, img bundle.Image) error {
			imported = append(imported, img.Reference)
			return nil
		}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, im.Close(ctx)) }()
	for !im.Done() {
		e, r, err := stream.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return imported, err
		}
		if im.Wants(e.Name) {
			if err := im.Blob(ctx, e, r); err != nil {
				return imported, err
			}
		}
	}
	incomplete, err := im.Finish(ctx)
	if err == nil && len(incomplete) > 0 {
		err = fmt.Errorf("%d images are incomplete", len(incomplete))
	}
	return imported, err
}

func TestFromBundleFile(t *testing.T) {
	onEach(t, func(t *testing.T, rel release) {
		d := startDaemon(t, rel, "overlayfs")
		s := d.connect()
		p, images := crossed(t)
		rich := richImage(t, "/rich")
		const ref = "registry.example.com/rich:v1"
		images[ref] = rich
		p.add(t, ref, rich, index(t, rich))
		path := p.write(t)

		imported, err := importBundle(t, s, path)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Sort(imported); !slices.Equal(imported, sortedKeys(images)) {
			t.Errorf("imported = %q", imported)
		}
		assertMissing(t, s, &p)
		d.importTar("oracle", archive(t, d, ref, rich))
		compareTrees(t, d.contents("k8s.io", rich), d.contents("oracle", rich))

		if again, err := importBundle(t, s, path); err != nil || len(again) > 0 {
			t.Errorf("importing again imported %q, %v", again, err)
		}
	})
}

// The error about damage that the bundle's reader finds must be returned unchanged.
func TestFromDamagedBundleFile(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	var p imageSet
	img := richImage(t, "/rich")
	p.add(t, "registry.example.com/rich:v1", img, index(t, img))
	path := p.write(t)
	b := must(os.ReadFile(path))
	b[len(b)-1<<20] ^= 0x10 // in the middle of the layers
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	imported, err := importBundle(t, s, path)
	if err == nil || fault.ExitCode(err) != fault.Bundle || len(imported) > 0 {
		t.Errorf("imported %q, err = %v", imported, err)
	}
	if r, sn := d.records(), d.snapshots(); len(r)+len(sn) > 0 {
		t.Errorf("left: records %v, snapshots %q", r, sn)
	}
}

func TestConnectSaysWhatItSaw(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := store.Connect(ctx, filepath.Join(dir, "none.sock"))
	for _, want := range []string{"none.sock", "deadline exceeded", "last seen: ", "no such file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q in it", err, want)
		}
	}
	if !strings.Contains(fault.Hint(err), "journalctl -u containerd") {
		t.Errorf("hint = %q", fault.Hint(err))
	}

	// A server that listens but never answers.
	mute := filepath.Join(dir, "mute.sock")
	l := must(net.Listen("unix", mute))
	defer l.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := store.Connect(ctx, mute); err == nil || !strings.Contains(err.Error(), "mute.sock") {
		t.Errorf("err = %v", err)
	}
}

// Connect must notice within moments that containerd has started.
func TestConnectWaits(t *testing.T) {
	d := newDaemon(t, ours(t), "overlayfs")
	connected := make(chan error, 1)
	go func() {
		s, err := store.Connect(t.Context(), d.socket)
		if err == nil {
			s.Close()
		}
		connected <- err
	}()
	select {
	case err := <-connected:
		t.Fatalf("connected to nothing: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	d.start()
	if err := <-connected; err != nil {
		t.Fatal(err)
	}
}

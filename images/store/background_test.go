package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/internal/fault"
)

// several returns images with two layers each; the lower layer is shared.
func several(t *testing.T, n int) imageSet {
	t.Helper()
	var p imageSet
	base := layer(t, text("base", noise(1, 300_000)))
	for i := range n {
		img := image(t, fmt.Sprint("/", i), base, layer(t, text("own", noise(uint64(i+2), 200_000))))
		p.add(t, fmt.Sprintf("registry.example.com/image-%d:1", i), img, index(t, img))
	}
	return p
}

// assertNothingLeft fails if a closed importer left anything that no image needs, in
// containerd or in this process.
func assertNothingLeft(t *testing.T, d *daemon, goroutines int) {
	t.Helper()
	if l := d.leases(); len(l) > 0 {
		t.Errorf("leases left: %q", l)
	}
	for _, key := range d.snapshots() {
		if strings.HasPrefix(key, "extract-") {
			t.Errorf("unfinished snapshot left: %q", key)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<18)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), goroutines, buf[:runtime.Stack(buf, true)])
		}
	}
}

// failing returns some content and then an error.
type failing struct {
	r   io.Reader
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

// The reader of a bundle opens the import in a group that ends with the stream, and waits for the images afterwards.
func TestImportOutlivesItsStream(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	p := several(t, 4)
	stream, end := context.WithCancel(t.Context())
	im, err := s.NewImporter(stream, p.images, store.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range p.entries {
		if err := im.Blob(stream, e, bytes.NewReader(p.blobs[e.Name])); err != nil {
			t.Fatal(err)
		}
	}
	end()
	incomplete, err := im.Finish(t.Context())
	if err == nil {
		err = im.Close(t.Context())
	}
	if missing, missingErr := s.Missing(t.Context(), p.images); err != nil || missingErr != nil || len(incomplete)+len(missing) > 0 {
		t.Errorf("%v, %v: incomplete %v, missing %v", err, missingErr, incomplete, missing)
	}
}

// If an import ends early for any reason and at any point, it returns the error, images are
// usable or do not exist, and nothing else remains. A second import adds the missing
// images.
func TestEndsInTheMiddle(t *testing.T) {
	broken := errors.New("the medium was pulled out")
	for name, c := range map[string]struct {
		// end passes on the entry during which the import ends.
		end  func(ctx context.Context, cancel func(), im *store.Importer, e bundle.Entry, content []byte) error
		want error
		code fault.Code
	}{
		"the stream fails": {func(ctx context.Context, _ func(), im *store.Importer, e bundle.Entry, content []byte) error {
			return im.Blob(ctx, e, &failing{bytes.NewReader(content[:len(content)/2]), broken})
		}, broken, fault.Failure},
		"it is cancelled": {func(ctx context.Context, cancel func(), im *store.Importer, e bundle.Entry, content []byte) error {
			return im.Blob(ctx, e, &cancelling{bytes.NewReader(content), len(content) / 2, cancel})
		}, context.Canceled, fault.Interrupted},
		"it is cancelled between two": {func(ctx context.Context, cancel func(), im *store.Importer, e bundle.Entry, content []byte) error {
			cancel()
			_, err := im.Finish(ctx)
			return errors.Join(err, im.Blob(ctx, e, bytes.NewReader(content)))
		}, context.Canceled, fault.Interrupted},
		"an entry is damaged": {func(ctx context.Context, _ func(), im *store.Importer, e bundle.Entry, content []byte) error {
			content = slices.Clone(content)
			content[len(content)/2] ^= 1
			err := im.Blob(ctx, e, bytes.NewReader(content))
			_, finishErr := im.Finish(ctx) // a document's digest is compared in the background
			return errors.Join(err, finishErr)
		}, nil, fault.Bundle},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, ours(t), "overlayfs")
			s := d.connect()
			p := several(t, 4)
			s.Missing(t.Context(), p.images) // opens the files that the connection needs
			goroutines := runtime.NumGoroutine()
			for at := range p.entries {
				ctx, cancel := context.WithCancel(t.Context())
				usable := map[string]bool{}
				im, err := s.NewImporter(ctx, p.images, store.ImportOptions{OnImage: func(_ context.Context, img bundle.Image) error {
					usable[img.Reference] = true
					return nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range p.entries[:at] {
					if err := im.Blob(ctx, e, bytes.NewReader(p.blobs[e.Name])); err != nil {
						t.Fatal(err)
					}
				}
				e := p.entries[at]
				err = c.end(ctx, cancel, im, e, p.blobs[e.Name])
				if err == nil || c.want != nil && !errors.Is(err, c.want) || fault.ExitCode(err) != c.code {
					t.Errorf("entry %d: err = %v, exit code %d", at, err, fault.ExitCode(err))
				}
				if err := im.Close(ctx); err != nil {
					t.Errorf("entry %d: closing: %v", at, err)
				}
				assertNothingLeft(t, d, goroutines)
				missing, err := s.Missing(t.Context(), p.images)
				if err != nil {
					t.Fatal(err)
				}
				for _, img := range p.images {
					if lacks := slices.Contains(refs(missing), img.Reference); usable[img.Reference] && lacks {
						t.Errorf("entry %d: %s was called usable and is missing", at, img.Reference)
					}
				}
				if err := s.RemoveImages(t.Context(), refs(p.images)); err != nil {
					t.Fatal(err)
				}
				if sn, b := d.snapshots(), d.blobs(); len(sn)+len(b) > 0 {
					t.Errorf("entry %d: left without any image: snapshots %q, blobs %q", at, sn, b)
				}
				cancel()
			}
			importAll(t, s, &p)
			assertMissing(t, s, &p)
			assertNothingLeft(t, d, goroutines)
		})
	}
}

// The disk may also become full in the background: while containerd commits, or records an image.
func TestDiskFullBehind(t *testing.T) {
	d := newDaemon(t, ours(t), "overlayfs")
	root := d.path("root")
	if err := os.Mkdir(root, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatal(err)
	}
	d.start()
	s := d.connect()
	p := several(t, 200)
	im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = p.feed(t.Context(), im, p.entries)
	if !errors.Is(err, unix.ENOSPC) && (err == nil || !strings.Contains(err.Error(), "no space left")) {
		t.Errorf("err = %v", err)
	}
	if err := im.Close(t.Context()); err != nil {
		t.Errorf("closing: %v", err)
	}
	if l := d.leases(); len(l) > 0 {
		t.Errorf("leases left: %q", l)
	}
}

// An error of OnImage fails the import.
func TestOnImageFails(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	p := several(t, 3)
	refused := errors.New("refused")
	told := 0
	im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{OnImage: func(context.Context, bundle.Image) error {
		told++
		return refused
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.feed(t.Context(), im, p.entries); !errors.Is(err, refused) {
		t.Errorf("err = %v", err)
	}
	if err := im.Blob(t.Context(), p.entries[0], bytes.NewReader(nil)); !errors.Is(err, refused) {
		t.Errorf("the next blob: %v", err)
	}
	if err := im.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if told != 1 {
		t.Errorf("told of %d images, want none after the first", told)
	}
}

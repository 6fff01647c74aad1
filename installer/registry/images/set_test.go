package images_test

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/installer/registry/images"
	"airlift/scripts/fixtures/testbundle"
)

// The first bundle decides the tag; the digests of all are served. Bundles are added and removed while clients pull.
func TestSet(t *testing.T) {
	var files []*bundle.File
	var list []bundle.Image
	var all []testbundle.CompressedLayer
	for _, text := range []string{"old", "new"} {
		b := testbundle.NewImages()
		l := testbundle.CompressedLayer{Tar: tar(t, text, 200_000), Encoder: "go-gzip-6"}
		list, all = append(list, b.AddCompressed(t, "registry.example/app:v1", l)), append(all, l)
		files = append(files, write(t, text, b))
	}
	older, newer := files[0], files[1]
	s := serve(t)
	digests := func() (tag string, served []bool) {
		t.Helper()
		tag = s.get(t, "/v2/registry.example/app/manifests/v1").Header.Get("Docker-Content-Digest")
		for n, i := range list {
			a := s.get(t, "/v2/registry.example/app/manifests/"+i.Target.Digest)
			l := s.get(t, blobPath("registry.example/app", digestOf(t, all[n])))
			served = append(served, a.StatusCode == 200 && l.StatusCode == 200 && bytes.Equal(l.body, all[n].Blob(t)))
		}
		return tag, served
	}
	for _, c := range []struct {
		files    []*bundle.File
		tag      string
		old, new bool
	}{
		{nil, "", false, false},
		{[]*bundle.File{older}, list[0].Target.Digest, true, false},
		{[]*bundle.File{older, newer}, list[0].Target.Digest, true, true},
		{[]*bundle.File{newer, older}, list[1].Target.Digest, true, true},
		{[]*bundle.File{newer}, list[1].Target.Digest, false, true},
		{nil, "", false, false},
	} {
		if err := s.Set(c.files); err != nil {
			t.Fatal(err)
		}
		if tag, served := digests(); tag != c.tag || served[0] != c.old || served[1] != c.new {
			t.Errorf("%v: %s, %v", c, tag, served)
		}
	}
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 20 {
				if a := s.get(t, "/v2/registry.example/app/manifests/v1"); a.StatusCode != 200 && a.StatusCode != 404 {
					t.Errorf("%s %s", a.Status, a.body)
				}
			}
		})
	}
	for n := range 10 {
		if err := s.Set(files[n%2:]); err != nil {
			t.Error(err)
		}
	}
	clients.Wait()
}

// The layers that only the base has come from the base; without it they are unknown.
func TestBase(t *testing.T) {
	shared := testbundle.CompressedLayer{Tar: tar(t, "shared", 100_000), Encoder: "go-gzip-6"}
	own := testbundle.CompressedLayer{Tar: tar(t, "own", 100_000), Encoder: "go-gzip-6"}
	b := testbundle.NewImages()
	b.AddCompressed(t, "registry.example/base:v1", shared)
	base := write(t, "base", b)
	b = testbundle.NewImages(bundle.OnlyImages)
	b.AddCompressed(t, "registry.example/more:v1", shared, own)
	diffID := "sha256:" + testbundle.Sum(shared.Tar)
	b.Manifest.Base = &bundle.Base{ManifestSHA256: base.ManifestSHA256(), Layers: []string{diffID}}
	for n, e := range b.Manifest.Entries {
		if e.Name == bundle.BlobName(diffID) {
			b.Manifest.Entries = append(b.Manifest.Entries[:n], b.Manifest.Entries[n+1:]...)
			break
		}
	}
	more := write(t, "more", b)
	s := serve(t, more)
	path := blobPath("registry.example/more", digestOf(t, shared))
	if a := s.get(t, path); a.StatusCode != 404 {
		t.Errorf("without the base: %s", a.Status)
	}
	if a := s.get(t, blobPath("registry.example/more", digestOf(t, own))); a.StatusCode != 200 {
		t.Errorf("own layer: %s", a.Status)
	}
	if err := s.Set([]*bundle.File{more, base}); err != nil {
		t.Fatal(err)
	}
	if a := s.get(t, path); a.StatusCode != 200 || !bytes.Equal(a.body, shared.Blob(t)) {
		t.Errorf("with the base: %s", a.Status)
	}
}

// When its only client is gone, the work for a blob ends, and the next client gets it whole (pain 5: no short body).
func TestClientGone(t *testing.T) {
	b := testbundle.NewImages()
	l := testbundle.CompressedLayer{Tar: tar(t, "app", 1<<20), Encoder: "zlib-9"}
	b.AddCompressed(t, "registry.example/app:v1", l)
	s := serve(t, write(t, "file", b))
	path := blobPath("registry.example/app", digestOf(t, l))
	for range 3 {
		resp, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	s.CloseClientConnections()
	if a := s.get(t, path); a.StatusCode != 200 || !bytes.Equal(a.body, l.Blob(t)) {
		t.Errorf("%s, %d bytes, %v", a.Status, len(a.body), a.err)
	}
}

// Pain 29: a transfer takes longer than any deadline of one write. Pain 8: while it waits, other requests are answered.
func TestSlowClient(t *testing.T) {
	b := testbundle.NewImages()
	l := testbundle.CompressedLayer{Tar: tar(t, "app", 4<<20), Encoder: "go-gzip-1"}
	b.AddCompressed(t, "registry.example/app:v1", l)
	s := serve(t, write(t, "file", b))
	path := blobPath("registry.example/app", digestOf(t, l))
	slow, err := s.Client().Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Body.Close()
	if a := s.get(t, path); a.StatusCode != 200 || !bytes.Equal(a.body, l.Blob(t)) {
		t.Errorf("%s, %v", a.Status, a.err)
	}
	var got bytes.Buffer
	for err == nil {
		time.Sleep(5 * time.Millisecond)
		_, err = io.CopyN(&got, slow.Body, 64<<10)
	}
	if err != io.EOF || !bytes.Equal(got.Bytes(), l.Blob(t)) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
}

// A damaged bundle does not stop the others.
func TestDamagedBundle(t *testing.T) {
	good, _ := hub(t)
	bad := testbundle.NewImages()
	bad.AddCompressed(t, "registry.example/app:v1", variety(t, "app")...)
	closed := write(t, "bad", bad)
	closed.Close()
	s := serve(t)
	if err := s.Set([]*bundle.File{closed, good}); err == nil {
		t.Error("no error")
	}
	if a := s.get(t, "/v2/registry.k8s.io/app/manifests/v1"); a.StatusCode != 200 {
		t.Error(a.Status)
	}
}

// The list has each image that its name brings, and whether all of its layers can be served.
func TestServed(t *testing.T) {
	first, second := testbundle.NewImages(), testbundle.NewImages()
	l := testbundle.CompressedLayer{Tar: tar(t, "text", 1000), Encoder: "go-gzip-6"}
	app := first.AddCompressed(t, "registry.example/app:v1", l)
	first.AddCompressed(t, "busybox:1.36", testbundle.CompressedLayer{Tar: tar(t, "other", 1000), Encoder: "go-gzip-6"})
	first.Manifest.Images[1].Layers[0].Compressed = nil // upstream's blob was not there when the bundle was built
	second.AddCompressed(t, "registry.example/app:v1", testbundle.CompressedLayer{Tar: tar(t, "later", 1000), Encoder: "go-gzip-6"})
	s := serve(t, write(t, "first", first), write(t, "second", second))
	list := s.Served()
	if len(list) != 2 || list[0].Reference != "docker.io/library/busybox:1.36" || list[0].Complete || list[0].Registry() != "docker.io" {
		t.Fatalf("%+v", list)
	}
	want := images.Served{Reference: "registry.example/app:v1", Digest: app.Target.Digest, ID: app.Config.Digest, Size: int64(len(l.Blob(t))), Complete: true}
	if list[1] != want {
		t.Errorf("%+v, want %+v", list[1], want)
	}
}

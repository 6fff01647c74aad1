package store_test

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/bundle"
	"airlift/images/store"
)

// podDaemon starts a containerd that runs pods, on any host.
func podDaemon(t *testing.T, rel release) *daemon {
	t.Helper()
	d := newDaemon(t, rel, "overlayfs")
	d.write("config.toml", strings.ReplaceAll(d.config(), "SystemdCgroup = true", "SystemdCgroup = false"))
	d.start()
	return d
}

// listed returns the images that containerd has, by their name.
func listed(t *testing.T, s *store.Store) map[string]store.Image {
	t.Helper()
	list, err := s.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]store.Image{}
	for _, i := range list {
		all[i.Name()] = i
	}
	return all
}

// pinned reports whether the kubelet sees an image as pinned.
func (d *daemon) pinned(ref string) bool {
	d.t.Helper()
	st := d.status(ref)
	return st != nil && st.Pinned
}

const (
	unmanagedRef  = "example.com/unmanaged:1"
	spareRef      = "registry.example.com/spare:1"
	kubernetesRef = "registry.example.com/coredns:1"
)

func TestImagesInUseAndPinned(t *testing.T) {
	p := busyImages(t)
	onEach(t, func(t *testing.T, rel release) {
		d := podDaemon(t, rel)
		s := d.connect()
		d.importTar("k8s.io", archive(t, d, unmanagedRef, image(t, "/x", layer(t, text("x", "not managed")))))
		awaitNames(t, d, unmanagedRef)
		d.collect() // ctr leaves an index
		importAll(t, s, &p)
		before := d.state()

		var more imageSet
		spare, coredns := image(t, "/spare", layer(t, text("spare", "spare"))), image(t, "/coredns", layer(t, text("coredns", "coredns")))
		more.add(t, spareRef, spare, index(t, spare))
		more.add(t, kubernetesRef, coredns, nil)
		more.images[1].Name = "coredns"
		importAll(t, s, &more)
		runPod(t, d, "runs", cri.NamespaceMode_NODE)

		all := listed(t, s)
		for ref, want := range map[string]store.Image{
			unmanagedRef:  {},
			pauseInConfig: {Pinned: true, Kind: store.Site, Containers: 1, Sandbox: true},
			appRef:        {Pinned: true, Kind: store.Site, Containers: 1},
			spareRef:      {Pinned: true, Kind: store.Site},
			kubernetesRef: {Pinned: true, Kind: store.Kubernetes},
		} {
			got := all[ref]
			if got.Pinned != want.Pinned || got.Kind != want.Kind || got.Containers != want.Containers || got.Sandbox != want.Sandbox || got.Size == 0 {
				t.Errorf("%s: %+v, want %+v", ref, got, want)
			}
			// ctr is the oracle for the digest.
			if fields := strings.Fields(d.ctr("k8s.io", "images", "ls", "name=="+ref)); !slices.Contains(fields, got.Digest) {
				t.Errorf("%s has %s, ctr prints %q", ref, got.Digest, fields)
			}
		}
		if len(all) != 5 {
			t.Errorf("%d images: %+v", len(all), all)
		}

		if err := s.Unpin(t.Context(), all[spareRef]); err != nil {
			t.Fatal(err)
		}
		if listed(t, s)[spareRef].Pinned {
			t.Error("the image is pinned after Unpin")
		}
		if !d.release.old() { // containerd 1.6 does not report it
			for d.pinned(spareRef) {
				if t.Context().Err() != nil {
					t.Fatal("the CRI reports the image as pinned after Unpin")
				}
			}
			if !d.pinned(kubernetesRef) {
				t.Error("the CRI reports another image as not pinned")
			}
		}
		if missing, err := s.Missing(t.Context(), more.images); err != nil || !slices.Equal(refs(missing), []string{spareRef}) {
			t.Errorf("missing after Unpin: %q, %v", refs(missing), err)
		}

		if err := s.Remove(t.Context(), all[appRef]); err == nil || !strings.Contains(err.Error(), appRef) {
			t.Errorf("removing an image in use: %v", err)
		}
		if err := s.RemovePods(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{spareRef, kubernetesRef, spareRef} {
			if err := s.Remove(t.Context(), all[ref]); err != nil {
				t.Fatal(err)
			}
		}
		sameState(t, d.state(), before)
		d.restart()
		s = d.connect()
		if got := listed(t, s); len(got) != 3 || got[appRef].Containers != 0 {
			t.Errorf("after a restart: %+v", got)
		}
	})
}

// A container uses the image that it was made from, even if a newer image has the name by now.
func TestReplacedImageInUse(t *testing.T) {
	p := busyImages(t)
	onEach(t, func(t *testing.T, rel release) {
		d := podDaemon(t, rel)
		s := d.connect()
		importAll(t, s, &p)
		runPod(t, d, "runs", cri.NamespaceMode_NODE)
		old := listed(t, s)[appRef]

		var next imageSet
		newer := image(t, "/newer", layer(t, text("newer", "newer")))
		next.add(t, appRef, newer, nil)
		importAll(t, s, &next)
		all := listed(t, s)
		if got := all[appRef]; got.ID == old.ID || got.Containers != 0 {
			t.Errorf("the newer image: %+v", got)
		}
		byDigest := "registry.example.com/app@" + old.Digest
		if got := all[byDigest]; got.ID != old.ID || got.Containers != 1 || got.Kind != store.Site || !slices.Equal(got.Names, []string{byDigest}) {
			t.Errorf("the image in use: %+v", got)
		}
		if err := s.RemovePods(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(t.Context(), all[byDigest]); err != nil {
			t.Fatal(err)
		}
		assertMissing(t, s, &next)
	})
}

// A container uses the images that it mounts. containerd has image volumes since 2.1.
func TestImageVolumeInUse(t *testing.T) {
	p := busyImages(t)
	d := podDaemon(t, ours(t))
	s := d.connect()
	importAll(t, s, &p)
	var more imageSet
	more.add(t, spareRef, image(t, "/spare", layer(t, text("spare", "spare"))), nil)
	importAll(t, s, &more)
	spare := listed(t, s)[spareRef]
	// The kubelet gives the image's ID.
	container := runPod(t, d, "mounts", cri.NamespaceMode_NODE, &cri.Mount{ContainerPath: "/volume", Readonly: true, Image: &cri.ImageSpec{Image: spare.ID, UserSpecifiedImage: spareRef}})
	if all := listed(t, s); all[spareRef].Containers != 1 || all[appRef].Containers != 1 {
		t.Errorf("the pod mounts %s: %+v", spareRef, all)
	}
	if err := s.Remove(t.Context(), spare); err == nil || !strings.Contains(err.Error(), "it is in use now") {
		t.Errorf("removing an image that is mounted: %v", err)
	}
	// A container that has ended is started again with the same volume.
	if err := s.StopContainer(t.Context(), container, 0); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, s)[spareRef]; got.Containers != 1 {
		t.Errorf("the stopped container mounts it: %+v", got)
	}
	if err := s.RemovePods(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), listed(t, s)[spareRef]); err != nil {
		t.Error(err)
	}
}

// An image that already existed, or that got a name from another tool, is not Airlift's.
func TestImagesThatOthersNamed(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	var p imageSet
	named, had := image(t, "/named", layer(t, text("a", "named"))), image(t, "/had", layer(t, text("b", "had")))
	p.add(t, "registry.example.com/named:1", named, nil)
	p.add(t, "registry.example.com/had:1", had, nil)
	d.importTar("k8s.io", archive(t, d, "registry.example.com/had:1", had))
	awaitNames(t, d, "registry.example.com/had:1")
	importAll(t, s, &p)
	d.ctr("k8s.io", "images", "tag", "registry.example.com/named:1", "registry.example.com/named:extra")
	awaitNames(t, d, "registry.example.com/named:extra")
	for name, img := range listed(t, s) {
		if img.Kind != "" || !img.Pinned {
			t.Errorf("%s: %+v", name, img)
		}
	}
}

func TestImportUnpinned(t *testing.T) {
	onEach(t, func(t *testing.T, rel release) {
		d := startDaemon(t, rel, "overlayfs")
		var p imageSet
		img := image(t, "/x", layer(t, text("x", "x")))
		p.add(t, spareRef, img, index(t, img))
		s := d.connect()
		s.LeaveUnpinned()
		importAll(t, s, &p)
		assertMissing(t, s, &p)
		if listed(t, s)[spareRef].Pinned || d.pinned(spareRef) {
			t.Error("the image is pinned")
		}
		pins := d.connect()
		assertMissing(t, pins, &p, spareRef)
		importAll(t, pins, &p)
		assertMissing(t, pins, &p)
		importAll(t, s, &p)
		if !listed(t, s)[spareRef].Pinned {
			t.Error("an import without pins has removed a pin")
		}
	})
}

// An image whose lower layers are in containerd is imported without them. A layer on top of
// other layers is needed again.
func TestLayersThatTheBundleLeavesOut(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		a, b := layer(t, text("a", noise(1, 5<<20))), layer(t, text("b", noise(2, 5<<20)))
		var base, more imageSet
		base.add(t, "registry.example.com/base:1", image(t, "/base", a, b), nil)
		onTop, moved := image(t, "/on-top", a, b, layer(t, text("c", "c"))), image(t, "/moved", layer(t, text("d", "d")), b)
		more.add(t, "registry.example.com/on-top:1", onTop, nil)
		more.add(t, "registry.example.com/moved:1", moved, nil)
		var leftOut []string
		var withoutBase []bundle.Entry
		for _, l := range base.images[0].Layers {
			leftOut = append(leftOut, l.DiffID)
		}
		for _, e := range more.entries {
			if !slices.Contains(leftOut, "sha256:"+e.SHA256) {
				withoutBase = append(withoutBase, e)
			}
		}
		s := d.connect()
		needed := func() (list []string) {
			t.Helper()
			all, err := s.LeftOut(t.Context(), more.images, leftOut)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range all {
				list = append(list, l.Image+" "+l.DiffID)
			}
			return list
		}
		if got, want := needed(), []string{"registry.example.com/on-top:1 " + leftOut[0], "registry.example.com/on-top:1 " + leftOut[1]}; !slices.Equal(got, want) {
			t.Errorf("without the base: %q, want %q", got, want)
		}
		importAll(t, s, &base)
		if got, want := needed(), []string{"registry.example.com/moved:1 " + leftOut[1]}; !slices.Equal(got, want) {
			t.Errorf("with the base: %q, want %q", got, want)
		}

		im, err := s.NewImporter(t.Context(), more.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := more.feed(t.Context(), im, withoutBase); err != nil {
			t.Fatal(err)
		}
		if incomplete, err := im.Finish(t.Context()); err != nil || !slices.Equal(refs(incomplete), []string{"registry.example.com/moved:1"}) {
			t.Errorf("incomplete without the layer: %q, %v", refs(incomplete), err)
		}
		if err := im.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		// The layer of the base comes first, before the one below it.
		missing, err := s.Missing(t.Context(), more.images)
		if err != nil {
			t.Fatal(err)
		}
		if im, err = s.NewImporter(t.Context(), missing, store.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := more.feed(t.Context(), im, append([]bundle.Entry{entryOf(&more, leftOut[1])}, withoutBase...)); err != nil {
			t.Fatal(err)
		}
		if err := im.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		assertMissing(t, s, &more)
		for ref, img := range map[string]v1.Image{"registry.example.com/on-top:1": onTop, "registry.example.com/moved:1": moved} {
			d.importTar("oracle", archive(t, d, ref, img))
			compareTrees(t, d.contents("k8s.io", img), d.contents("oracle", img))
		}
	})
}

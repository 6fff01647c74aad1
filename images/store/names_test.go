package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"

	"airlift/images/store"
)

// state lists what a containerd has: image names with target and labels, blobs, snapshots
// and leases.
func (d *daemon) state() []string {
	d.t.Helper()
	all := append(d.blobs(), d.snapshots()...)
	for line := range strings.Lines(d.ctr("k8s.io", "images", "ls")) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	all = append(all, d.leases()...)
	slices.Sort(all)
	return all
}

func sameState(t *testing.T, got, want []string) {
	t.Helper()
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("new: %s", line)
		}
	}
}

// A minimal ledger.
type noted []store.NameChange

func (n *noted) note(_ context.Context, changes []store.NameChange) error {
	*n = append(changes, *n...)
	return nil
}

// importUnmanaged imports images that Airlift does not manage: one with a name that another
// image gets later, and an unrelated one.
func importUnmanaged(t *testing.T, d *daemon) {
	t.Helper()
	for ref, text := range map[string]file{pauseInConfig: text("pause", "not managed"), "example.com/unrelated:1": text("other", "not managed")} {
		d.importTar("k8s.io", archive(t, d, ref, image(t, "/x", layer(t, text))))
	}
	// The CRI adds its own names, after a while.
	awaitNames(t, d, pauseInConfig, "example.com/unrelated:1")
	d.collect() // ctr leaves an index
}

// awaitNames waits until the CRI has the images.
func awaitNames(t *testing.T, d *daemon, refs ...string) {
	t.Helper()
	for _, ref := range refs {
		for d.status(ref) == nil {
			if t.Context().Err() != nil {
				t.Fatalf("the CRI does not know %s", ref)
			}
		}
	}
}

// An existing containerd has the same state as before after RestoreNames, also if it
// collected garbage or was restarted in between.
func TestRestoreNames(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		d.connect() // waits until it answers
		importUnmanaged(t, d)
		before := d.state()

		s := d.connect()
		var ledger noted
		s.BeforeNaming(ledger.note)
		var p imageSet
		img := richImage(t, "/rich")
		p.add(t, "registry.example.com/rich:v1", img, index(t, img))
		importAll(t, s, &p)
		if err := s.Tag(t.Context(), "registry.example.com/rich:v1", pauseInConfig); err != nil {
			t.Fatal(err)
		}
		// A second call changes nothing.
		if err := s.Tag(t.Context(), "registry.example.com/rich:v1", pauseInConfig); err != nil {
			t.Fatal(err)
		}
		if got, want := d.records()[pauseInConfig], d.records()["registry.example.com/rich:v1"]; got != want {
			t.Fatalf("%s is %s, want %s", pauseInConfig, got, want)
		}
		d.collect()
		d.restart()
		s = d.connect()
		d.collect()
		for range 2 {
			if left, err := s.RestoreNames(t.Context(), ledger); err != nil || len(left) > 0 {
				t.Fatalf("left %q, %v", left, err)
			}
			sameState(t, d.state(), before)
		}
		if st := d.status(pauseInConfig); st == nil {
			t.Errorf("the CRI does not know %s", pauseInConfig)
		}
	})
}

// After a kill between the write to the ledger and the change, RestoreNames changes nothing.
func TestRestoreWhatWasNotDone(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	d.connect()
	importUnmanaged(t, d)
	before := d.state()
	s := d.connect()
	var ledger noted
	killed := errors.New("killed")
	s.BeforeNaming(func(ctx context.Context, changes []store.NameChange) error {
		return errors.Join(ledger.note(ctx, changes), killed)
	})
	if err := s.Tag(t.Context(), "example.com/unrelated:1", pauseInConfig); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	sameState(t, d.state(), before)
	if left, err := s.RestoreNames(t.Context(), ledger); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	sameState(t, d.state(), before)
}

// Names that were changed since are left and reported.
func TestRestoreLeavesWhatOthersChanged(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	importUnmanaged(t, d)
	var ledger noted
	s.BeforeNaming(ledger.note)
	var p imageSet
	p.add(t, "registry.example.com/a:1", image(t, "/a", layer(t, text("a", "a"))), nil)
	p.add(t, "registry.example.com/b:1", image(t, "/b", layer(t, text("b", "b"))), nil)
	importAll(t, s, &p)
	if err := s.Tag(t.Context(), "registry.example.com/a:1", pauseInConfig); err != nil {
		t.Fatal(err)
	}
	c := d.client("k8s.io")
	defer c.Close()
	other, err := c.ImageService().Get(t.Context(), "example.com/unrelated:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pauseInConfig, "registry.example.com/a:1"} {
		if _, err := c.ImageService().Update(t.Context(), images.Image{Name: name, Target: other.Target}, "target"); err != nil {
			t.Fatal(err)
		}
	}
	left, err := s.RestoreNames(t.Context(), ledger)
	if err != nil || len(left) != 2 {
		t.Fatalf("left %q, %v", left, err)
	}
	for _, name := range []string{pauseInConfig, "registry.example.com/a:1"} {
		if now, err := c.ImageService().Get(t.Context(), name); err != nil || now.Target.Digest != other.Target.Digest {
			t.Errorf("%s is %v, %v", name, now, err)
		}
		if !strings.Contains(strings.Join(left, "\n"), "image name "+name+": it was changed after Airlift set it, and now points to "+other.Target.Digest.String()) {
			t.Errorf("left %q", left)
		}
	}
	if _, err := c.ImageService().Get(t.Context(), "registry.example.com/b:1"); err == nil {
		t.Error("registry.example.com/b:1 is left")
	}
}

// The remains of a killed import are removed at once, not after a day.
func TestRestoreRemovesKilledImport(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	before := d.state()
	kill := startHanging(t, d, "")
	kill()
	if held, err := d.client("k8s.io").LeasesService().List(t.Context()); err != nil || len(held) != 1 {
		t.Fatalf("leases %v, %v", held, err)
	}
	if left, err := s.RestoreNames(t.Context(), nil); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	sameState(t, d.state(), before)
}

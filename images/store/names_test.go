package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"airlift/images/store"

	"github.com/containerd/containerd/v2/core/images"
)

// state is what a containerd has: image names with target and labels, blobs,
// snapshots and leases.
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

// A ledger that is as short as one can be.
type noted []store.NameChange

func (n *noted) note(_ context.Context, changes []store.NameChange) error {
	*n = append(changes, *n...)
	return nil
}

// ofSomebody puts images into a containerd that are not this project's: one
// under a name that is given to another image later, and one that has nothing
// to do with that.
func ofSomebody(t *testing.T, d *daemon) {
	t.Helper()
	for ref, text := range map[string]file{pauseInConfig: text("pause", "somebody's"), "example.com/unrelated:1": text("other", "somebody's")} {
		d.importTar("k8s.io", archive(t, d, ref, image(t, "/x", layer(t, text))))
	}
	// The CRI gives them names of its own, in its own time.
	awaitNames(t, d, pauseInConfig, "example.com/unrelated:1")
	d.collect() // ctr leaves an index behind
}

// awaitNames waits until the CRI knows images.
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

// A containerd that is not ours has after a restoration what it had before,
// also when garbage was collected in between, or it was restarted.
func TestRestoreNames(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		d.connect() // it is up
		ofSomebody(t, d)
		before := d.state()

		s := d.connect()
		var ledger noted
		s.BeforeNaming(ledger.note)
		var p payload
		img := richImage(t, "/rich")
		p.add(t, "registry.example.com/rich:v1", img, index(t, img))
		importAll(t, s, &p)
		if err := s.Tag(t.Context(), "registry.example.com/rich:v1", pauseInConfig); err != nil {
			t.Fatal(err)
		}
		// Doing it again finds everything as it should be.
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

// Killed after the ledger was written, nothing has changed, and restoring does
// nothing.
func TestRestoreWhatWasNotDone(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	d.connect()
	ofSomebody(t, d)
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

// What somebody has changed since is left and reported.
func TestRestoreLeavesWhatOthersChanged(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	ofSomebody(t, d)
	var ledger noted
	s.BeforeNaming(ledger.note)
	var p payload
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
		if !strings.Contains(strings.Join(left, "\n"), "image name "+name+": it was changed since Airlift set it, and now points to "+other.Target.Digest.String()) {
			t.Errorf("left %q", left)
		}
	}
	if _, err := c.ImageService().Get(t.Context(), "registry.example.com/b:1"); err == nil {
		t.Error("registry.example.com/b:1 is left")
	}
}

// What a killed import has left goes at once, not after a day.
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

package store_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/images/store"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// Layers that somebody else has unpacked are on the disk when the image that
// adopts them appears: an import that was killed just before its sync, or
// containerd itself, which does not sync. The machine goes down at that moment:
// what is on the disk then is what the loop device's file holds.
func TestAdoptedLayersSurvivePowerCut(t *testing.T) {
	for name, unpack := range map[string]func(t *testing.T, d *daemon, img v1.Image){
		"killed import": func(t *testing.T, d *daemon, img v1.Image) {
			kill := startHanging(t, d, atConfig)
			unfinished := func() bool {
				got := d.snapshots()
				return len(got) < 3 || strings.Contains(strings.Join(got, " "), "extract-")
			}
			for end := time.Now().Add(30 * time.Second); unfinished(); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("not all layers are unpacked: %q", d.snapshots())
				}
			}
			kill()
		},
		"ctr import": func(t *testing.T, d *daemon, img v1.Image) {
			d.importTar("k8s.io", archive(t, d, "example.com/other:1", img))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, ours(t), "overlayfs")
			disk := onLoopDevice(t, d)
			d.start()
			s := d.connect()
			p, _ := killedImage(t)
			img := killedV1(t)
			unpack(t, d, img)

			after := d.path("after-the-power-cut")
			im, err := s.NewImporter(t.Context(), p.images, store.ImportOptions{OnImage: func(context.Context, bundle.Image) error {
				return exec.Command("cp", "--sparse=always", disk, after).Run()
			}})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range p.images[0].Layers {
				if im.Wants(entryOf(&p, l.DiffID).Name) {
					t.Errorf("layer %s is not adopted", l.DiffID)
				}
			}
			if err := p.feed(t.Context(), im, p.entries); err != nil {
				t.Fatal(err)
			}
			if err := im.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			lost := d.path("lost")
			mountLoop(t, after, lost)
			for _, dir := range d.snapshotDirs("k8s.io", img) {
				inside := must(filepath.Rel(d.path("root"), dir))
				if got, want := rawTree(t, filepath.Join(lost, inside)), rawTree(t, dir); !maps.Equal(got, want) {
					compareTrees(t, got, want)
				}
			}
		})
	}
}

// onLoopDevice puts a containerd's folder on a file system of its own, and
// returns the file that it is in.
func onLoopDevice(t *testing.T, d *daemon) (disk string) {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("no loop devices here, so that what a power cut leaves is NOT tested")
	}
	disk = d.path("disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 64<<20); err != nil {
		t.Fatal(err)
	}
	run(t, d.dir, "mkfs.ext4", "-q", disk)
	mountLoop(t, disk, d.path("root"))
	return disk
}

// mountLoop mounts a file. Nothing is written back by itself for a while.
func mountLoop(t *testing.T, disk, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	run(t, "/", "mount", "-o", "loop,commit=300", disk, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

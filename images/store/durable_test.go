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

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/images/store"
)

// Layers that another process unpacked are on the disk when an image that uses them is
// published: layers of an import that was killed just before its sync, or of containerd,
// which does not sync. The test simulates a power cut at that moment: the file of the loop
// device has what is on the disk.
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

// onLoopDevice moves a containerd's directory to a separate file system, and returns the
// file with it.
func onLoopDevice(t *testing.T, d *daemon) (disk string) {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Fatal("this test needs loop devices: ", err)
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

// mountLoop mounts a file. For a while, the kernel does not write anything back.
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

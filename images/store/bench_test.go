package store_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"airlift/scripts/upstream/components"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// BenchmarkControlPlane imports a control plane's real programs as images,
// once as we do and once as `ctr images import` does, into a fresh containerd
// each time:
//
//	go test -run=NONE -bench=ControlPlane -benchtime=3x ./images/store
//
// It reports seconds per import and MB of disk.
func BenchmarkControlPlane(b *testing.B) {
	var p payload
	archiveDir := b.TempDir()
	path := must(layout.Write(archiveDir, empty.Index))
	base := layer(b, dir("etc/"), text("etc/os-release", "ID=test"), text("usr/share/zoneinfo", noise(1, 2<<20)))
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns"} {
		binary, err := components.Path("v1.29.15", name)
		if err != nil {
			b.Skip(err)
		}
		program := text("usr/local/bin/"+name, string(must(os.ReadFile(binary))))
		program.Mode = 0o755
		img := image(b, name, base, layer(b, program))
		p.add(b, "registry.example.com/"+name+":v1", img, nil)
		if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{"io.containerd.image.name": "registry.example.com/" + name + ":v1"})); err != nil {
			b.Fatal(err)
		}
	}
	tarball := filepath.Join(b.TempDir(), "images.tar")
	writeTar(b, tarball, archiveDir)

	bench := func(name string, load func(b *testing.B, d *daemon)) {
		b.Run(name, func(b *testing.B) {
			var disk int64
			for b.Loop() {
				b.StopTimer()
				d := startDaemon(b, ours(b), "overlayfs")
				d.connect()
				b.StartTimer()
				load(b, d)
				b.StopTimer()
				disk = diskUsage(b, d.path("root"))
				d.stop()
				removeTree(b, d.dir)
				b.StartTimer()
			}
			b.ReportMetric(float64(disk)/1e6, "MB-disk")
		})
	}
	bench("snapshots", func(b *testing.B, d *daemon) { importAll(b, d.connect(), &p) })
	bench("ctr", func(b *testing.B, d *daemon) { d.importTar("k8s.io", tarball) })
}

// diskUsage returns the bytes that the files below dir take on the disk.
func diskUsage(t testing.TB, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		total += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

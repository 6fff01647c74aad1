//go:build e2e

package measure

import (
	"context"
	"slices"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// The measurements must match what the test does on a host.
func TestMeasuresWhatHappens(t *testing.T) {
	l, err := lab.Up(t.Context(), lab.Options{Name: "e2e-measure", Hosts: 1, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h := l.Hosts[0]
	gauge, err := BuildGauge(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := CopyGauge(t.Context(), gauge, h); err != nil {
		t.Fatal(err)
	}
	disk, err := SampleDisk(h)
	if err != nil {
		t.Fatal(err)
	}
	tempFiles, err := WatchTempFiles(h)
	if err != nil {
		t.Fatal(err)
	}

	// 40 MB of anonymous memory of tail, 30 MB of shared memory, 50 MB on disk and 20 MB in
	// /run for a moment; 10 MB remain.
	const mb = 1 << 20
	_, u, err := Run(t.Context(), h, "sh", "-ec", `
		head -c 41943040 /dev/zero | tail -c 41943040 >/dev/null
		head -c 31457280 /dev/zero >/dev/shm/held
		mkdir -p /var/tmp/deep/er
		head -c 52428800 /dev/zero >/var/tmp/deep/er/gone
		head -c 20971520 /dev/zero >/run/gone
		head -c 10485760 /dev/zero >/var/tmp/unnamed
		mv /var/tmp/unnamed /var/tmp/stays
		sleep 0.5
		rm -r /var/tmp/deep /run/gone /dev/shm/held`)
	if err != nil {
		t.Fatal(err)
	}
	removed, err := tempFiles.Stop()
	if err != nil {
		t.Fatal(err)
	}
	extra, _, err := disk.Extra()
	if err != nil {
		t.Fatal(err)
	}

	if u.Resident < 40*mb || u.Resident > 60*mb {
		t.Errorf("the largest process had %d MB, want tail's 40 and a little", u.Resident/mb)
	}
	if u.Memory < 50*mb || u.Memory > 60*mb {
		t.Errorf("%d MB were held at once, want the 30 in /dev/shm and the 20 in /run", u.Memory/mb)
	}
	if u.Wall < 500*time.Millisecond || u.CPU <= 0 || u.CPU > 2*u.Wall {
		t.Errorf("it took %v and %v of CPU time, and it slept half a second", u.Wall, u.CPU)
	}
	if extra < 99*mb || extra > 105*mb {
		t.Errorf("%d MB more were used than in the end, want the 100 that came and went", extra/mb)
	}
	for _, path := range []string{"/var/tmp/deep/er/gone", "/run/gone", "/dev/shm/held"} {
		// A removed directory has no path.
		if !slices.Contains(removed.Paths, path) && !slices.Contains(removed.Paths, "/(a removed directory)/gone") {
			t.Errorf("%s came and went; seen were %q", path, removed.Paths)
		}
	}
	if slices.Contains(removed.Paths, "/var/tmp/stays") || slices.Contains(removed.Paths, "/var/tmp/unnamed") {
		t.Errorf("what stays, under another name, has not gone; seen were %q", removed.Paths)
	}
	if removed.Bytes < 50*mb || removed.Bytes > 101*mb {
		t.Errorf("files of %d MB came and went, want up to 100", removed.Bytes/mb)
	}
}

// A slow disk has the given rate, also for what a process in its own cgroup syncs.
func TestSlowDisk(t *testing.T) {
	slow, err := NewSlowDisk(t.Context(), t.TempDir()+"/slow")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := slow.Remove(); err != nil {
			t.Error(err)
		}
	})
	l, err := lab.Up(t.Context(), lab.Options{Name: "e2e-slow", Hosts: 1, Log: t.Logf, Disks: slow.Dir})
	if err != nil {
		t.Fatal(err)
	}
	down := func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	}
	defer down() // before the disk is removed
	h := l.Hosts[0]
	root := l.Dir() + "/" + h.Name
	if err := Settle(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	const rate, size = int(50e6), 200 << 20
	if err := slow.Limit(rate, root); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if _, err := h.Output(t.Context(), "dd", "if=/dev/zero", "of=/var/tmp/file", "bs=1M", "count=200", "conv=fsync"); err != nil {
		t.Fatal(err)
	}
	// The drive's cache may still have a little. How much slower it was depends on the machine.
	if least := time.Duration((size-driveCache)/(rate/1e6)) * time.Microsecond; time.Since(started) < least {
		t.Errorf("200 MB were on the disk after %v, want at least %v", time.Since(started), least)
	}
	if err := slow.Unlimit(); err != nil {
		t.Fatal(err)
	}
}

package store_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"airlift/images/store"
	"airlift/scripts/fixtures/rig"
)

// A daemon is a real containerd with its own directory and socket, so the machine's
// containerd is not used.
type daemon struct {
	t           testing.TB
	release     release
	snapshotter string
	dir, socket string
	cmd         *exec.Cmd
}

// removeTree removes a containerd's directory. It first unmounts everything below it (ctr
// leaves mounts with native).
func removeTree(t testing.TB, dir string) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Error(err)
	}
	slices.Reverse(mounts)
	for _, m := range mounts {
		if err := unix.Unmount(m.Mountpoint, 0); err != nil {
			t.Fatalf("unmounting %s: %v", m.Mountpoint, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// pauseInConfig is the sandbox image in the daemons' configuration.
const pauseInConfig = "registry.example.com/other/pause:3.8"

// startDaemon starts a containerd, which is stopped and removed at the end of the test.
func startDaemon(t testing.TB, rel release, snapshotter string) *daemon {
	t.Helper()
	d := newDaemon(t, rel, snapshotter)
	d.start()
	return d
}

// newDaemon prepares a containerd without starting it.
func newDaemon(t testing.TB, rel release, snapshotter string) *daemon {
	t.Helper()
	rig.Root(t) // to run a containerd
	// Not t.TempDir(): /tmp may be a tmpfs, and hosts keep images on disk.
	dir, err := os.MkdirTemp(cmp.Or(os.Getenv("AIRLIFT_STORE_DIR"), "/var/tmp"), "airlift-store-")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, release: rel, snapshotter: snapshotter, dir: dir, socket: filepath.Join(dir, "c.sock")}
	t.Cleanup(func() { removeTree(t, dir) })
	d.write("config.toml", d.config())
	t.Cleanup(d.stop)
	return d
}

func (d *daemon) config() string {
	common := fmt.Sprintf(`
root = %q
state = %q
[grpc]
address = %q
[ttrpc]
address = %q
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.internal.v1.opt"]
path = %q
`, d.path("root"), d.path("state"), d.socket, d.socket+".ttrpc", d.path("opt"))
	if d.release.old() {
		return "version = 2\n" + common + fmt.Sprintf(`
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = %q
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %q
conf_dir = %q
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = %q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
`, pauseInConfig, d.path("cni"), d.path("net.d"), d.snapshotter)
	}
	return "version = 3\n" + common + fmt.Sprintf(`
[plugins."io.containerd.cri.v1.images"]
snapshotter = %q
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [%q]
conf_dir = %q
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = true
`, d.snapshotter, pauseInConfig, d.path("cni"), d.path("net.d"))
}

func (d *daemon) path(name string) string { return filepath.Join(d.dir, name) }

func (d *daemon) write(name, content string) {
	d.t.Helper()
	if err := os.WriteFile(d.path(name), []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(d.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(d.release.program(d.t, "containerd"), "--config", d.path("config.toml"))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.Env = append(os.Environ(), "PATH="+strings.Join(d.release.bin, ":")+":"+os.Getenv("PATH"))
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) stop() {
	if d.cmd == nil {
		return
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	d.cmd.Wait()
	d.cmd = nil
	if d.t.Failed() {
		d.t.Logf("containerd's warnings and errors:\n%s", d.complaints())
	}
}

// complaints returns the warnings and errors in containerd's log.
func (d *daemon) complaints() string {
	b, err := os.ReadFile(d.path("log"))
	if err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, "level=info") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func (d *daemon) restart() {
	d.t.Helper()
	d.stop()
	d.start()
}

func (d *daemon) connect() *store.Store {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*time.Minute)
	defer cancel()
	s, err := store.Connect(ctx, d.socket)
	if err != nil {
		d.t.Fatalf("%v\n%s", err, d.complaints())
	}
	d.t.Cleanup(func() { s.Close() })
	return s
}

// client connects without package store.
func (d *daemon) client(namespace string) *client.Client {
	d.t.Helper()
	c, err := client.New(d.socket, client.WithDefaultNamespace(namespace))
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

// importTar imports an image with ctr.
func (d *daemon) importTar(namespace, tar string) {
	d.t.Helper()
	args := []string{"images", "import", "--snapshotter", d.snapshotter}
	if !d.release.old() {
		// Since 2.0, containerd itself imports by default, and only with the snapshotters
		// of its configuration.
		args = append(args, "--local")
	}
	d.ctr(namespace, append(args, tar)...)
}

// ctr runs containerd's client and returns its output.
func (d *daemon) ctr(namespace string, args ...string) string {
	d.t.Helper()
	cmd := exec.Command(d.release.program(d.t, "ctr"),
		append([]string{"--address", d.socket, "--namespace", namespace}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	return string(out)
}

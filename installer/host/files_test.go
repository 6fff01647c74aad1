package host_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

func open(t *testing.T, root string) *host.Host {
	t.Helper()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// tree returns the files below a directory with their contents, and the
// directories.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		switch {
		case d.IsDir():
			found[name] = "dir"
		case d.Type()&fs.ModeSymlink != 0:
			found[name], err = os.Readlink(path)
		default:
			var data []byte
			data, err = os.ReadFile(path)
			found[name] = string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func TestWriteFileOnlyWritesWhatDiffers(t *testing.T) {
	root := t.TempDir()
	h := open(t, root)
	for i, step := range []struct {
		text    string
		mode    fs.FileMode
		changed bool
	}{
		{"one", 0o600, true}, {"one", 0o600, false}, {"two", 0o600, true}, {"two", 0o644, true}, {"two", 0o644, false},
	} {
		before, _ := os.Stat(root + "/etc/a/b.conf")
		changed, err := h.WriteFile("/etc/a/b.conf", []byte(step.text), step.mode)
		if err != nil || changed != step.changed {
			t.Fatalf("step %d: changed %t, %v; want %t", i, changed, err, step.changed)
		}
		after, err := os.Stat(root + "/etc/a/b.conf")
		if err != nil || after.Mode().Perm() != step.mode || read(t, root+"/etc/a/b.conf") != step.text {
			t.Fatalf("step %d: %v %v", i, after, err)
		}
		if !changed && !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("step %d: an unchanged file was written", i)
		}
	}
}

func TestResetRestoresTheHostAsItWas(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/etc/containerd/config.toml", "theirs", 0o640)
	if err := os.Symlink("elsewhere", root+"/etc/link"); err != nil {
		t.Fatal(err)
	}
	write(t, root+"/usr/local/bin/other", "other program", 0o755)
	before := tree(t, root)

	h := open(t, root)
	ctx := context.Background()
	for range 2 { // a second run of init must recognize Airlift's files
		for path, text := range map[string]string{
			"/etc/containerd/config.toml":             "ours",
			"/etc/link":                               "ours",
			"/etc/kubernetes/manifests/etcd.yaml":     "pod",
			"/etc/systemd/system/a.service.d/x.conf":  "unit",
			"/etc/cni/net.d/10-flannel.conflist":      "{}",
			"/var/lib/kubelet/config.yaml":            "kubelet",
			"/etc/kubernetes/pki/etcd/ca.crt":         "cert",
			"/etc/kubernetes/pki/apiserver-etcd.crt2": "cert",
		} {
			if _, err := h.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.InstallBinary(ctx, host.Binary{Path: "/usr/local/bin/kubelet", SHA256: sum("kubelet")}, strings.NewReader("kubelet")); err != nil {
			t.Fatal(err)
		}
		h = open(t, root) // as in the next process
	}
	if err := h.Claim(ledger.Claim{Path: "/run/flannel"}); err != nil {
		t.Fatal(err)
	}
	write(t, root+"/run/flannel/subnet.env", "", 0o600)
	if err := uninstall.RemoveState(ctx, h); err != nil {
		t.Fatal(err)
	}

	kept, err := uninstall.RemoveInstalled(ctx, h)
	if err != nil || len(kept) != 0 {
		t.Fatalf("kept %v, %v", kept, err)
	}
	after := tree(t, root)
	delete(after, "/var") // created for the ledger
	delete(after, "/var/lib")
	for path, text := range after {
		if before[path] != text {
			t.Errorf("%s: %q, was %q", path, text, before[path])
		}
	}
	for path := range before {
		if _, ok := after[path]; !ok {
			t.Errorf("%s is gone", path)
		}
	}
	if info, err := os.Stat(root + "/etc/containerd/config.toml"); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("restored file: %v %v", info, err)
	}
	if h.Records().Used() || open(t, root).Records().Used() {
		t.Error("the ledger still lists something")
	}
	if _, err := uninstall.RemoveInstalled(ctx, h); err != nil {
		t.Errorf("a second reset: %v", err)
	}
}

func TestResetKeepsWhatOthersChanged(t *testing.T) {
	root := t.TempDir()
	h := open(t, root)
	ctx := context.Background()
	if _, err := h.WriteFile("/etc/crictl.yaml", []byte("ours"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := h.InstallBinary(ctx, host.Binary{Path: "/usr/local/bin/kubelet", SHA256: sum("one")}, strings.NewReader("one")); err != nil {
		t.Fatal(err)
	}
	write(t, root+"/etc/crictl.yaml", "edited", 0o644)
	write(t, root+"/usr/local/bin/kubelet", "patched", 0o755)

	kept, err := uninstall.RemoveInstalled(ctx, h)
	if err != nil || len(kept) != 2 {
		t.Fatalf("kept %q, %v", kept, err)
	}
	if got := read(t, root+"/etc/crictl.yaml.airlift-saved"); got != "edited" {
		t.Errorf("saved file: %q", got)
	}
	if _, err := os.Stat(root + "/etc/crictl.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the edited file still acts: %v", err)
	}
	if got := read(t, root+"/usr/local/bin/kubelet"); got != "patched" {
		t.Errorf("program: %q", got)
	}
}

// After a crash between the write of the ledger and the write of the file, the
// file has its old content. It is still Airlift's file.
func TestCrashBetweenLedgerAndFile(t *testing.T) {
	root := t.TempDir()
	h := open(t, root)
	for _, text := range []string{"one", "two"} {
		if _, err := h.WriteFile("/etc/a.conf", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(t, root+"/etc/a.conf", "one", 0o644)
	kept, err := uninstall.RemoveInstalled(context.Background(), open(t, root))
	if err != nil || len(kept) != 0 {
		t.Errorf("kept %q, %v", kept, err)
	}
	if _, err := os.Stat(root + "/etc/a.conf"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the file is still there")
	}
}

// The ledger must list a file before the file exists.
func TestLedgerIsWrittenFirst(t *testing.T) {
	root := t.TempDir()
	h := open(t, root)
	r := readerFunc(func([]byte) (int, error) {
		if !open(t, root).Records().Wrote("/usr/local/bin/kubelet") {
			t.Error("a program is being written that the ledger does not list")
		}
		return 0, io.ErrUnexpectedEOF
	})
	_, err := h.InstallBinary(context.Background(), host.Binary{Path: "/usr/local/bin/kubelet", SHA256: sum("x")}, r)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("err = %v", err)
	}
	if files, _ := os.ReadDir(root + "/usr/local/bin"); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
	if _, err := uninstall.RemoveInstalled(context.Background(), h); err != nil {
		t.Error(err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestInstallBinary(t *testing.T) {
	const path = "/opt/cni/bin/bridge"
	b := func(text string) host.Binary { return host.Binary{Path: path, SHA256: sum(text)} }
	ctx := context.Background()

	t.Run("replaces its own older one, also while it runs", func(t *testing.T) {
		root := t.TempDir()
		h := open(t, root)
		program, err := os.ReadFile("/bin/sleep")
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := h.InstallBinary(ctx, b(string(program)), bytes.NewReader(program)); err != nil || !changed {
			t.Fatalf("%t %v", changed, err)
		}
		// Linux refuses writes to the file of a running binary ("text file
		// busy").
		f, err := os.Open(root + path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		process, err := os.StartProcess(root+path, []string{"sleep", "60"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		defer process.Wait()
		defer process.Kill()
		if changed, err := h.InstallBinary(ctx, b("two"), strings.NewReader("two")); err != nil || !changed {
			t.Fatalf("%t %v", changed, err)
		}
		info, err := os.Stat(root + path)
		if err != nil || info.Mode().Perm() != 0o755 || read(t, root+path) != "two" {
			t.Errorf("%v %v", info, err)
		}
	})
	t.Run("keeps an identical one without reading the bundle's", func(t *testing.T) {
		root := t.TempDir()
		write(t, root+path, "same", 0o644)
		h := open(t, root)
		changed, err := h.InstallBinary(ctx, b("same"), iotest.ErrReader(errors.New("was read")))
		if err != nil || !changed { // the mode has changed
			t.Fatalf("%t %v", changed, err)
		}
		if kept, err := uninstall.RemoveInstalled(ctx, h); err != nil || len(kept) != 0 {
			t.Fatalf("%v %v", kept, err)
		}
		if read(t, root+path) != "same" {
			t.Error("reset removed a binary that is not Airlift's")
		}
	})
	t.Run("leaves other binaries", func(t *testing.T) {
		root := t.TempDir()
		write(t, root+path, "theirs", 0o755)
		_, err := open(t, root).InstallBinary(ctx, b("ours"), strings.NewReader("ours"))
		if fault.ExitCode(err) != fault.Preflight || fault.Hint(err) == "" || !strings.Contains(err.Error(), "version conflict: "+path) {
			t.Errorf("err = %v", err)
		}
		if read(t, root+path) != "theirs" {
			t.Error("it was replaced")
		}
	})
	t.Run("shows nothing that has another sum", func(t *testing.T) {
		root := t.TempDir()
		_, err := open(t, root).InstallBinary(ctx, b("right"), strings.NewReader("wrong"))
		if fault.ExitCode(err) != fault.Bundle {
			t.Errorf("err = %v", err)
		}
		if files, _ := os.ReadDir(filepath.Dir(root + path)); len(files) != 0 {
			t.Errorf("left behind: %v", files)
		}
	})
	t.Run("stops with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_, err := open(t, t.TempDir()).InstallBinary(ctx, b("x"), strings.NewReader("x"))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
	})
}

func TestInstallCommand(t *testing.T) {
	root := t.TempDir()
	h := open(t, root)
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := h.InstallCommand(context.Background(), fmt.Sprintf("%x", sha256.Sum256([]byte("another program")))); err == nil {
		t.Error("a program other than the bundle's was taken for it")
	}
	if err := h.InstallCommand(context.Background(), fmt.Sprintf("%x", sha256.Sum256(self))); err != nil {
		t.Fatal(err)
	}
	if again := h.InstallCommand(context.Background(), fmt.Sprintf("%x", sha256.Sum256(self))); again != nil {
		t.Error(again)
	}
	if got := read(t, root+host.CommandPath); got != string(self) {
		t.Errorf("%s has %d bytes and not this program's %d", host.CommandPath, len(got), len(self))
	}
}

// TestFormerCommand: units of a former build run the command at its new path, and the former copy goes, also after a kill between
// two changes. Files that Airlift did not write stay.
func TestFormerCommand(t *testing.T) {
	const service, site = "/etc/systemd/system/airlift-registry.service", "/etc/systemd/system/airlift-of-the-site.service"
	text := func(command string) string {
		return "[Service]\nExecStart=" + command + " registry serve\n# see " + command + "\n"
	}
	for stop := range 8 {
		root := t.TempDir()
		write(t, root+site, text(host.FormerCommand), 0o644)
		h := open(t, root)
		h.Installer = "/bin/true"
		units := testhost.NewUnits(h, time.Now())
		if _, err := h.InstallBinary(t.Context(), host.Binary{Path: host.FormerCommand, SHA256: sum("former")}, strings.NewReader("former")); err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteFile(service, []byte(text(host.FormerCommand)), 0o644); err != nil {
			t.Fatal(err)
		}
		changes := 0
		units.Stale = true
		h.GuardChanges(func(_ string, do func() error) error {
			if changes++; changes == stop {
				return errors.New("killed")
			}
			return do()
		})
		if err := h.InstallSelf(t.Context()); (err != nil) != (stop > 0 && stop <= changes) {
			t.Fatalf("stopped at %d of %d: %v", stop, changes, err)
		}
		if err := h.InstallSelf(t.Context()); err != nil {
			t.Fatal(err)
		}
		command, err := os.ReadFile("/bin/true")
		if err != nil || read(t, root+host.CommandPath) != string(command) || filesystem.Exists(root+filepath.Dir(host.FormerCommand)) || h.Records().Wrote(host.FormerCommand) {
			t.Errorf("stopped at %d: %v", stop, err)
		}
		if got := read(t, root+service); !strings.Contains(got, "ExecStart="+host.CommandPath+" registry serve\n") || read(t, root+site) != text(host.FormerCommand) {
			t.Errorf("stopped at %d: %s", stop, got)
		}
		if units.Stale {
			t.Errorf("stopped at %d: systemd has not read the units", stop)
		}
	}
}

func TestDamagedLedgerIsAnError(t *testing.T) {
	for name, text := range map[string]string{"not JSON": "{", "from the future": `{"version": 99}`} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root+ledger.Path, text, 0o600)
			if _, err := host.Open(root); err == nil || fault.Hint(err) == "" {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestWriteSymlink(t *testing.T) {
	root := t.TempDir()
	h := open(t, root)
	const path = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	for i, step := range []struct {
		target  string
		changed bool
	}{{"one.pem", true}, {"one.pem", false}, {"two.pem", true}} {
		changed, err := h.WriteSymlink(path, step.target)
		if got, _ := os.Readlink(root + path); err != nil || changed != step.changed || got != step.target {
			t.Errorf("step %d: changed %t, %v, link to %q", i, changed, err, got)
		}
	}
	write(t, root+"/var/lib/kubelet/pki/two.pem", "key", 0o600)
	if _, err := uninstall.RemoveInstalled(context.Background(), h); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root + path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link is left: %v", err)
	}
	if read(t, root+"/var/lib/kubelet/pki/two.pem") != "key" {
		t.Error("what it points to is gone")
	}
}

func TestLock(t *testing.T) {
	root := t.TempDir()
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := host.OpenLocked(root); err == nil || !strings.Contains(err.Error(), "another installer") {
		t.Errorf("a second lock: %v", err)
	}
	if _, err := h.WriteFile("/etc/a.conf", []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	unlock()
	h, again, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	if !h.Records().Wrote("/etc/a.conf") {
		t.Error("the second does not know what the first wrote")
	}
	again()
}

func TestParallelWritesAllReachTheLedger(t *testing.T) {
	root := t.TempDir()
	h := open(t, root)
	var group errgroup.Group
	for i := range 20 {
		group.Go(func() error {
			_, err := h.WriteFile(fmt.Sprintf("/etc/a/%d/b", i), []byte("x"), 0o600)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := uninstall.RemoveInstalled(context.Background(), open(t, root)); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(root + "/etc*"); err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// verified is content whose reader checks a SHA-256 itself.
type verified struct {
	io.Reader
	sum string
}

func (v verified) Verifies() string { return v.sum }

// A binary appears under its name only after Settle. StageBinary hashes it unless its
// reader verifies the same digest.
func TestStagedBinary(t *testing.T) {
	good := sum("program")
	for name, c := range map[string]struct {
		r    io.Reader
		want string // substring of the error
	}{
		"good":                      {strings.NewReader("program"), ""},
		"damaged":                   {strings.NewReader("progrbm"), "its sha256 is"},
		"verified":                  {verified{strings.NewReader("program"), good}, ""},
		"verified as another":       {verified{strings.NewReader("progrbm"), sum("progrbm")}, "its sha256 is"},
		"verified and found broken": {io.MultiReader(strings.NewReader("prog"), iotest.ErrReader(errors.New("entry is damaged"))), "entry is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, t.TempDir())
			b := host.Binary{Path: "/opt/cni/bin/bridge", SHA256: good}
			staged, err := h.StageBinary(t.Context(), b, c.r)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("err = %v, want %q", err, c.want)
				}
				if list, _ := os.ReadDir(h.Path("/opt/cni/bin")); len(list) > 0 {
					t.Errorf("left: %v", list)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(h.Path(b.Path)); !os.IsNotExist(err) {
				t.Errorf("it is there before it is settled (%v)", err)
			}
			if err := staged.Settle(); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(h.Path(b.Path))
			if err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%v, %v", info, err)
			}
			if list, _ := os.ReadDir(h.Path("/opt/cni/bin")); len(list) != 1 {
				t.Errorf("next to it: %v", list)
			}
		})
	}
}

func TestNewDirectory(t *testing.T) {
	parent := t.TempDir()
	one, err := host.NewDirectory(filepath.Join(parent, "missing"), "dry-run-")
	if err != nil {
		t.Fatal(err)
	}
	two, err := host.NewDirectory(filepath.Join(parent, "missing"), "dry-run-")
	if err != nil || one.Path("/") == two.Path("/") {
		t.Fatalf("%s twice, %v", two.Path("/"), err)
	}
	if info, err := os.Stat(one.Path("/")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := one.WriteFile("/etc/kubernetes/admin.conf", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := one.RemoveDirectory(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(one.Path("/")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not removed: %v", err)
	}

	machine, err := host.Open(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := machine.RemoveDirectory(); err == nil {
		t.Error("a host was removed")
	}
	if _, err := os.Stat(two.Path("/")); err != nil {
		t.Error(err)
	}
}

// A later init or join replaces a file that was edited. It saves the edited file,
// warns about it, and reset knows the copy.
func TestRerunSavesEditedFiles(t *testing.T) {
	const saved = ".airlift-saved"
	for name, c := range map[string]struct {
		path  string
		copy  string // "" if there is none
		reset bool   // reset removes the copy with its directory
	}{
		"containerd's configuration":  {"/etc/containerd/config.toml", "/etc/containerd/config.toml" + saved, false},
		"a registry's configuration":  {"/etc/containerd/certs.d/docker.io/hosts.toml", "/etc/containerd/certs.d/docker.io/hosts.toml" + saved, false},
		"a unit":                      {"/etc/systemd/system/containerd.service", "/etc/systemd/system/containerd.service" + saved, false},
		"a static pod":                {"/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/etcd.yaml" + saved, false},
		"the kubelet's configuration": {"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/config.yaml" + saved, true},
		"a kubeconfig":                {"/etc/kubernetes/admin.conf", "", false},
		"a key":                       {"/etc/kubernetes/pki/ca.key", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			var warnings []string
			run := func(text string) {
				t.Helper()
				h, unlock, err := host.OpenLocked(root)
				if err != nil {
					t.Fatal(err)
				}
				defer unlock()
				h.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
				if err := h.Claim(ledger.Claim{Path: config.KubeletDir}); err != nil {
					t.Fatal(err)
				}
				if _, err := h.WriteFile(c.path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			run("one")
			run("two")
			if len(warnings) != 0 {
				t.Errorf("warnings about files that nobody edited: %q", warnings)
			}
			for _, text := range []string{"edited", "edited", "edited again"} {
				write(t, root+c.path, text, 0o600)
				if err := os.Chmod(root+c.path, 0o640); err != nil {
					t.Fatal(err)
				}
				run("two")
				if got := read(t, root+c.path); got != "two" {
					t.Errorf("the file is %q", got)
				}
			}
			if c.copy == "" {
				if len(warnings) != 0 {
					t.Errorf("warnings: %q", warnings)
				}
				if found := find(t, root, saved); len(found) != 0 {
					t.Errorf("copies: %q", found)
				}
				return
			}
			if len(warnings) != 3 || !strings.Contains(warnings[0], c.path+" ") || !strings.HasSuffix(warnings[1], " "+c.copy) || !strings.HasSuffix(warnings[2], " "+c.copy+".1") {
				t.Errorf("warnings: %q", warnings)
			}
			if read(t, root+c.copy) != "edited" || read(t, root+c.copy+".1") != "edited again" {
				t.Error("the copies have other contents")
			}
			if found := find(t, root, saved); len(found) != 2 {
				t.Errorf("copies: %q", found)
			}
			if info, err := os.Stat(root + c.copy); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("the copy: %v, %v", info, err)
			}

			write(t, root+c.path, "edited last", 0o600) // reset saves it under a third name, unless components change such files
			h := open(t, root)
			plan, err := uninstall.PlanFor(h)
			if err != nil {
				t.Fatal(err)
			}
			if err := uninstall.RemoveState(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if h.Records().Used() {
				t.Error("reset left a ledger")
			}
			left := fmt.Sprint(uninstall.Left(h, plan))
			if c.reset {
				if found := find(t, root, saved); len(found) != 0 || strings.Contains(left, saved) {
					t.Errorf("copies %q, left %s", found, left)
				}
				return
			}
			if read(t, root+c.copy) != "edited" || strings.Count(left, c.copy+": ") != 1 || strings.Count(left, c.copy+".1: ") != 1 {
				t.Errorf("left: %s", left)
			}
			if strings.HasPrefix(c.path, config.KubernetesDir) {
				return
			}
			if read(t, root+c.copy+".2") != "edited last" || !strings.Contains(left, c.copy+".2: ") {
				t.Errorf("left: %s", left)
			}
		})
	}
}

// A run was killed before the ledger on disk said that its write is done. No file
// existed before, so other content is an edit and no original.
func TestEditAfterAKilledRun(t *testing.T) {
	root := t.TempDir()
	for _, text := range []string{"one", "two"} { // without the unlock that saves the ledger
		if _, err := open(t, root).WriteFile("/etc/a.conf", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		write(t, root+"/etc/a.conf", "edited", 0o644)
	}
	if got := read(t, root+"/etc/a.conf.airlift-saved"); got != "edited" {
		t.Errorf("the copy: %q", got)
	}
	kept, err := uninstall.RemoveInstalled(t.Context(), open(t, root))
	if err != nil || len(kept) != 1 {
		t.Errorf("kept %q, %v", kept, err)
	}
	if _, err := os.Stat(root + "/etc/a.conf"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reset has restored an edit: %v", err)
	}
}

// find lists the files whose names contain a text.
func find(t *testing.T, root, text string) (found []string) {
	t.Helper()
	for path := range tree(t, root) {
		if strings.Contains(filepath.Base(path), text) {
			found = append(found, path)
		}
	}
	return found
}

// The first write replaces a file that existed: the user learns where it is.
func TestReplacedOriginalIsReported(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/etc/crictl.yaml", "theirs", 0o644)
	h := open(t, root)
	var warnings []string
	h.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	for range 2 {
		if _, err := h.WriteFile("/etc/crictl.yaml", []byte("ours"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept := ledger.StateDir + "/originals/etc/crictl.yaml"
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "/etc/crictl.yaml existed") || !strings.HasSuffix(warnings[0], " from "+kept) || read(t, root+kept) != "theirs" {
		t.Errorf("warnings: %q", warnings)
	}
}

// A login shell with umask 077 must not give directories that other users enter another mode.
func TestMkdirAllIgnoresTheUmask(t *testing.T) {
	root := t.TempDir()
	h := open(t, root)
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	if err := h.MkdirAll("/opt/cni/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.MkdirAll("/srv/etcd", 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]fs.FileMode{"/opt": 0o755, "/opt/cni": 0o755, "/opt/cni/bin": 0o755, "/srv": 0o755, "/srv/etcd": 0o700} {
		if info, err := os.Stat(root + dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", dir, info.Mode(), err, want)
		}
	}
}

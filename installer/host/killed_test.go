package host_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/scripts/fixtures/crash"
	"airlift/scripts/fixtures/rig"
)

// A change is one kind of change to a host, in two versions.
type change struct {
	name    string
	path    string                          // path that it changes
	prepare func(t *testing.T, root string) // creates the user's files
	do      func(h *host.Host, version string) error
}

var changes = []change{
	{"a new file", "/etc/new.conf", nothing, writeText("/etc/new.conf")},
	{"an existing file", "/etc/some.conf", existing("/etc/some.conf", "theirs"), writeText("/etc/some.conf")},
	{"an existing file with one of the contents", "/etc/some.conf", existing("/etc/some.conf", "one"), writeText("/etc/some.conf")},
	{"a file in place of a link", "/etc/link", existingLink("/etc/link"), writeText("/etc/link")},
	{"a new link", "/etc/link", nothing, writeLink("/etc/link")},
	{"a link in place of a file", "/etc/some.conf", existing("/etc/some.conf", "theirs"), writeLink("/etc/some.conf")},
	{"a link in place of a link", "/etc/link", existingLink("/etc/link"), writeLink("/etc/link")},
	{"a binary", "/opt/bridge", nothing, func(h *host.Host, version string) error {
		_, err := h.InstallBinary(context.Background(), host.Binary{Path: "/opt/bridge", SHA256: sum(version)}, strings.NewReader(version))
		return err
	}},
	{"an adopted binary", "/opt/bridge", adopted("/opt/bridge"), func(h *host.Host, version string) error {
		_, err := h.InstallBinary(context.Background(), host.Binary{Path: "/opt/bridge", SHA256: sum(version)}, strings.NewReader(version))
		return err
	}},
	{"an adopted file", "/etc/some.conf", adopted("/etc/some.conf"), writeText("/etc/some.conf")},
	{"a new binary on an adopted node", "/opt/bridge", adopted("/opt/other"), func(h *host.Host, version string) error {
		_, err := h.InstallBinary(context.Background(), host.Binary{Path: "/opt/bridge", SHA256: sum(version)}, strings.NewReader(version))
		return err
	}},
	{"directories", "/var/lib/a/b", nothing, func(h *host.Host, _ string) error { return h.MkdirAll("/var/lib/a/b", 0o700) }},
}

func nothing(*testing.T, string) {}

// capability is the value of the extended attribute for
// cap_net_bind_service=ep.
var capability = []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// existing returns a function that creates a file with an owner, a group and a
// capability.
func existing(path, text string) func(*testing.T, string) {
	return func(t *testing.T, root string) {
		write(t, root+path, text, 0o640)
		if err := os.Chown(root+path, 1000, 1001); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setxattr(root+path, "security.capability", capability, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// adopted returns a function that creates a file and adopts the node of the host.
func adopted(path string) func(*testing.T, string) {
	return func(t *testing.T, root string) {
		existing(path, "theirs")(t, root)
		adoption := ledger.Adoption{Maker: "kubeadm", Files: map[string]string{path: sum("theirs")}}
		if err := open(t, root).Records().Adopt(adoption); err != nil {
			t.Fatal(err)
		}
	}
}

func existingLink(path string) func(*testing.T, string) {
	return func(t *testing.T, root string) {
		write(t, root+"/etc/target", "theirs", 0o600)
		if err := os.MkdirAll(filepath.Dir(root+path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("target", root+path); err != nil {
			t.Fatal(err)
		}
	}
}

func writeText(path string) func(*host.Host, string) error {
	return func(h *host.Host, version string) error {
		_, err := h.WriteFile(path, []byte(version), 0o644)
		return err
	}
}

func writeLink(path string) func(*host.Host, string) error {
	return func(h *host.Host, version string) error {
		_, err := h.WriteSymlink(path, version)
		return err
	}
}

// If the variable actVariable is set, the test binary makes the change that it names,
// or resets, in the directory that it names. TestKilledTwice kills that process.
const actVariable = "AIRLIFT_TEST_HOST_ACT"

func init() {
	what, rest, ok := strings.Cut(os.Getenv(actVariable), "\n")
	if !ok {
		return
	}
	version, root, _ := strings.Cut(rest, "\n")
	if err := act(what, version, root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const resetting = "reset"

// act opens a host and makes one change, or resets, as one run of install does.
func act(what, version, root string) error {
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		return err
	}
	defer unlock()
	if what == resetting {
		kept, err := uninstall.RemoveInstalled(context.Background(), h)
		if err == nil && len(kept) > 0 {
			err = fmt.Errorf("reset kept, as not managed by Airlift: %q", kept)
		}
		return err
	}
	for _, c := range changes {
		if c.name == what {
			return c.do(h, version)
		}
	}
	return fmt.Errorf("there is no change %q", what)
}

// names are the system calls that create, rename or remove a path. everyCall
// also has writes to temporary files.
var (
	names     = []string{"rename", "symlink", "mkdir", "unlink"}
	everyCall = append([]string{"write"}, names...)
)

// killed runs act in a child process and kills it right before the nth of these
// calls, counted from 1. It returns false if the child made fewer calls and
// ended by itself.
func killed(t *testing.T, calls []string, n int, what, version, root string) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), actVariable+"="+what+"\n"+version+"\n"+root)
	cmd.Stderr = os.Stderr
	matches := func(c crash.Call) bool {
		if !slices.Contains(calls, c.Name) || !strings.HasPrefix(c.Path, root) || strings.HasPrefix(c.Path, root+"/run") {
			return false
		}
		_, err := os.Lstat(c.Path)
		return c.Name != "unlink" || err == nil
	}
	was, err := crash.Run(cmd, crash.Numbered(n, matches))
	if err != nil {
		t.Fatalf("%s, to be killed at its change %d: %v", what, n, err)
	}
	return was
}

// TestKilledTwice kills each kind of change before some of its calls, and the
// next run before some of the calls in names. After that a run must complete, and reset
// must restore the original files.
func TestKilledTwice(t *testing.T) {
	rig.Root(t) // to create files that belong to another user
	for _, c := range changes {
		for _, first := range []string{"", "one"} {
			name := c.name + " on a bare host"
			if first != "" {
				name = c.name + " over an older version"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				start, bare := t.TempDir(), t.TempDir()
				for _, root := range []string{start, bare} {
					for _, dir := range []string{"/etc", "/opt", "/run", "/var/lib"} {
						if err := os.MkdirAll(root+dir, 0o755); err != nil {
							t.Fatal(err)
						}
					}
				}
				c.prepare(t, start)
				copyTree(t, start, bare)
				if first != "" {
					mustAct(t, c.name, first, start)
				}
				points := 0
				someKills(t, 0, everyCall, start, c.name, "two", func(n int, once string) {
					someKills(t, n, names, once, c.name, "two", func(_ int, twice string) {
						points++
						reset := t.TempDir()
						copyTree(t, twice, reset)
						mustAct(t, resetting, "", reset)
						sameState(t, bare, reset)

						mustAct(t, c.name, "two", twice)
						if !shows(twice+c.path, "two") {
							t.Errorf("%s is %q after the third run", c.path, inode(t, twice+c.path))
						}
						mustAct(t, resetting, "", twice)
						sameState(t, bare, twice)
					})
				})
				mustAct(t, c.name, "two", start)
				someKills(t, 0, everyCall, start, resetting, "", func(n int, once string) {
					someKills(t, n, names, once, resetting, "", func(_ int, twice string) {
						points++
						mustAct(t, resetting, "", twice)
						sameState(t, bare, twice)
					})
				})
				t.Logf("%d pairs of kills", points)
			})
		}
	}
}

// TestKilledWhileAnEditedFileIsSaved kills a run before each of its calls while it
// replaces a file that was edited. The edited file is kept, and nothing else.
func TestKilledWhileAnEditedFileIsSaved(t *testing.T) {
	start := t.TempDir()
	for _, dir := range []string{"/etc", "/run", "/var/lib"} {
		if err := os.MkdirAll(start+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bare := tree(t, start)
	mustAct(t, "a new file", "one", start)
	write(t, start+"/etc/new.conf", "edited", 0o644)
	onlyCopies := func(root string) {
		t.Helper()
		if _, err := uninstall.RemoveInstalled(t.Context(), open(t, root)); err != nil {
			t.Error(err)
		}
		after, copies := tree(t, root), 0
		for path, text := range after {
			if strings.HasPrefix(path, "/etc/new.conf.airlift-saved") && text == "edited" {
				copies++
			} else if _, was := bare[path]; !was && path != "/run/airlift.lock" {
				t.Errorf("left: %s", path)
			}
		}
		if copies == 0 {
			t.Errorf("the edited file is lost: %v", after)
		}
	}
	kills := 0
	everyKill(t, everyCall, start, "a new file", "two", func(root string) {
		kills++
		reset := filepath.Join(t.TempDir(), "host")
		copyTree(t, root, reset)
		onlyCopies(reset)

		mustAct(t, "a new file", "two", root)
		copies, _ := filepath.Glob(root + "/etc/new.conf.airlift-saved*")
		if len(copies) != 1 || !shows(root+"/etc/new.conf", "two") || !shows(copies[0], "edited") {
			t.Errorf("after kill %d and another run: %v", kills, tree(t, root))
		}
		onlyCopies(root)
	})
	if kills < 5 {
		t.Errorf("only %d kills", kills)
	}
}

// TestEditAfterAKilledWrite kills the first write of an adopted file before each of its calls. Then the file is edited and written
// again. Neither the original nor the edited file is lost.
func TestEditAfterAKilledWrite(t *testing.T) {
	rig.Root(t) // to create files that belong to another user
	const path, what = "/etc/some.conf", "an adopted file"
	start := t.TempDir()
	for _, dir := range []string{"/etc", "/run", "/var/lib"} {
		if err := os.MkdirAll(start+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	adopted(path)(t, start)
	kills, kept := 0, 0
	everyKill(t, everyCall, start, what, "one", func(root string) {
		kills++
		e, _ := open(t, root).Records().Find(ledger.File, path)
		write(t, root+path, "edited", 0o640)
		mustAct(t, what, "two", root)
		mustAct(t, what, "three", root)
		mustAct(t, resetting, "", root)
		copies, _ := filepath.Glob(root + path + ".airlift-saved*")
		switch {
		case e.Original == "" && len(copies) == 0 && shows(root+path, "edited"): // the edited file was the original
		case e.Original != "" && len(copies) == 1 && shows(root+path, "theirs") && shows(copies[0], "edited"):
			kept++
		default:
			t.Errorf("after kill %d: %v", kills, tree(t, root))
		}
	})
	if kills < 5 || kept < 2 {
		t.Errorf("only %d kills, %d of them with an original", kills, kept)
	}
}

// everyKill runs a change on copies of a host, and kills each run before a
// different call.
func everyKill(t *testing.T, calls []string, from, what, version string, then func(root string)) {
	t.Helper()
	killAt(t, func(int) bool { return true }, calls, from, what, version, func(_ int, root string) { then(root) })
}

// someKills is everyKill at the calls that crash.Tried has for a number.
func someKills(t *testing.T, number int, calls []string, from, what, version string, then func(n int, root string)) {
	t.Helper()
	killAt(t, crash.Tried(t, number), calls, from, what, version, then)
}

func killAt(t *testing.T, tried func(int) bool, calls []string, from, what, version string, then func(n int, root string)) {
	t.Helper()
	for n := 1; !t.Failed(); n++ {
		if !tried(n) {
			continue
		}
		root := filepath.Join(t.TempDir(), "host")
		copyTree(t, from, root)
		if !killed(t, calls, n, what, version, root) {
			return
		}
		then(n, root)
		if err := os.RemoveAll(root); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRenamesAreSynced: after a power failure, each file has the name that a run has given it.
func TestRenamesAreSynced(t *testing.T) {
	rig.Root(t) // to create files that belong to another user
	for _, c := range changes {
		root := t.TempDir()
		c.prepare(t, root)
		for version, what := range []string{c.name, c.name, resetting} {
			var pending []string // directories with a rename that is not synced
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d\n%s", actVariable, what, version, root))
			if _, err := crash.Run(cmd, func(call crash.Call) bool {
				switch dir := filepath.Dir(call.Path); {
				case !strings.HasPrefix(call.Path, root):
				case call.Name == "rename":
					pending = append(pending, dir)
				case call.Name == "fsync":
					pending = slices.DeleteFunc(pending, func(dir string) bool { return dir == call.Path })
				}
				return false
			}); err != nil {
				t.Fatal(err)
			}
			if len(pending) > 0 {
				t.Errorf("%s, %s: not synced: %q", c.name, what, pending)
			}
		}
	}
}

// TestLedgerIsReadUnderTheLock runs another installer after a run has started
// and before it takes the lock.
func TestLedgerIsReadUnderTheLock(t *testing.T) {
	root := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), actVariable+"=a new file\ntwo\n"+root)
	met := false
	if _, err := crash.Run(cmd, func(c crash.Call) bool {
		if c.Name == "flock" && !met {
			met = true
			mustAct(t, "directories", "one", root)
			mustAct(t, "a binary", "one", root)
		}
		return false
	}); err != nil {
		t.Fatal(err)
	}
	if !met {
		t.Fatal("the run took no lock")
	}
	for _, path := range []string{"/etc/new.conf", "/opt/bridge"} {
		if !open(t, root).Records().Wrote(path) {
			t.Errorf("the ledger does not list %s", path)
		}
	}
	mustAct(t, resetting, "", root)
	if left, err := filepath.Glob(root + "/var/lib/*"); err != nil || len(left) > 0 {
		t.Errorf("reset left %v (%v)", left, err)
	}
}

func mustAct(t *testing.T, what, version, root string) {
	t.Helper()
	// Between fork and exec, a child that another test starts would hold the
	// lock too.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := act(what, version, root); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// shows reports whether a path is a file or a link with this content, or is a
// directory.
func shows(path, content string) bool {
	if target, err := os.Readlink(path); err == nil {
		return target == content
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return true
	}
	data, err := os.ReadFile(path)
	return err == nil && string(data) == content
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "--archive", "--no-target-directory", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// sameState compares two hosts, with owners, modes and times.
func sameState(t *testing.T, want, got string) {
	t.Helper()
	a, b := state(t, want), state(t, got)
	for name := range a {
		if b[name] != a[name] {
			t.Errorf("%s is %q and was %q", name, b[name], a[name])
		}
	}
	for name := range b {
		if a[name] == "" {
			t.Errorf("%s is left: %q", name, b[name])
		}
	}
}

func state(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if name := strings.TrimPrefix(path, root); err == nil && name != "/run/airlift.lock" {
			found[name] = inode(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// inode describes a file, a link or a directory.
func inode(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		return "not there"
	}
	owner := info.Sys().(*syscall.Stat_t)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %d:%d", info.Mode(), owner.Uid, owner.Gid)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := os.Readlink(path)
		fmt.Fprintf(&b, " -> %s", target)
	case info.Mode().IsRegular():
		data, _ := os.ReadFile(path)
		if strings.HasSuffix(path, ledger.Path) { // of an adopted node, which reset writes again
			return b.String() + " " + string(data)
		}
		fmt.Fprintf(&b, " %s %s", info.ModTime().UTC(), data)
		value := make([]byte, len(capability))
		if n, err := unix.Lgetxattr(path, "security.capability", value); err == nil {
			fmt.Fprintf(&b, " capability %x", value[:n])
		}
	}
	return b.String()
}

package host_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

const otherUser = 1000 // a user who is not root

func mustDo(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// plantDir, plantLink and plantPipe create what another user could prepare in a
// directory that this user may write to.
func plantDir(t *testing.T, path string) {
	t.Helper()
	mustDo(t, os.MkdirAll(path, 0o755), os.Chown(path, otherUser, otherUser))
}

func plantLink(t *testing.T, target, path string) {
	t.Helper()
	mustDo(t, os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path), os.Lchown(path, otherUser, otherUser))
}

func plantPipe(t *testing.T, path string) {
	t.Helper()
	mustDo(t, os.MkdirAll(filepath.Dir(path), 0o755), syscall.Mkfifo(path, 0o666), os.Chown(path, otherUser, otherUser))
}

// everyWrite has every kind of write to a host. Each writes dir+"/name".
var everyWrite = map[string]func(h *host.Host, dir string) error{
	"file": func(h *host.Host, dir string) error {
		_, err := h.WriteFile(dir+"/name", []byte("ours"), 0o600)
		return err
	},
	"link": func(h *host.Host, dir string) error {
		_, err := h.WriteSymlink(dir+"/name", "ours")
		return err
	},
	"binary": func(h *host.Host, dir string) error {
		_, err := h.InstallBinary(context.Background(), host.Binary{Path: dir + "/name", SHA256: sum("ours")}, strings.NewReader("ours"))
		return err
	},
	"directory": func(h *host.Host, dir string) error { return h.MkdirAll(dir+"/name", 0o700) },
}

// TestNothingIsWrittenWhereOthersCouldPrepareLinks tries every kind of write to
// a host, in directories that other users may write to.
func TestNothingIsWrittenWhereOthersCouldPrepareLinks(t *testing.T) {
	rig.Root(t) // to create files that belong to another user
	for name, prepare := range map[string]func(t *testing.T, root string){
		"a directory of another user's": func(t *testing.T, root string) { plantDir(t, root+"/opt/dir") },
		"below a directory of another user's": func(t *testing.T, root string) {
			plantDir(t, root+"/opt")
			mustDo(t, os.MkdirAll(root+"/opt/dir", 0o755))
		},
		"a directory of everybody's": func(t *testing.T, root string) {
			mustDo(t, os.MkdirAll(root+"/opt/dir", 0o755), os.Chmod(root+"/opt/dir", 0o777))
		},
		"a link of another user's": func(t *testing.T, root string) {
			mustDo(t, os.MkdirAll(root+"/target", 0o755))
			plantLink(t, "../target", root+"/opt/dir")
		},
		"a link that leads out of the root": func(t *testing.T, root string) {
			mustDo(t, os.MkdirAll(root+"/opt", 0o755), os.Symlink(t.TempDir(), root+"/opt/dir"))
		},
	} {
		for kind, do := range everyWrite {
			t.Run(kind+" in "+name, func(t *testing.T) {
				root := t.TempDir()
				prepare(t, root)
				err := do(open(t, root), "/opt/dir")
				if fault.ExitCode(err) != fault.Preflight || fault.Hint(err) == "" {
					t.Errorf("err = %v, hint %q", err, fault.Hint(err))
				}
				if list, _ := os.ReadDir(root + "/opt/dir/"); len(list) != 0 {
					t.Errorf("written all the same: %v", list)
				}
			})
		}
	}
}

// TestRootsOwnLinksAreFollowed: on many hosts, root has moved /var/run, /lib or
// whole directories and left a link.
func TestRootsOwnLinksAreFollowed(t *testing.T) {
	for kind, do := range everyWrite {
		t.Run(kind, func(t *testing.T) {
			root := t.TempDir()
			mustDo(t, os.MkdirAll(root+"/data/a/b", 0o755), os.MkdirAll(root+"/etc", 0o755),
				os.Symlink("../data", root+"/etc/one"), os.Symlink("a/./../a", root+"/data/two"))
			h := open(t, root)
			if err := do(h, "/etc/one/two/b"); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(root + "/data/a/b/name"); err != nil {
				t.Error(err)
			}
			if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(root + "/data/a/b/name"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("reset left it: %v", err)
			}
		})
	}
}

// TestPlantedNames: a write must not follow or write to an existing file with
// the temporary file's name. It must not block on a pipe.
func TestPlantedNames(t *testing.T) {
	rig.Root(t) // to create files that belong to another user
	for kind, do := range everyWrite {
		if kind == "directory" {
			continue
		}
		for name, plant := range map[string]func(t *testing.T, victim, path string){
			"symbolic link": plantLink,
			"hard link": func(t *testing.T, victim, path string) {
				mustDo(t, os.MkdirAll(filepath.Dir(path), 0o755), os.Link(victim, path))
			},
			"pipe": func(t *testing.T, _, path string) { plantPipe(t, path) },
		} {
			t.Run(kind+" over a "+name, func(t *testing.T) {
				root := t.TempDir()
				write(t, root+"/victim", "secret", 0o600)
				plant(t, root+"/victim", root+"/opt/.airlift-name")
				if err := do(open(t, root), "/opt"); err != nil {
					t.Error(err)
				}
				if list, _ := filepath.Glob(root + "/opt/.*"); len(list) > 0 {
					t.Errorf("left: %v", list)
				}
				info, err := os.Stat(root + "/victim")
				if err != nil || info.Mode() != 0o600 || read(t, root+"/victim") != "secret" {
					t.Errorf("the victim is %v: %q", info, read(t, root+"/victim"))
				}
			})
		}
		t.Run(kind+" where a pipe is", func(t *testing.T) {
			root := t.TempDir()
			plantPipe(t, root+"/opt/name")
			if err := do(open(t, root), "/opt"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// TestStateIsRootsAlone checks the state directory with the ledger and the
// lock.
func TestStateIsRootsAlone(t *testing.T) {
	rig.Root(t) // to create files that belong to another user
	for name, plant := range map[string]func(t *testing.T, root string){
		"a state directory of another user's": func(t *testing.T, root string) { plantDir(t, root+ledger.StateDir) },
		"a link for a state directory": func(t *testing.T, root string) {
			mustDo(t, os.MkdirAll(root+"/target", 0o755))
			plantLink(t, "../../target", root+ledger.StateDir)
		},
		"a link for a lock": func(t *testing.T, root string) { plantLink(t, "../victim", root+"/run/airlift.lock") },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			plant(t, root)
			before := state(t, root)
			h, unlock, err := host.OpenLocked(root)
			if err == nil {
				defer unlock()
				_, err = h.WriteFile("/a.conf", []byte("ours"), 0o600)
			}
			if err == nil {
				t.Error("no error")
			}
			after := state(t, root)
			delete(after, "/run")
			delete(before, "/run")
			for path := range after {
				if before[path] == "" {
					t.Errorf("it made %s", path)
				}
			}
		})
	}
}

// TestOutputs writes output files that the user named into a directory that
// every user may write to, after another user has prepared it.
func TestOutputs(t *testing.T) {
	rig.Root(t) // to create files that belong to another user
	for name, c := range map[string]struct {
		plant func(t *testing.T, victim, drop string)
		path  string
		want  string // substring of the error; "" for no error
	}{
		"nothing":          {func(*testing.T, string, string) {}, "out", ""},
		"a file of root's": {func(t *testing.T, _, drop string) { write(t, drop+"/out", "old", 0o600) }, "out", ""},
		"a link of root's": {func(t *testing.T, _, drop string) { mustDo(t, os.Symlink("other", drop+"/out")) }, "out", ""},
		"a symbolic link":  {func(t *testing.T, victim, drop string) { plantLink(t, victim, drop+"/out") }, "out", "symbolic link that belongs to user 1000"},
		"a dangling link":  {func(t *testing.T, victim, drop string) { plantLink(t, victim+"-not", drop+"/out") }, "out", "symbolic link that belongs to user 1000"},
		"a hard link":      {func(t *testing.T, victim, drop string) { mustDo(t, os.Link(victim, drop+"/out")) }, "out", ""},
		"a pipe":           {func(t *testing.T, _, drop string) { plantPipe(t, drop+"/out") }, "out", "not a regular file"},
		"a directory":      {func(t *testing.T, _, drop string) { plantDir(t, drop+"/out") }, "out", "not a regular file"},
		"a file": {func(t *testing.T, _, drop string) {
			write(t, drop+"/out", "", 0o666)
			mustDo(t, os.Chown(drop+"/out", otherUser, otherUser))
		}, "out", "belongs to user 1000"},
		"a parent":           {func(t *testing.T, _, drop string) { plantDir(t, drop+"/dir") }, "dir/out", "the directory /"},
		"a link to a parent": {func(t *testing.T, victim, drop string) { plantLink(t, filepath.Dir(victim), drop+"/dir") }, "dir/out", "symbolic link that belongs to user 1000"},
		"a temporary link":   {func(t *testing.T, victim, drop string) { plantLink(t, victim, drop+"/.airlift-out") }, "out", ""},
		"a temporary hard link": {func(t *testing.T, victim, drop string) {
			mustDo(t, os.Link(victim, drop+"/.airlift-out"))
		}, "out", ""},
		"a temporary pipe": {func(t *testing.T, _, drop string) { plantPipe(t, drop+"/.airlift-out") }, "out", ""},
		"no sticky bit":    {func(t *testing.T, _, drop string) { mustDo(t, os.Chmod(drop, 0o777)) }, "out", "every user may write"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			victim, drop := root+"/private/victim", root+"/drop"
			write(t, victim, "secret", 0o600)
			mustDo(t, os.Mkdir(drop, 0o755), os.Chmod(drop, 0o777|fs.ModeSticky))
			c.plant(t, victim, drop)
			path := filepath.Join(drop, c.path)
			for what, err := range map[string]error{"check": filesystem.CheckOutput(path), "write": filesystem.WriteOutput(path, []byte("new"), 0o600)} {
				switch {
				case c.want == "" && err != nil:
					t.Errorf("%s: %v", what, err)
				case c.want != "" && (fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" || !strings.Contains(err.Error(), c.want)):
					t.Errorf("%s: error %v, hint %q", what, err, fault.Hint(err))
				}
			}
			if c.want == "" && read(t, path) != "new" {
				t.Errorf("the output is %q", read(t, path))
			}
			info, err := os.Stat(victim)
			if err != nil || info.Mode() != 0o600 || read(t, victim) != "secret" {
				t.Errorf("the victim is %v: %q", info, read(t, victim))
			}
			if list, _ := os.ReadDir(filepath.Dir(victim)); len(list) != 1 {
				t.Errorf("next to the victim: %v", list)
			}
		})
	}
}

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/crash"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testhost"
)

// upgradedFiles are a changed file, one that the upgrade adds, and a static pod.
var upgradedFiles = []string{"/etc/kubernetes/changed", "/etc/kubernetes/added", "/etc/kubernetes/manifests/kube-scheduler.yaml"}

// upgradeFiles is an upgrade from one version to another, without a cluster. Each file gets the content.
func upgradeFiles(h *host.Host, from, to, content string) error {
	u := New(&payload.Bundle{File: new(bundle.File), Manifest: &bundle.Manifest{KubernetesVersion: to}}, Options{}, true, h, &workflow.Console{Out: io.Discard})
	u.Goal.From = from
	var err error
	if u.Record, err = revision.Read(h, revision.Upgrade); err != nil {
		return err
	}
	for _, f := range upgradedFiles {
		if _, err := u.WriteKept(pki.File{Path: f, Data: []byte(content), Mode: 0o600}); err != nil {
			return err
		}
	}
	if h.Records().Adopted() != nil {
		if err := upgradeBinary(h, u, content); err != nil {
			return err
		}
	}
	if u.Record != nil && u.Record.Backup == "" {
		u.Record.Backup = "/backup-before-" + to
		if err := u.Record.Write(h); err != nil {
			return err
		}
	}
	return u.Finish()
}

// upgradeBinary replaces the kubelet, as the steps unpack and kubelet do.
func upgradeBinary(h *host.Host, u *Upgrade, content string) error {
	b := host.Binary{Path: "/usr/local/bin/kubelet", SHA256: testbundle.Sum([]byte(content))}
	if err := h.Upgrades().PrepareUpgrade(b.Path); err != nil {
		return err
	}
	staged := host.Binary{Path: host.StagedPath(b.Path), SHA256: b.SHA256}
	if _, err := h.InstallBinary(context.Background(), staged, strings.NewReader(content)); err != nil {
		return err
	}
	_, err := h.Upgrades().InstallStaged(context.Background(), b, u.Record.Kept(h))
	return err
}

// undoFiles is undo, without a cluster.
func undoFiles(h *host.Host) error {
	state, err := revision.Read(h, revision.Upgrade)
	if err != nil {
		return err
	}
	if state == nil {
		return errNoUpgrade
	}
	u, err := revision.UndoOf(node.NewMachine(h, &workflow.Console{Out: io.Discard}), state, nil)
	if err != nil {
		return err
	}
	if err := u.Begin(); err != nil {
		return err
	}
	former := state.Kept(h)
	paths, err := former.Paths()
	if err != nil {
		return err
	}
	for _, p := range paths {
		if _, err := former.Restore(context.Background(), p); err != nil {
			return err
		}
	}
	return revision.Remove(h, revision.Upgrade)
}

var errNoUpgrade = errors.New("there is nothing to undo")

// contents are the contents of the upgraded files; - if one does not exist.
func contents(h *host.Host) string {
	var list []string
	for _, f := range upgradedFiles {
		data, err := os.ReadFile(h.Path(f))
		if err != nil {
			data = []byte("-")
		}
		list = append(list, string(data))
	}
	return strings.Join(list, " ")
}

// If the variable is set, the test binary runs the named upgrade in the named directory.
const upgradeVariable = "AIRLIFT_TEST_UPGRADE"

func init() {
	args := strings.Split(os.Getenv(upgradeVariable), "\n")
	if len(args) != 5 {
		return
	}
	if err := onHost(args[0], func(h *host.Host) error {
		if args[1] == "undo" {
			return undoFiles(h)
		}
		return upgradeFiles(h, args[2], args[3], args[4])
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// onHost opens a host as each run does.
func onHost(root string, do func(*host.Host) error) error {
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		return err
	}
	defer unlock()
	return do(h)
}

// everyKill runs a command on copies of a host, kills each run before a different effect, of those that crash.Tried
// has, and calls then.
func everyKill(t *testing.T, start string, args []string, then func(t *testing.T, root string)) {
	tried, kills := crash.Tried(t, len(args[3])), 0
	for n := 1; !t.Failed(); n++ {
		if !tried(n) {
			continue
		}
		root := filepath.Join(t.TempDir(), "host")
		copyHost(t, start, root)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), upgradeVariable+"="+strings.Join(slices.Insert(slices.Clone(args), 0, root), "\n"))
		killed, err := crash.Run(cmd, crash.Numbered(n, func(c crash.Call) bool {
			_, err := os.Lstat(c.Path)
			effect := c.Name == "rename" || c.Name == "mkdir" || c.Name == "unlink" && err == nil
			return effect && strings.HasPrefix(c.Path, root) && !strings.HasPrefix(c.Path, root+"/run")
		}))
		if err != nil {
			t.Fatal(err)
		}
		if !killed {
			t.Logf("%q: killed %d times", args, kills)
			if n < 5 || kills < 1 {
				t.Errorf("%d kills, and %d calls", kills, n-1)
			}
			return
		}
		kills++
		then(t, root)
	}
}

func copyHost(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "--archive", "--no-target-directory", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestUpgradeKilled kills an upgrade, a second run of the same version with other content, the upgrade
// to the next version, and their undo, before each effect. After that, the same command finishes, and
// undo returns to the files from before: always all of them, of one version.
func TestUpgradeKilled(t *testing.T) {
	start := filepath.Join(t.TempDir(), "host")
	do := func(t *testing.T, root string, f func(*host.Host) error) {
		t.Helper()
		if err := onHost(root, f); err != nil {
			t.Error(err)
		}
	}
	upgrade := func(from, to, content string) func(*host.Host) error {
		return func(h *host.Host) error { return upgradeFiles(h, from, to, content) }
	}
	// has expects the contents, and the state of an upgrade.
	has := func(t *testing.T, root, want, upgrade string) {
		t.Helper()
		do(t, root, func(h *host.Host) error {
			s, err := revision.Read(h, revision.Upgrade)
			is := ""
			if s != nil {
				is = fmt.Sprintf("%s to %s, %s, %t", s.From, s.To, s.Backup, s.Finished)
			}
			if got := contents(h); got != want || is != upgrade {
				t.Errorf("%s, upgrade %s; want %s, upgrade %s", got, is, want, upgrade)
			}
			return err
		})
	}
	if err := os.MkdirAll(start, 0o755); err != nil {
		t.Fatal(err)
	}
	do(t, start, func(h *host.Host) error {
		for i, f := range upgradedFiles {
			if i != 1 {
				if _, err := h.WriteFile(f, []byte("one"), 0o600); err != nil {
					return err
				}
			}
		}
		return nil
	})
	const bare = "one - one"
	undone := func(t *testing.T, root, want string) {
		t.Helper()
		copied := filepath.Join(t.TempDir(), "undone")
		copyHost(t, root, copied)
		do(t, copied, func(h *host.Host) error {
			if err := undoFiles(h); err != nil && !errors.Is(err, errNoUpgrade) {
				return err
			}
			return nil
		})
		has(t, copied, want, "")
	}

	everyKill(t, start, []string{"upgrade", "v1", "v2", "two"}, func(t *testing.T, root string) {
		undone(t, root, bare)
		do(t, root, upgrade("v1", "v2", "two"))
		has(t, root, "two two two", "v1 to v2, /backup-before-v2, true")
		undone(t, root, bare)
	})
	do(t, start, upgrade("v1", "v2", "two"))

	// A second run of the same version, such as one without --patches.
	everyKill(t, start, []string{"upgrade", "v2", "v2", "second"}, func(t *testing.T, root string) {
		undone(t, root, bare)
		do(t, root, upgrade("v2", "v2", "second"))
		has(t, root, "second second second", "v1 to v2, /backup-before-v2, true")
		undone(t, root, bare)
	})

	// The next version. Until its state is written, undo returns to the version before this one.
	everyKill(t, start, []string{"upgrade", "v2", "v3", "three"}, func(t *testing.T, root string) {
		want := bare
		do(t, root, func(h *host.Host) error {
			s, err := revision.Read(h, revision.Upgrade)
			if err == nil && s.To == "v3" {
				want = "two two two"
			}
			return err
		})
		undone(t, root, want)
		do(t, root, upgrade("v2", "v3", "three"))
		has(t, root, "three three three", "v2 to v3, /backup-before-v3, true")
		undone(t, root, "two two two")
	})

	// Undo, and then undo, the same version or the next one.
	everyKill(t, start, []string{"undo", "", "", ""}, func(t *testing.T, root string) {
		undone(t, root, bare)
		next := filepath.Join(t.TempDir(), "next")
		copyHost(t, root, next)
		err := onHost(next, upgrade("v2", "v3", "three"))
		if s, _ := revision.Read(testhost.Open(t, root), revision.Upgrade); s != nil && !s.Finished && (err == nil || fault.ExitCode(err) != fault.Preflight || contents(testhost.Open(t, next)) != contents(testhost.Open(t, root))) {
			t.Errorf("the next version during undo: %v, %s", err, contents(testhost.Open(t, next)))
		}
		do(t, root, upgrade("v1", "v2", "two"))
		has(t, root, "two two two", "v1 to v2, /backup-before-v2, true")
		undone(t, root, bare)
	})
}

// TestFirstUpgradeOfAnAdoptedNodeKilled kills the first upgrade of an adopted node, and its undo, before each effect. After that,
// the same command finishes; undo and then reset return to each file as it was adopted, also to a kubelet that its tool copied.
func TestFirstUpgradeOfAnAdoptedNodeKilled(t *testing.T) {
	for name, kubelet := range map[string]string{"a copied kubelet": "old", "a kubelet of a package": ""} {
		t.Run(name, func(t *testing.T) {
			start := filepath.Join(t.TempDir(), "host")
			sums := map[string]string{}
			for path, text := range map[string]string{upgradedFiles[0]: "one", upgradedFiles[2]: "one", "/usr/local/bin/kubelet": kubelet, "/usr/local/bin/other": "stays"} {
				if text == "" {
					continue
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(start+path), 0o755), os.WriteFile(start+path, []byte(text), 0o755)); err != nil {
					t.Fatal(err)
				}
				sums[path] = testbundle.Sum([]byte(text))
			}
			run := func(t *testing.T, root string, f func(*host.Host) error) {
				t.Helper()
				if err := onHost(root, f); err != nil {
					t.Error(err)
				}
			}
			run(t, start, func(h *host.Host) error {
				return h.Records().Adopt(ledger.Adoption{Maker: "kubeadm", Kubernetes: "v1", Files: sums})
			})
			before := listing(t, testhost.Open(t, start))
			upgrade := func(h *host.Host) error { return upgradeFiles(h, "v1", "v2", "two") }
			back := func(t *testing.T, root string) {
				t.Helper()
				copied := filepath.Join(t.TempDir(), "undone")
				copyHost(t, root, copied)
				run(t, copied, func(h *host.Host) error {
					if err := undoFiles(h); err != nil && !errors.Is(err, errNoUpgrade) {
						return err
					}
					kept, err := uninstall.RemoveInstalled(t.Context(), h)
					if len(kept) > 0 {
						t.Errorf("reset left %q", kept)
					}
					return err
				})
				same(t, before, listing(t, testhost.Open(t, copied)))
				left, err := os.ReadDir(filepath.Join(copied, ledger.StateDir))
				if err != nil || len(left) != 1 {
					t.Errorf("left of Airlift: %v, %v", left, err)
				}
			}
			isNew := func(t *testing.T, root string) {
				t.Helper()
				h := testhost.Open(t, root)
				if now, _ := os.ReadFile(h.Path("/usr/local/bin/kubelet")); string(now) != "two" || contents(h) != "two two two" {
					t.Errorf("kubelet %s, files %s", now, contents(h))
				}
			}
			everyKill(t, start, []string{"upgrade", "v1", "v2", "two"}, func(t *testing.T, root string) {
				back(t, root)
				run(t, root, upgrade)
				isNew(t, root)
				back(t, root)
			})
			run(t, start, upgrade)
			isNew(t, start)
			everyKill(t, start, []string{"undo", "", "", ""}, func(t *testing.T, root string) {
				back(t, root)
				run(t, root, upgrade)
				isNew(t, root)
				back(t, root)
			})
		})
	}
}

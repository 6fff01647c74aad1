package reset

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/crash"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// ofThisMachine are the phases that change the machine on which the tests run, and the etcd member of the control plane.
var ofThisMachine = []string{"remove-etcd-member", "remove-pods", "cleanup-node/images", "cleanup-node/runtime", "cleanup-node/mounts", "cleanup-node/interfaces", "cleanup-node/netfilter", "cleanup-node/routes"}

// If the variable is set, the test binary resets the host in the named directory: with --remove-node for "remove".
const actVariable = "AIRLIFT_TEST_RESET"

func init() {
	what, root, ok := strings.Cut(os.Getenv(actVariable), "\n")
	if !ok {
		return
	}
	if err := act(config.Reset{RemoveNode: what == "remove", SkipPhases: ofThisMachine}, root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// act resets a host as one run of the command does.
func act(c config.Reset, root string) error {
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		return err
	}
	defer unlock()
	testhost.NewUnits(h, time.Now())
	r, err := New(c, "", h, &workflow.Console{Out: io.Discard})
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

func copied(t *testing.T, from string) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "host")
	if out, err := exec.Command("cp", "--archive", "--no-target-directory", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

// TestRemovalKilled kills the removal of an adopted node before each change of the disk. The host is as before, or the ledger says
// that the removal began: adopt refuses the node, and reset finishes without the flag.
func TestRemovalKilled(t *testing.T) {
	rig.Needs(t, "ptrace")
	start := adoptedPlane(t)
	h, _, unlock := open(t, start)
	fileChanges(t, h)
	unlock()
	nodeOnly := func(root string) map[string]string {
		found := contents(t, root)
		maps.DeleteFunc(found, func(name, _ string) bool { return strings.HasPrefix(name, ledger.StateDir) })
		return found
	}
	before := nodeOnly(start)
	finish := func(root string) map[string]string {
		if err := act(config.Reset{SkipPhases: ofThisMachine}, root); err != nil {
			t.Error(err)
		}
		h, _, unlock := open(t, root)
		defer unlock()
		if h.Records().Adopted() != nil {
			t.Error("the node is adopted after its removal")
		}
		if err := h.Records().Forget(ledger.Interface, "kube-ipvs0"); err != nil { // of a phase that was skipped
			t.Error(err)
		}
		if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
			t.Error(err)
		}
		return contents(t, root)
	}
	whole := copied(t, start)
	if err := act(config.Reset{RemoveNode: true, SkipPhases: ofThisMachine}, whole); err != nil {
		t.Fatal(err)
	}
	want := finish(whole)
	for name := range want {
		if strings.HasPrefix(name, ledger.StateDir) || name == node.KubeletConf {
			t.Errorf("left: %s", name)
		}
	}
	kills, began := 0, 0
	for n := 1; !t.Failed(); n++ {
		root := copied(t, start)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), actVariable+"=remove\n"+root)
		cmd.Stderr = os.Stderr
		killed, err := crash.Run(cmd, crash.Numbered(n, func(c crash.Call) bool {
			_, err := os.Lstat(c.Path)
			effect := c.Name == "rename" || c.Name == "mkdir" || c.Name == "write" || (c.Name == "unlink" || c.Name == "rmdir") && err == nil
			return effect && strings.HasPrefix(c.Path, root) && !strings.HasPrefix(c.Path, root+"/run")
		}))
		if err != nil {
			t.Fatal(err)
		}
		if !killed {
			break
		}
		kills++
		h, _, unlock := open(t, root)
		adopted, unfinished, conf := h.Records().Adopted() != nil, node.UnfinishedReset(h), node.FileExists(h, node.KubeletConf)
		unlock()
		if adopted {
			sameContents(t, before, nodeOnly(root))
			continue
		}
		began++
		if conf && (fault.ExitCode(unfinished) != fault.Preflight || !strings.Contains(fault.Hint(unfinished), "./install reset")) {
			t.Errorf("after kill %d, commands accept the node: %v", n, unfinished)
		}
		sameContents(t, want, finish(root))
	}
	if kills < 20 || began < 20 || began == kills {
		t.Errorf("only %d kills, %d of them when the removal had begun", kills, began)
	}
	t.Logf("%d kills", kills)
}

// anEtcd listens in place of the etcd of a control plane that kubeadm made in root, and calls then at each connection. It
// answers nothing.
func anEtcd(t *testing.T, root string, then func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			then()
			c.Close()
		}
	}()
	theirs, cfg := testhost.ControlPlane(t, func(c *config.Config) { c.Facts.NodeIP = "127.0.0.1" })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	manifest, err := os.ReadFile(theirs.Path(node.EtcdManifest))
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, node.EtcdManifest, strings.ReplaceAll(string(manifest), "127.0.0.1:2379", "127.0.0.1:"+port))
	made, err := pki.Ensure(cfg, node.NewMachine(theirs, new(workflow.Console)).Files(), time.Now())
	if err == nil {
		err = node.NewMachine(theirs, &workflow.Console{Out: io.Discard}).Write(made.Files...)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range contents(t, theirs.Path(config.CertificatesDir)) {
		if text != "directory" {
			put(t, root, config.CertificatesDir+name, text)
		}
	}
}

// TestRemovalBeginsBeforeEtcd: when the member leaves etcd, the ledger on the disk says that the node is being removed.
func TestRemovalBeginsBeforeEtcd(t *testing.T) {
	for name, phase := range map[string]bool{"all phases": false, "one phase": true} {
		t.Run(name, func(t *testing.T) {
			root := adoptedPlane(t)
			var last atomic.Pointer[ledger.Records] // the ledger at the last connection: the removal of the member
			anEtcd(t, root, func() {
				if records, err := ledger.Read(filesystem.Root(root)); err == nil {
					last.Store(records)
				}
			})
			h, _, unlock := open(t, root)
			defer unlock()
			r, err := New(config.Reset{RemoveNode: true, Force: true, SkipPhases: append([]string{"stop-kubelet", "cleanup-node/state", "cleanup-node/installed"}, ofThisMachine[1:]...)}, "", h, &workflow.Console{Out: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			if phase {
				err = r.RunPhase(t.Context(), "remove-etcd-member")
			} else {
				err = r.Run(t.Context())
			}
			if is := last.Load(); err != nil || is == nil || is.Adopted() != nil || !is.AssumedTraces() {
				t.Errorf("%v; when etcd was asked: %+v", err, is)
			}
		})
	}
}

// TestRefusedResetWritesNoLedger: a reset that is refused leaves the ledger as it was, so that the node can still be adopted, or
// is.
func TestRefusedResetWritesNoLedger(t *testing.T) {
	for name, c := range map[string]config.Reset{"a node of another tool": {WithoutLedger: true}, "an adopted node": {RemoveNode: true}} {
		t.Run(name, func(t *testing.T) {
			root := adoptedPlane(t)
			anEtcd(t, root, func() {})
			if c.WithoutLedger {
				if err := os.RemoveAll(filepath.Join(root, ledger.StateDir)); err != nil {
					t.Fatal(err)
				}
			}
			before := contents(t, root)
			h, units, unlock := open(t, root)
			r, err := New(c, "", h, &workflow.Console{Out: new(bytes.Buffer)})
			if err != nil {
				t.Fatal(err)
			}
			err = r.Run(t.Context())
			if fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "--force") {
				t.Errorf("%v, hint %q", err, fault.Hint(err))
			}
			unlock()
			sameContents(t, before, contents(t, root))
			if len(units.Done) > 0 {
				t.Errorf("systemd: %q", units.Done)
			}
		})
	}
}

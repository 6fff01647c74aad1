package adopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/adoption"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/flow/certs"
	"airlift/installer/flow/reset"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/registry"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/crash"
	"airlift/scripts/fixtures/layouts"
	"airlift/scripts/fixtures/testhost"
)

const version = "v1.36.3"

// written writes a layout to a new directory, with an administrator's kubeconfig for a server that answers.
func written(t *testing.T, l *layouts.Layout) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := l.WriteInside(root); err != nil {
		t.Fatal(err)
	}
	return root
}

// server answers as an API server that is ready.
func server(t *testing.T) (kubeconfig string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}`)
	}))
	t.Cleanup(s.Close)
	kubeconfig = filepath.Join(t.TempDir(), "conf")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: '" + s.URL + "'}}]\nusers: [{name: u, user: {token: t}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// adopts runs adopt on a host as each run of the command does.
func adopts(root, kubeconfig string, l *layouts.Layout, dryRun bool, out io.Writer) (*Result, error) {
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		return nil, err
	}
	defer unlock()
	h.Installer = "/bin/true"
	a := New(Options{Target: version, Kubeconfig: kubeconfig}, h, &workflow.Console{Out: out})
	a.read = func(context.Context, *cluster.Client) (adoption.Input, error) { return l.InputOf(os.DirFS(root)), nil }
	if dryRun {
		return a.DryRun(context.Background())
	}
	return a.Run(context.Background())
}

// tree has each file of a host with its mode, time and content.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root)
		if err != nil || strings.HasPrefix(name, "/run") || name == "" {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		found[name] = info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			found[name] += fmt.Sprint(" ", info.ModTime(), " ", string(data))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// changed are the paths that differ, without the directories above the ledger.
func changed(before, after map[string]string) (list []string) {
	for name, is := range after {
		if before[name] != is && name != ledger.StateDir && name != "/var/lib" && name != "/var" {
			list = append(list, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			list = append(list, name+" is gone")
		}
	}
	return list
}

// TestAdoptChangesOnlyTheLedger, for the nodes of each tool: a dry run changes nothing, adopt writes the ledger and the command airlift, and a second
// run has nothing to do.
func TestAdoptChangesOnlyTheLedger(t *testing.T) {
	kubeconfig := server(t)
	for name, build := range layouts.Adopted() {
		t.Run(name, func(t *testing.T) {
			l := build(layouts.Options{Version: version})
			root := written(t, l)
			before := tree(t, root)
			var out strings.Builder
			r, err := adopts(root, kubeconfig, l, true, &out)
			if err != nil || r.Adopted || r.Maker != l.Maker {
				t.Fatalf("%+v, %v", r, err)
			}
			if list := changed(before, tree(t, root)); len(list) > 0 || !strings.Contains(out.String(), "Nothing was changed") {
				t.Errorf("a dry run changed %q, and printed:\n%s", list, out.String())
			}
			out.Reset()
			if r, err = adopts(root, kubeconfig, l, false, &out); err != nil || !r.Adopted || r.Time == nil {
				t.Fatalf("%+v, %v", r, err)
			}
			adopted := tree(t, root)
			list := slices.DeleteFunc(changed(before, adopted), func(name string) bool { return strings.HasPrefix(host.CommandPath, name+"/") })
			slices.Sort(list)
			if !slices.Equal(list, []string{host.CommandPath, ledger.Path}) {
				t.Errorf("adopt changed %q", list)
			}
			for _, f := range r.Findings {
				if !strings.Contains(out.String(), f.What) || !strings.Contains(out.String(), f.Effect) {
					t.Errorf("not printed: %+v", f)
				}
			}
			is := testhost.Open(t, root).Records().Adopted()
			if is == nil || is.Maker != l.Maker || is.Kubernetes != version || is.Time.IsZero() || is.Files[l.Config.CertificatesDir+"/ca.crt"] == "" || is.Files[node.APIServerManifest] == "" {
				t.Errorf("the ledger has %+v", is)
			}
			out.Reset()
			if r, err = adopts(root, kubeconfig, l, false, &out); err != nil || !r.Adopted || !strings.Contains(out.String(), "There is nothing to do") {
				t.Errorf("a second time: %v\n%s", err, out.String())
			}
			if list := changed(adopted, tree(t, root)); len(list) > 0 {
				t.Errorf("a second time changed %q", list)
			}
		})
	}
}

// TestRefusedAdoptions: all reasons at once, and nothing is written.
func TestRefusedAdoptions(t *testing.T) {
	kubeconfig := server(t)
	for name, build := range layouts.Refused() {
		t.Run(name, func(t *testing.T) {
			l := build()
			root := written(t, l)
			if _, err := os.Stat(filepath.Join(root, node.KubeletConf)); err != nil {
				l.Files = map[string]string{node.KubeletConf: layouts.Kubeadm(layouts.Options{Version: version}).Files[node.KubeletConf]}
				if err := l.Write(root); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, root)
			r, err := adopts(root, kubeconfig, l, false, io.Discard)
			if list := changed(before, tree(t, root)); fault.ExitCode(err) != fault.Preflight || len(list) > 0 {
				t.Fatalf("%v, changed %q", err, list)
			}
			if r == nil {
				return // not even a name of a node
			}
			for _, f := range r.Refusals {
				if !strings.Contains(err.Error(), f.What) || !strings.Contains(err.Error(), f.Hint) {
					t.Errorf("not in the error: %+v", f)
				}
			}
		})
	}
}

// TestHostsThatAreNotAdopted: hosts that are no nodes, or Airlift's.
func TestHostsThatAreNotAdopted(t *testing.T) {
	l := layouts.Kubeadm(layouts.Options{Version: version})
	for name, c := range map[string]struct {
		change func(t *testing.T, h *host.Host)
		want   string // an error; or what is printed
		code   fault.Code
	}{
		"no node": {func(t *testing.T, h *host.Host) {
			if err := os.Remove(h.Path(node.KubeletConf)); err != nil {
				t.Fatal(err)
			}
		}, "is not a node of a cluster", fault.Preflight},
		"Airlift's": {func(t *testing.T, h *host.Host) {
			if err := h.Records().Record(ledger.Entry{Kind: ledger.Contents, Name: config.KubeletDir}); err != nil {
				t.Fatal(err)
			}
		}, "Airlift installed this node. There is nothing to adopt", 0},
		"a reset that began": {func(t *testing.T, h *host.Host) {
			uninstall.AssumeTraces(h, uninstall.Traces{CertificatesDir: config.CertificatesDir})
			if err := h.Records().Commit(); err != nil {
				t.Fatal(err)
			}
		}, "a reset of this host is not finished", fault.Preflight},
		"a ledger without a node": {func(t *testing.T, h *host.Host) {
			if err := h.MkdirAll("/opt/example", 0o755); err != nil {
				t.Fatal(err)
			}
		}, "its ledger has entries", fault.Preflight},
	} {
		t.Run(name, func(t *testing.T) {
			root := written(t, l)
			c.change(t, testhost.Open(t, root))
			var out strings.Builder
			_, err := adopts(root, server(t), l, false, &out)
			if text := fmt.Sprint(err) + out.String(); fault.ExitCode(err) != c.code || !strings.Contains(text, c.want) {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
	root := written(t, l)
	gone := server(t)
	data, err := os.ReadFile(gone)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gone, []byte(strings.Replace(string(data), "http://127.0.0.1", "http://127.0.0.1:1/x", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := adopts(root, gone, l, false, io.Discard); fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("no API: %v", err)
	}
}

// A node of another tool that has packages of Airlift's file is not managed by Airlift: commands that change nodes refuse it, and it can be
// adopted. Then the packages are left by disown.
func TestAdoptAfterPackages(t *testing.T) {
	l := layouts.Kubeadm(layouts.Options{Version: version})
	root := written(t, l)
	h := testhost.Open(t, root)
	if err := h.Records().Record(ledger.Entry{Kind: ledger.Package, Name: "chrony", Package: &ledger.PackageVersions{Manager: "dpkg", Version: "4"}}); err != nil {
		t.Fatal(err)
	}
	if err := node.Managed(h, ""); fault.ExitCode(err) != fault.Preflight {
		t.Errorf("before it is adopted: %v", err)
	}
	change := revision.New(&phases.Plan{Config: &config.Config{}, Bundle: new(payload.Bundle)}, revision.Options{Kind: revision.Upgrade}, node.NewMachine(h, &workflow.Console{Out: io.Discard}))
	if err := change.CheckNode(); fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "./install adopt") {
		t.Errorf("an upgrade before it is adopted: %v", err)
	}
	if err := CheckDisown(h); err != nil {
		t.Errorf("disown before it is adopted: %v", err)
	}
	if is, err := adopts(root, server(t), l, false, io.Discard); err != nil || !is.Adopted {
		t.Fatalf("%+v, %v", is, err)
	}
	h = testhost.Open(t, root)
	if e, ok := h.Records().Find(ledger.Package, "chrony"); !ok || e.Package == nil || e.Package.Version != "4" {
		t.Errorf("the ledger has %+v", e)
	}
	if err := node.Managed(h, ""); err != nil {
		t.Error(err)
	}
	if _, stays, err := uninstall.PlanDisown(h); err != nil || !slices.Contains(stays, "package chrony") {
		t.Errorf("%q, %v", stays, err)
	}
}

// If the variable is set, the test binary runs the named command in the named directory.
const actVariable = "AIRLIFT_TEST_ADOPT"

func init() {
	what, root, ok := strings.Cut(os.Getenv(actVariable), "\n")
	if !ok {
		return
	}
	if err := act(what, root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// act adopts a host, or disowns it, as one run of the command does. The facts are read before.
func act(what, root string) error {
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		return err
	}
	defer unlock()
	if what == "adopt" {
		h.Installer = "/bin/true" // a small one: each write of its copy is a kill
		a := New(Options{}, h, &workflow.Console{Out: io.Discard})
		a.result, a.entry = a.newResult(""), ledger.Adoption{Maker: "kubeadm", Kubernetes: version, Files: map[string]string{"/x": "aa"}}
		return a.record(context.Background())
	}
	testhost.NewUnits(h, time.Now())
	return Disown(context.Background(), h, &workflow.Console{Out: io.Discard})
}

// everyKill runs a command on copies of a host, kills each run before a different change of the disk, and calls then.
func everyKill(t *testing.T, start, what string, then func(t *testing.T, root string)) (kills int) {
	t.Helper()
	for n := 1; !t.Failed(); n++ {
		root := filepath.Join(t.TempDir(), "host")
		if out, err := exec.Command("cp", "--archive", "--no-target-directory", start, root).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), actVariable+"="+what+"\n"+root)
		cmd.Stderr = os.Stderr
		killed, err := crash.Run(cmd, crash.Numbered(n, func(c crash.Call) bool {
			_, err := os.Lstat(c.Path)
			effect := c.Name == "rename" || c.Name == "mkdir" || c.Name == "write" || c.Name == "unlink" && err == nil
			return effect && strings.HasPrefix(c.Path, root) && !strings.HasPrefix(c.Path, root+"/run")
		}))
		if err != nil {
			t.Fatal(err)
		}
		if !killed {
			return n - 1
		}
		then(t, root)
	}
	return 0
}

// TestAdoptKilled kills adopt before each change of the disk: the node is adopted or not, and the next run finishes it.
func TestAdoptKilled(t *testing.T) {
	start := written(t, layouts.Kubeadm(layouts.Options{Version: version}))
	before := tree(t, start)
	kills := everyKill(t, start, "adopt", func(t *testing.T, root string) {
		for _, name := range changed(before, tree(t, root)) {
			if !strings.HasPrefix(name, ledger.StateDir) && !strings.HasPrefix(host.CommandPath, name+"/") && !strings.HasPrefix(name, path.Dir(host.CommandPath)) {
				t.Errorf("changed: %s", name)
			}
		}
		if err := act("adopt", root); err != nil {
			t.Error(err)
		}
		list := changed(before, tree(t, root))
		command := slices.Contains(list, host.CommandPath)
		list = slices.DeleteFunc(list, func(name string) bool {
			return name == host.CommandPath || strings.HasPrefix(host.CommandPath, name+"/")
		})
		if len(list) != 1 || list[0] != ledger.Path || !command || testhost.Open(t, root).Records().Adopted() == nil {
			t.Errorf("after the next run: %q, with the command: %t", list, command)
		}
	})
	if kills < 3 {
		t.Errorf("only %d kills", kills)
	}
	t.Logf("%d kills", kills)
}

// disownable returns the directory of an adopted node with what commands have installed there.
func disownable(t *testing.T) string {
	t.Helper()
	root := written(t, layouts.Kubeadm(layouts.Options{Version: version}))
	if err := act("adopt", root); err != nil {
		t.Fatal(err)
	}
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	testhost.NewUnits(h, time.Now())
	h.Installer = "/bin/true"
	if _, err := h.EnsureTimer(t.Context(), certs.Timer); err != nil {
		t.Fatal(err)
	}
	_, upgraded := h.WriteFile(config.KubeletFlagsFile, []byte("KUBELET_KUBEADM_ARGS=\"--v=4\"\n"), 0o600)
	_, added := h.WriteFile("/etc/systemd/system/kubelet.service", []byte("new"), 0o644)
	state := (&revision.Record{Kind: revision.Upgrade, From: "v1.36.3", To: "v1.37.1", Finished: true}).Write(h)
	if err := errors.Join(upgraded, added, state); err != nil {
		t.Fatal(err)
	}
	return root
}

// TestDisown: Airlift's own files go, and what runs stays, also after a kill at any change of the disk.
func TestDisown(t *testing.T) {
	start := disownable(t)
	want, before := tree(t, start), tree(t, written(t, layouts.Kubeadm(layouts.Options{Version: version})))
	for name := range want {
		if strings.Contains(name, "airlift") || strings.HasPrefix(host.CommandPath, name+"/") && name != "/usr" && before[name] == "" { // directories of the command airlift
			delete(want, name)
		}
	}
	text, err := DescribeDisown(testhost.Open(t, start))
	goes, stays, ok := strings.Cut(text, "Left as it is; no command restores what was there before:\n\n")
	if err != nil || !ok {
		t.Fatalf("%v\n%s", err, text)
	}
	for name, left := range map[string]bool{
		"systemd unit airlift-certs-renew.timer": false, host.CommandPath: false, ledger.StateDir: false, "/etc/systemd/system/kubelet.service": true, config.KubeletFlagsFile: true,
	} {
		if strings.Contains(goes, "    "+name+"\n") == left || strings.Contains(stays, "    "+name+"\n") != left {
			t.Errorf("%s is left: %t\n%s", name, !left, text)
		}
	}
	gone := func(t *testing.T, root string) {
		t.Helper()
		now := tree(t, root)
		delete(now, ledger.StateDir)
		for name, is := range want {
			if now[name] != is {
				t.Errorf("%s is %q, and was %q", name, now[name], is)
			}
		}
		for name := range now {
			if want[name] == "" {
				t.Errorf("%s is left", name)
			}
		}
		h := testhost.Open(t, root)
		if h.Records().Used() {
			t.Error("the ledger is left")
		}
	}
	kills := everyKill(t, start, "disown", func(t *testing.T, root string) {
		h := testhost.Open(t, root)
		if !h.Records().Used() {
			gone(t, root) // only the empty directory was left
			return
		}
		if err := act("disown", root); err != nil {
			t.Error(err)
		}
		gone(t, root)
	})
	if kills < 10 {
		t.Errorf("only %d kills", kills)
	}
	t.Logf("%d kills", kills)
	if err := act("disown", start); err != nil {
		t.Fatal(err)
	}
	gone(t, start)
}

// A killedDisown is a node of which disown is killed, and the command that runs then.
type killedDisown struct {
	state *revision.Record // nil for none
	run   func(h *host.Host) error
}

// keep writes the state, with the former files.
func (k killedDisown) keep(h *host.Host, paths ...string) error {
	if k.state == nil {
		return nil
	}
	err := k.state.Write(h)
	for _, p := range paths {
		err = errors.Join(err, k.state.Kept(h).Keep(p))
	}
	return err
}

// TestDisownKilledBeforeOtherCommands kills disown before each change of the disk, and then runs reset or an undo. Each of them
// restores all that it should, or refuses, and changes nothing.
func TestDisownKilledBeforeOtherCommands(t *testing.T) {
	const added, theirs, ours = "/etc/systemd/system/kubelet.service", "KUBELET_KUBEADM_ARGS=\"--v=2\"\n", "KUBELET_KUBEADM_ARGS=\"--v=4\"\n"
	quiet := &workflow.Console{Out: io.Discard}
	resets := func(h *host.Host) error {
		r, err := reset.New(config.Reset{SkipPhases: []string{"kubelet"}}, "", h, quiet)
		if err == nil {
			err = r.Run(t.Context())
		}
		return err
	}
	restores := func(u *revision.Undo, err error) error {
		if err == nil {
			err = u.RestoreFiles(t.Context())
		}
		return err
	}
	for name, c := range map[string]killedDisown{
		"reset":                  {nil, resets},
		"upgrade undo":           {&revision.Record{Kind: revision.Upgrade, From: version, To: "v1.37.1", Finished: true}, func(h *host.Host) error { return restores(revision.NewUndo(revision.Upgrade, h, quiet)) }},
		"reconfigure undo":       {&revision.Record{Kind: revision.Reconfigure, From: version, To: version, Change: "ab", Finished: true}, func(h *host.Host) error { return restores(revision.NewUndo(revision.Reconfigure, h, quiet)) }},
		"reset after an upgrade": {&revision.Record{Kind: revision.Upgrade, From: version, To: "v1.37.1", Finished: true}, resets},
	} {
		t.Run(name, func(t *testing.T) {
			layout := layouts.Kubeadm(layouts.Options{Version: version, Worker: true})
			layout.Files[config.KubeletFlagsFile] = theirs
			start := written(t, layout)
			h, unlock, err := host.OpenLocked(start)
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			adoption := h.Records().Adopt(ledger.Adoption{Maker: "kubeadm", Kubernetes: version, Files: map[string]string{config.KubeletFlagsFile: filesystem.Digest([]byte(theirs))}})
			if err := errors.Join(adoption, c.keep(h, config.KubeletFlagsFile, added)); err != nil {
				t.Fatal(err)
			}
			_, replaced := h.WriteFile(config.KubeletFlagsFile, []byte(ours), 0o600)
			_, created := h.WriteFile(added, []byte("new"), 0o644)
			if err := errors.Join(replaced, created); err != nil {
				t.Fatal(err)
			}
			restored := 0
			kills := everyKill(t, start, "disown", func(t *testing.T, root string) {
				h, unlock, err := host.OpenLocked(root)
				if err != nil {
					t.Fatal(err)
				}
				defer unlock()
				testhost.NewUnits(h, time.Now())
				before := tree(t, root)
				if !h.Records().Used() {
					return // it has ended
				}
				err = c.run(h)
				flags, readErr := os.ReadFile(h.Path(config.KubeletFlagsFile))
				if readErr != nil {
					t.Fatal(readErr)
				}
				switch is := string(flags); {
				case err == nil && is == theirs && !node.FileExists(h, added):
					restored++
				case err == nil:
					t.Errorf("it succeeded, with %s %q, and %s: %t", config.KubeletFlagsFile, is, added, node.FileExists(h, added))
				case fault.ExitCode(err) != fault.Preflight || len(changed(before, tree(t, root))) > 0:
					t.Errorf("%v, changed: %q", err, changed(before, tree(t, root)))
				}
				if err := New(Options{}, h, quiet).checkHost(); h.Records().DisownBegan() && !strings.Contains(fault.Hint(err), "./install disown") {
					t.Errorf("adopt: %v, hint %q", err, fault.Hint(err))
				}
			})
			if kills < 5 || restored == kills || restored == 0 {
				t.Errorf("%d kills, %d of them with all restored", kills, restored)
			}
			t.Logf("%d kills, %d of them with all restored", kills, restored)
		})
	}
}

func TestRefusedDisown(t *testing.T) {
	put := func(path string) func(*testing.T, *host.Host) {
		return func(t *testing.T, h *host.Host) {
			if _, err := h.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change     func(*testing.T, *host.Host)
		want, hint string
	}{
		"an upgrade": {func(t *testing.T, h *host.Host) {
			if err := (&revision.Record{Kind: revision.Upgrade, From: "v1.36.3", To: "v1.37.1"}).Write(h); err != nil {
				t.Fatal(err)
			}
		}, "was not finished", "./install upgrade undo"},
		"a reconfiguration": {func(t *testing.T, h *host.Host) {
			if err := (&revision.Record{Kind: revision.Reconfigure, From: "v1.37.1", To: "v1.37.1", Change: "ab"}).Write(h); err != nil {
				t.Fatal(err)
			}
		}, "a reconfiguration of this node was not finished", "./install reconfigure undo"},
		"a rotation":   {put(config.CertificatesDir + "/rotation/x"), "are being rotated", "rotate-ca"},
		"the endpoint": {put(endpoint.SettingsPath), "endpoint serves this node", "./install endpoint undo"},
		"the registry": {put(registry.SettingsPath), "embedded registry", "./install registry disable"},
		"not adopted":  {func(_ *testing.T, h *host.Host) { h.Records().EndAdoption(nil) }, "Airlift installed this node", "./install reset"},
	} {
		t.Run(name, func(t *testing.T) {
			h := testhost.Open(t, disownable(t))
			c.change(t, h)
			err := CheckDisown(h)
			if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) {
				t.Errorf("%v, hint %q", err, fault.Hint(err))
			}
		})
	}
	if h := testhost.Open(t, t.TempDir()); CheckDisown(h) != nil || h.Records().Used() {
		t.Error("a bare host")
	}
}

// TestWorkerWithTheCAElsewhere: a worker has the CA where its kubelet reads it. After a change of that file, reset cannot take
// back what Airlift changed.
func TestWorkerWithTheCAElsewhere(t *testing.T) {
	l := layouts.Kubeadm(layouts.Options{Version: version, Worker: true})
	const usual, file = "/etc/kubernetes/pki/ca.crt", "/data/pki/ca.crt"
	l.Files[file] = l.Files[usual]
	delete(l.Files, usual)
	l.Files[config.KubeletConfigFile] = strings.ReplaceAll(l.Files[config.KubeletConfigFile], usual, file)
	root := written(t, l)
	if _, err := adopts(root, server(t), l, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	h := testhost.Open(t, root)
	if sum := filesystem.Digest([]byte(l.Files[file])); h.Records().Adopted().Files[file] != sum {
		t.Errorf("files: %v", h.Records().Adopted().Files)
	}
	if err := os.WriteFile(h.Path(file), []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := reset.New(config.Reset{Force: true}, "", h, &workflow.Console{Out: io.Discard})
	if err == nil {
		err = r.Run(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "the CAs were rotated") {
		t.Errorf("reset: %v", err)
	}
	if err := os.Remove(h.Path(file)); err != nil {
		t.Fatal(err)
	}
	other := written(t, l)
	if err := os.Remove(filepath.Join(other, file)); err != nil {
		t.Fatal(err)
	}
	if _, err := adopts(other, server(t), l, false, io.Discard); fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), file) {
		t.Errorf("without a CA: %v", err)
	}
}

// TestAdoptKeepsAnotherAirlift: a file with the name of the command that Airlift did not write stays, and the node is not adopted.
func TestAdoptKeepsAnotherAirlift(t *testing.T) {
	l := layouts.Kubeadm(layouts.Options{Version: version})
	root := written(t, l)
	file := filepath.Join(root, host.CommandPath)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("another tool"), 0o755)); err != nil {
		t.Fatal(err)
	}
	before := tree(t, root)
	r, err := adopts(root, server(t), l, false, io.Discard)
	if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), host.CommandPath) || r != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if list := changed(before, tree(t, root)); len(list) > 0 {
		t.Errorf("changed %q", list)
	}
}

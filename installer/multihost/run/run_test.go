package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/installer/multihost/live"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/modelsite"
	"airlift/scripts/fixtures/testbundle"
)

const oldVersion, newVersion = "v1.36.3", "v1.37.1"

// aCluster has three control planes and two workers.
func aCluster() *spec.Cluster {
	c := &spec.Cluster{Name: "site", EmbeddedRegistry: true, Digest: "d", Endpoint: spec.Endpoint{VIP: []netip.Addr{netip.MustParseAddr("10.0.0.9")}},
		Groups: []spec.Group{{Name: "control-plane"}, {Name: "worker", Roll: spec.GroupRoll{MaxUnavailable: "1"}}}, Roll: spec.Roll{Drain: true, DrainTimeout: time.Minute}}
	for _, name := range []string{"cp1", "cp2", "cp3", "w1", "w2"} {
		h := spec.Host{Name: name, Role: spec.ControlPlane, Group: "control-plane", SSH: spec.SSH{Address: name, Port: 22, User: "root"}}
		if name[0] == 'w' {
			h.Role, h.Group, h.Labels = spec.Worker, "worker", map[string]string{"zone": "a"}
		}
		c.Hosts = append(c.Hosts, h)
	}
	return c
}

// aFile is a bundle of a version.
func aFile(t *testing.T, version string) *run.File {
	t.Helper()
	return fileWith(t, version, version)
}

// another is a bundle of a version with other contents.
func another(t *testing.T, version string) *run.File {
	t.Helper()
	return fileWith(t, version, "another")
}

func fileWith(t *testing.T, version, text string) *run.File {
	t.Helper()
	images := testbundle.NewImages(bundle.OnlyImages)
	images.Manifest.Platform = "linux/amd64"
	images.Manifest.KubernetesVersion = version
	images.Add(t, "example.com/app:1", "example.com/app:1", nil, testbundle.Layer(t, "f", strings.Repeat(text, 1<<18)))
	path := filepath.Join(t.TempDir(), "install")
	testbundle.WriteFile(t, path, bundle.Executables{Launcher: []byte("launcher"), Installer: []byte("installer")}, &images.Manifest, bundle.Fastest, images.Content)
	b, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := run.NewFile(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); b.Close() })
	return f
}

// A driver is one run of apply.
type driver struct {
	w       *modelsite.World
	c       *spec.Cluster
	file    *run.File
	version string
	options plan.Options
	out     bytes.Buffer
	plan    *plan.Plan
	left    *plan.Plan // after the run
}

// apply does what the command apply does.
func (d *driver) apply(ctx context.Context) error {
	d.w.File.ID, d.w.File.Version = d.file.Bundle.ID(), d.version
	clear(d.w.Dialed) // what it dials again, this driver has lost
	skip := map[string]bool{}
	for _, name := range d.options.Skip {
		skip[name] = true
	}
	s := &run.Site{Cluster: d.c, File: d.file, Dialer: d.w, Display: live.New(&d.out, true), Parallel: 3, Skip: skip, Who: "a test"}
	defer s.Close()
	if err := s.Gather(ctx, false); err != nil {
		return err
	}
	if d.options.Remove {
		if err := s.GatherLeavers(ctx); err != nil {
			return err
		}
	}
	p, problems := plan.Make(d.input(ctx, s))
	if len(problems) > 0 {
		s.Discard(ctx)
		return fmt.Errorf("%+v", problems)
	}
	d.plan = p
	found, err := s.Preflight(ctx, p)
	if err != nil || len(found) > 0 {
		s.Discard(ctx)
		return errors.Join(err, fmt.Errorf("%+v", found))
	}
	err = s.Execute(ctx, p, func() error {
		now, problems := plan.Make(d.input(ctx, s))
		if len(problems) > 0 {
			return fmt.Errorf("%+v", problems)
		}
		return plan.Same(p, now)
	})
	if err != nil {
		return err
	}
	d.options.Continue = d.options.Continue && !p.Pauses()
	if d.left, problems = plan.Make(d.input(ctx, s)); len(problems) > 0 {
		return fmt.Errorf("after the run: %+v", problems)
	}
	return d.left.Outcome()
}

// input is what a plan depends on.
func (d *driver) input(ctx context.Context, s *run.Site) plan.Input {
	in := plan.Input{Spec: d.c, Answers: s.Answers(), Version: d.version, Bundle: d.file.Bundle.ID(), Arch: "amd64", Options: d.options}
	in.Changes = s.Changes(ctx, plan.Questions(in))
	return in
}

// applied applies until nothing is left to do, and returns the state.
func applied(t *testing.T, w *modelsite.World, c *spec.Cluster, file *run.File, version string) string {
	t.Helper()
	d := &driver{w: w, c: c, file: file, version: version}
	if err := d.apply(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, d.out.String())
	}
	again := &driver{w: w, c: c, file: file, version: version}
	if err := again.apply(t.Context()); err != nil || len(again.plan.Stages) > 0 {
		t.Fatalf("the second run: %v, %+v", err, again.plan)
	}
	return w.State()
}

func TestApply(t *testing.T) {
	c, file := aCluster(), aFile(t, oldVersion)
	w := modelsite.New(c)
	state := applied(t, w, c, file, oldVersion)
	if !strings.Contains(state, "0 tokens") || strings.Count(state, `version "v1.36.3", unfinished "", lock "", `) != 5 {
		t.Errorf("the state is\n%s", state)
	}
	upgraded := applied(t, w, c, aFile(t, newVersion), newVersion)
	if !strings.Contains(upgraded, "cluster v1.37.1") || strings.Count(upgraded, `version "v1.37.1"`) != 5 {
		t.Errorf("after the upgrade:\n%s", upgraded)
	}
	whole := 0
	for _, line := range w.Seen {
		if strings.HasPrefix(line, "send /var/lib/airlift/cluster/whole") {
			whole++
		}
		if strings.Contains(line, modelsite.Token) || strings.Contains(line, modelsite.CertificateKey) {
			t.Errorf("a secret in the arguments: %s", line)
		}
	}
	if whole != 2 { // once for each version
		t.Errorf("the whole file was sent %d times\n%s", whole, strings.Join(w.Seen, "\n"))
	}
}

// TestKilledAnywhere (pains 17 and 19) kills the driver before, in the middle of and after each of its commands, and runs it again.
func TestKilledAnywhere(t *testing.T) {
	c, file, newer := aCluster(), aFile(t, oldVersion), aFile(t, newVersion)
	installed := modelsite.New(c)
	want := applied(t, installed, c, file, oldVersion)
	upgraded := applied(t, installed.Clone(), c, newer, newVersion)
	for how := 1; how <= 3; how++ {
		for n := 1; ; n++ {
			w := modelsite.New(c)
			if !killedAt(t, w, c, file, oldVersion, n, how) {
				break
			}
			if state := applied(t, w, c, file, oldVersion); withoutTokens(state) != withoutTokens(want) {
				t.Fatalf("killed at command %d (%d):\n%s\nwant\n%s", n, how, state, want)
			}
		}
		for n := 1; ; n++ {
			w := installed.Clone()
			if !killedAt(t, w, c, newer, newVersion, n, how) {
				break
			}
			if state := applied(t, w, c, newer, newVersion); withoutTokens(state) != withoutTokens(upgraded) {
				t.Fatalf("upgrade killed at command %d (%d):\n%s\nwant\n%s", n, how, state, upgraded)
			}
		}
	}
}

// withoutTokens is a state without the tokens, which expire by themselves after a driver was killed.
func withoutTokens(state string) string {
	_, rest, _ := strings.Cut(state, "tokens")
	return rest
}

// killedAt kills a driver at its n-th command. It returns false if the driver has fewer.
func killedAt(t *testing.T, w *modelsite.World, c *spec.Cluster, file *run.File, version string, n, how int) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before, killed := w.Commands, false
	w.Kill = func(now int) int {
		switch {
		case now-before == n:
			killed = true
			cancel()
			return how
		case killed:
			return 1 // nothing runs any more
		}
		return 0
	}
	d := &driver{w: w, c: c, file: file, version: version}
	err := d.apply(ctx)
	w.Kill = nil
	for _, m := range w.Hosts {
		m.Lock = "" // its process ended with the connection
	}
	if killed && err == nil && !done(d) {
		t.Errorf("killed at command %d: no error\n%s", n, d.out.String())
	}
	return killed
}

// done reports whether only cleaning up was left.
func done(d *driver) bool { return d.plan != nil }

// A host that cannot be used has its own error, and nothing changes on the others.
func TestOneHostCannotBeUsed(t *testing.T) {
	c, file := aCluster(), aFile(t, oldVersion)
	refused := func(class remote.Class, why string) func(*modelsite.Machine) {
		return func(m *modelsite.Machine) {
			m.Off = fault.Wrap(&remote.Error{Class: class, Host: m.Name, Address: m.Name + ":22", Err: errors.New(why)}, fault.Failure, "a hint")
		}
	}
	for name, break_ := range map[string]struct {
		how  func(*modelsite.Machine)
		want string
	}{
		"off":              {refused(remote.Unreachable, "no route to host"), "no route to host"},
		"wrong password":   {refused(remote.Authentication, "the password was refused"), "the password was refused"},
		"changed host key": {refused(remote.HostKey, "the host key has changed"), "the host key has changed"},
		"no sudo":          {refused(remote.Sudo, "w1 is not in the sudoers file"), "not in the sudoers file"},
		"full disk":        {func(m *modelsite.Machine) { m.Free = 1 }, "are needed there"},
		"pain 14: noexec":  {func(m *modelsite.Machine) { m.NoExec = true }, "mounted with noexec"},
		"a preflight problem": {func(m *modelsite.Machine) {
			m.Findings = `{"errors":[{"name":"Swap","message":"swap is on"}],"warnings":[]}`
		}, "swap is on"},
	} {
		t.Run(name, func(t *testing.T) {
			w := modelsite.New(c)
			break_.how(w.Hosts["w1"])
			d := &driver{w: w, c: c, file: file, version: oldVersion}
			err := d.apply(t.Context())
			if err == nil || !strings.Contains(err.Error(), break_.want) {
				t.Fatalf("%v, want %q", err, break_.want)
			}
			for name, m := range w.Hosts {
				if m.Version != "" || m.Lock != "" || len(m.Files) > 0 {
					t.Errorf("%s was changed: %+v", name, m)
				}
			}
		})
	}
}

// A connection that is lost during a command is opened again, and the command repeated.
func TestLostConnection(t *testing.T) {
	c, file, newer := aCluster(), aFile(t, oldVersion), aFile(t, newVersion)
	for _, on := range []struct{ command, host string }{
		{"send ", "w1"}, {"cluster host facts", "w2"}, {"/install join ", "w1"}, {"/whole init ", "cp1"}, {"/install cluster host credentials ", "cp1"},
		{"/install upgrade node --", "cp2"}, {"/install cluster host wait", "cp1"}, {"/install cluster host nodes", "cp1"},
	} {
		w := modelsite.New(c)
		lost := false
		w.Kill = func(int) int {
			if strings.Contains(w.Seen[len(w.Seen)-1], on.command) && !lost {
				lost, w.Lost[on.host] = true, true
			}
			return 0
		}
		applied(t, w, c, file, oldVersion)
		applied(t, w, c, newer, newVersion)
		if !lost || len(w.Lost) > 0 {
			t.Errorf("%+v was not lost", on)
		}
	}
}

// A host that does not reach the endpoint, but an API server, does not begin to join.
func TestEndpointThatHostsDoNotReach(t *testing.T) {
	c, w := aCluster(), modelsite.New(aCluster())
	w.Fails["w1"] = "cluster host reach --endpoint 10.0.0.9:6443 --api-servers 10.0.0.1:6443,10.0.0.2:6443"
	d := &driver{w: w, c: c, file: aFile(t, oldVersion), version: oldVersion}
	err := d.apply(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cluster host reach") || w.Hosts["w1"].Version != "" || w.Hosts["cp2"].Version == "" {
		t.Errorf("%v; w1 has %q", err, w.Hosts["w1"].Version)
	}
	delete(w.Fails, "w1")
	applied(t, w, c, d.file, oldVersion)
}

// TestSecretsStayInMemory looks for secrets in all output of a driver, with and without errors.
func TestSecretsStayInMemory(t *testing.T) {
	c, file := aCluster(), aFile(t, oldVersion)
	for _, fails := range []string{"", "join", "init"} {
		w := modelsite.New(c)
		w.Fails["w2"], w.Fails["cp1"] = fails, fails
		d := &driver{w: w, c: c, file: file, version: oldVersion}
		err := d.apply(t.Context())
		all := d.out.String() + strings.Join(w.Seen, "\n") + fmt.Sprint(err)
		if strings.Contains(all, modelsite.Token) || strings.Contains(all, modelsite.CertificateKey) {
			t.Errorf("a secret in\n%s", all)
		}
		if w.Tokens != 0 {
			t.Errorf("%d tokens stay", w.Tokens)
		}
		if (fails != "") != (err != nil) || err != nil && fault.Hint(err) != "see the model" {
			t.Errorf("%s: %v", fails, err)
		}
	}
}

// aCanary puts w1 into a group of its own, which is upgraded before w2.
func aCanary() *spec.Cluster {
	c := aCluster()
	c.Groups = append(c.Groups, spec.Group{Name: "canary", Roll: spec.GroupRoll{MaxUnavailable: "1"}})
	c.Roll.Order = []string{"canary"}
	c.Hosts[3].Group = "canary"
	return c
}

// upgrade installs the old version, and upgrades.
func upgrade(t *testing.T, c *spec.Cluster, change func(*modelsite.World)) (*modelsite.World, *driver, error) {
	t.Helper()
	w := modelsite.New(c)
	applied(t, w, c, aFile(t, oldVersion), oldVersion)
	change(w)
	d := &driver{w: w, c: c, file: aFile(t, newVersion), version: newVersion}
	err := d.apply(t.Context())
	return w, d, err
}

// Pains 30 and 32: a canary that fails stops the roll before the next host.
func TestFailedCanaryStopsTheRoll(t *testing.T) {
	for _, undo := range []bool{false, true} {
		c := aCanary()
		c.Roll.Undo = undo
		w, d, err := upgrade(t, c, func(w *modelsite.World) { w.Fails["w1"] = "upgrade node --drain" })
		if err == nil || w.Hosts["w2"].Version != oldVersion {
			t.Errorf("undo %v: %v; w2 has %s\n%s", undo, err, w.Hosts["w2"].Version, d.out.String())
		}
		if w.Hosts["w1"].Lock != "" {
			t.Error("a lock stays")
		}
	}
}

func TestPauseAfterAGroup(t *testing.T) {
	c := aCanary()
	c.Groups[2].Roll.Pause = true
	w, d, err := upgrade(t, c, func(*modelsite.World) {})
	if fault.ExitCode(err) != fault.Paused || !strings.HasPrefix(err.Error(), "group canary has") || w.Hosts["w1"].Version != newVersion || w.Hosts["w2"].Version != oldVersion {
		t.Fatalf("%v\n%s", err, w.State())
	}
	again := &driver{w: w, c: c, file: d.file, version: newVersion}
	if err := again.apply(t.Context()); fault.ExitCode(err) != fault.Paused || len(again.plan.Stages) > 0 || w.Hosts["w2"].Version != oldVersion {
		t.Errorf("without --continue: %v", err)
	}
	again.options.Continue = true
	if err := again.apply(t.Context()); err != nil || w.Hosts["w2"].Version != newVersion {
		t.Errorf("with --continue: %v\n%s", err, w.State())
	}
}

// A pause after control planes of several groups names those that pause. Without a name, apply would say that all is done.
func TestPauseAfterGroupsOfControlPlanes(t *testing.T) {
	c := aCluster()
	c.Groups = append(c.Groups, spec.Group{Name: "other", Roll: spec.GroupRoll{Pause: true}})
	c.Hosts[1].Group = "other"
	w, d, err := upgrade(t, c, func(*modelsite.World) {})
	if fault.ExitCode(err) != fault.Paused || !strings.HasPrefix(err.Error(), "group other has") || w.Hosts["cp3"].Version != newVersion || w.Hosts["w1"].Version != oldVersion {
		t.Errorf("%v\n%s\n%s", err, d.out.String(), w.State())
	}
}

// A host that is skipped serves: it does not count as down. Otherwise, its group waits for it without an end.
func TestSkippedHostIsNotDown(t *testing.T) {
	c := aCluster()
	w := modelsite.New(c)
	applied(t, w, c, aFile(t, oldVersion), oldVersion)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	w.Kill = func(int) int {
		if strings.Contains(w.Seen[len(w.Seen)-1], "cluster host facts") {
			looks++
		}
		if looks > 24 { // it needs fewer
			cancel()
		}
		return 0
	}
	d := &driver{w: w, c: c, file: aFile(t, newVersion), version: newVersion, options: plan.Options{Skip: []string{"w1"}}}
	if err := d.apply(ctx); fault.ExitCode(err) != fault.Held || w.Hosts["w2"].Version != newVersion || w.Hosts["w1"].Version != oldVersion {
		t.Errorf("%v after %d looks at hosts\n%s\n%s", err, looks, w.State(), d.out.String())
	}
}

// A check of the user that fails stops the roll, and undoes the batch if asked.
func TestCheckOfAGroup(t *testing.T) {
	c := aCanary()
	c.Roll.Undo = true
	c.Groups[2].Roll.Check = []string{"/bin/sh", "-c", "echo the shop is closed; exit 1"}
	w, _, err := upgrade(t, c, func(*modelsite.World) {})
	if err == nil || !strings.Contains(err.Error(), "the shop is closed") || !strings.Contains(err.Error(), "The upgrade of w1 was undone") {
		t.Errorf("%v", err)
	}
	if w.Hosts["w2"].Version != oldVersion || w.Hosts["w1"].Version != oldVersion {
		t.Errorf("w2 was changed, or w1 was not undone\n%s", w.State())
	}
}

// A second driver changes nothing, and its error names the holder of the lock.
func TestSecondDriver(t *testing.T) {
	c, file := aCluster(), aFile(t, oldVersion)
	w := modelsite.New(c)
	w.Hosts["w2"].Lock = "bob@desk, pid 12, cluster apply"
	d := &driver{w: w, c: c, file: file, version: oldVersion}
	err := d.apply(t.Context())
	if err == nil || !strings.Contains(err.Error(), "w2: another driver changes this host: bob@desk, pid 12, cluster apply, since ") {
		t.Errorf("%v", err)
	}
	for name, m := range w.Hosts {
		if m.Version != "" || name != "w2" && m.Lock != "" {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// Pains 11 and 12: a second run sends nothing.
func TestSecondRunSendsNothing(t *testing.T) {
	c, file := aCluster(), aFile(t, oldVersion)
	w := modelsite.New(c)
	applied(t, w, c, file, oldVersion)
	w.Sent = 0
	applied(t, w, c, file, oldVersion)
	if w.Sent != 0 {
		t.Errorf("%d bytes were sent", w.Sent)
	}
}

// Pain 24: any control plane leads. The first one is off, and a worker joins.
func TestFirstControlPlaneIsOff(t *testing.T) {
	c, file := aCluster(), aFile(t, oldVersion)
	w := modelsite.New(c)
	applied(t, w, c, file, oldVersion)
	c.Hosts = append(c.Hosts, spec.Host{Name: "w3", Role: spec.Worker, Group: "worker", SSH: spec.SSH{Address: "w3", Port: 22, User: "root"}})
	w.Hosts["w3"] = &modelsite.Machine{Name: "w3", Role: spec.Worker, Files: map[string]string{}, Free: 1 << 22}
	w.Hosts["cp1"].Off = errors.New("no route to host")
	d := &driver{w: w, c: c, file: file, version: oldVersion, options: plan.Options{Skip: []string{"cp1"}}}
	if err := d.apply(t.Context()); fault.ExitCode(err) != fault.Skipped || w.Hosts["w3"].Version != oldVersion || d.plan.Leader == "cp1" || w.Tokens != 0 {
		t.Errorf("%v\n%s", err, d.out.String())
	}
}

// A control plane that is lost during a roll of workers is not waited for: another one knows the cluster. At the end it is unknown
// whether that one matches the file.
func TestControlPlaneIsLostDuringARoll(t *testing.T) {
	c := aCluster()
	c.Hosts[0], c.Hosts[2] = c.Hosts[2], c.Hosts[0] // the one that leads is not asked first
	w, d, err := upgrade(t, c, func(w *modelsite.World) {
		w.Kill = func(int) int {
			if strings.Contains(w.Seen[len(w.Seen)-1], "upgrade node --drain") && w.Hosts["cp3"].Version == newVersion && w.Hosts["cp3"].Off == nil {
				w.Hosts["cp3"].Off, w.Lost["cp3"] = errors.New("no route to host"), true
			}
			return 0
		}
	})
	if err == nil || !strings.Contains(err.Error(), "after the run: ") || !strings.Contains(err.Error(), "no route to host") || w.Hosts["w2"].Version != newVersion || w.Lost["cp3"] {
		t.Errorf("%v\n%s", err, d.out.String())
	}
}

// The hint for an upgrade that was undone does not say how to undo it.
func TestHintAfterUndo(t *testing.T) {
	c := aCanary()
	c.Roll.Undo = true
	_, _, err := upgrade(t, c, func(w *modelsite.World) { w.Fails["w1"] = "upgrade node --drain" })
	if want := "see the model; then, when the cause is gone: ./install cluster apply"; err == nil || fault.Hint(err) != want {
		t.Errorf("%v, hint %q, want %q", err, fault.Hint(err), want)
	}
}

// An undo that fails is in the error, too, and the next run changes nothing before somebody has finished it.
func TestUndoFails(t *testing.T) {
	c := aCanary()
	c.Roll.Undo = true
	w, d, err := upgrade(t, c, func(w *modelsite.World) { w.Fails["w1"] = "upgrade node --drain|upgrade undo" })
	if err == nil || !strings.Contains(err.Error(), "upgrade node --drain failed") || !strings.Contains(err.Error(), "upgrade undo failed") || fault.Hint(err) == "" {
		t.Errorf("%v, hint %q", err, fault.Hint(err))
	}
	delete(w.Fails, "w1")
	before := w.State()
	again := &driver{w: w, c: c, file: d.file, version: newVersion}
	if err := again.apply(t.Context()); err == nil || !strings.Contains(err.Error(), "./install upgrade undo") || w.State() != before {
		t.Errorf("%v\n%s\nbefore\n%s", err, w.State(), before)
	}
}

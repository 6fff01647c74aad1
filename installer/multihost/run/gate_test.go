package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/modelsite"
	_ "airlift/scripts/fixtures/seed"
)

// checkFor returns a check that fails while a file exists.
func checkFor(file string) []string { return []string{"/bin/sh", "-c", "test ! -e " + file} }

func touch(t interface{ Fatal(...any) }, file string) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// again runs apply once more, as another driver.
func (d *driver) again(t *testing.T) (*driver, error) {
	t.Helper()
	next := &driver{w: d.w, c: d.c, file: d.file, version: d.version, options: d.options}
	return next, next.apply(t.Context())
}

// What a batch owes is not forgotten because a run ended: the next one repeats the wait, the soak and the check before it changes
// another host.
func TestGateStaysClosed(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	for _, c := range []struct {
		name   string
		fail   func(*modelsite.World)
		repair func(*modelsite.World)
		want   string
	}{
		{"the check fails", func(*modelsite.World) { touch(t, broken) }, func(*modelsite.World) { _ = os.Remove(broken) }, "the check of group canary failed"},
		{"the node does not get healthy", func(w *modelsite.World) { w.Sick = map[string]bool{"w1": true} }, func(w *modelsite.World) { w.Sick = nil }, "w1: not Ready"},
	} {
		t.Run(c.name, func(t *testing.T) {
			site := aCanary()
			site.Groups[2].Roll.Soak, site.Groups[2].Roll.Check = 10*time.Minute, checkFor(broken)
			w, d, err := upgrade(t, site, c.fail)
			for range 2 {
				if err == nil || !strings.Contains(err.Error(), c.want) || w.Hosts["w2"].Version != oldVersion || w.Gate == nil {
					t.Fatalf("%v; w2 has %s, gate %+v\n%s", err, w.Hosts["w2"].Version, w.Gate, d.out.String())
				}
				d, err = d.again(t)
				if len(d.plan.Stages) == 0 || d.plan.Stages[0].Owed == nil {
					t.Fatalf("the next plan is %+v", d.plan.Stages)
				}
			}
			c.repair(w)
			seen := len(w.Seen)
			if d, err = d.again(t); err != nil || w.Hosts["w2"].Version != newVersion || w.Gate != nil {
				t.Fatalf("%v; w2 has %s, gate %+v\n%s", err, w.Hosts["w2"].Version, w.Gate, d.out.String())
			}
			soaked := slices.IndexFunc(w.Seen[seen:], func(line string) bool { return strings.Contains(line, "cluster host wait --for 10m0s") })
			next := slices.IndexFunc(w.Seen[seen:], func(line string) bool { return strings.Contains(line, "upgrade node --drain") })
			if soaked < 0 || next < soaked {
				t.Errorf("the next host changes at %d, and the soak is at %d\n%s", next, soaked, strings.Join(w.Seen[seen:], "\n"))
			}
			if d, err = d.again(t); err != nil || len(d.plan.Stages) > 0 {
				t.Errorf("%v, %+v", err, d.plan.Stages)
			}
		})
	}
}

// A batch that cannot be recorded changes nothing.
func TestGateThatCannotBeRecorded(t *testing.T) {
	w, d, err := upgrade(t, aCanary(), func(w *modelsite.World) {
		for _, name := range []string{"cp1", "cp2", "cp3"} {
			w.Fails[name] = "cluster host gate"
		}
	})
	if err == nil || w.Version != oldVersion || strings.Contains(strings.Join(w.Seen, "\n"), "upgrade apply --yes") {
		t.Errorf("%v\n%s", err, d.out.String())
	}
}

// Undo is for the nodes that are not healthy, also of those whose action ended without an error, and for no other one.
func TestUndoOfNodesThatAreNotHealthy(t *testing.T) {
	for _, c := range []struct {
		name, fails, sick string
		check             []string
		undone            string
	}{
		{"never healthy", "", "w1", nil, "w1"},
		{"one fails, the other is healthy", "w2", "", nil, "w2"},
		{"one fails, the other is not healthy", "w2", "w1", nil, "w1, w2"},
		{"the check fails", "", "", []string{"false"}, "w1, w2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			site := aCluster()
			site.Roll.Undo = true
			site.Groups[1].Roll.MaxUnavailable, site.Groups[1].Roll.Check = "2", c.check
			w, d, err := upgrade(t, site, func(w *modelsite.World) {
				w.Fails[c.fails] = "upgrade node --drain"
				w.Sick = map[string]bool{c.sick: true}
			})
			if err == nil || !strings.Contains(err.Error(), "The upgrade of "+c.undone+" was undone") || w.Gate == nil {
				t.Fatalf("%v, gate %+v\n%s", err, w.Gate, d.out.String())
			}
			for _, name := range []string{"w1", "w2"} {
				want := newVersion
				if strings.Contains(c.undone, name) {
					want = oldVersion
				}
				if got := w.Hosts[name].Version; got != want {
					t.Errorf("%s has %s, want %s", name, got, want)
				}
			}
		})
	}
}

// After an undo, the next run first finds out whether the cause was the upgrade.
func TestGateAfterUndo(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	site := aCanary()
	site.Roll.Undo = true
	site.Groups[2].Roll.Check = checkFor(broken)
	w, d, err := upgrade(t, site, func(*modelsite.World) { touch(t, broken) })
	if err == nil || w.Hosts["w1"].Version != oldVersion {
		t.Fatal(err)
	}
	upgrades := func() int { return strings.Count(strings.Join(w.Seen, "\n"), "upgrade node --drain") }
	before := upgrades()
	if d, err = d.again(t); err == nil || upgrades() != before {
		t.Errorf("%v, %d upgrades more", err, upgrades()-before)
	}
	_ = os.Remove(broken)
	if _, err = d.again(t); err != nil || w.Hosts["w2"].Version != newVersion {
		t.Errorf("%v\n%s", err, w.State())
	}
}

// The rule to undo holds also for a batch of an earlier run: one that did not undo, or was killed.
func TestUndoInTheNextRun(t *testing.T) {
	site := aCanary()
	site.Groups[2].Roll.Check = []string{"false"}
	w, d, err := upgrade(t, site, func(*modelsite.World) {})
	if err == nil || w.Hosts["w1"].Version != newVersion {
		t.Fatal(err)
	}
	site.Roll.Undo = true
	for range 2 { // the second time, nothing is left to undo
		d, err = d.again(t)
		if err == nil || w.Hosts["w1"].Version != oldVersion || w.Gate == nil {
			t.Errorf("%v\n%s", err, w.State())
		}
	}
	if n := strings.Count(strings.Join(w.Seen, "\n"), "upgrade undo"); n != 1 {
		t.Errorf("%d times undone", n)
	}
}

// The checks of all groups of a batch run, each once: for control planes of two groups, and for a change of the configuration.
func TestChecksOfEachGroup(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	site := aCluster()
	site.Groups = append(site.Groups, spec.Group{Name: "other"})
	site.Hosts[1].Group = "other"
	for i := range site.Groups {
		site.Groups[i].Roll.Check = []string{"/bin/sh", "-c", fmt.Sprintf("echo %s >>%s", site.Groups[i].Name, log)}
	}
	ran := func() string {
		data, _ := os.ReadFile(log)
		_ = os.Remove(log)
		return strings.Join(strings.Fields(string(data)), " ")
	}
	w, d, err := upgrade(t, site, func(*modelsite.World) {})
	if got, want := ran(), "control-plane control-plane other worker worker"; err != nil || inOrder(got) != want {
		t.Errorf("%v; the checks %s, want %s", err, got, want)
	}
	site.Kubeadm = []byte(`{"apiVersion":"kubeadm.k8s.io/v1beta4","kind":"ClusterConfiguration","scheduler":{"extraArgs":[{"name":"v","value":"3"}]}}`)
	d, err = d.again(t)
	if got, want := ran(), "control-plane control-plane other worker worker"; err != nil || inOrder(got) != want {
		t.Errorf("%v; the checks %s, want %s\n%s\n%s", err, got, want, d.out.String(), w.State())
	}
}

func inOrder(words string) string {
	list := strings.Fields(words)
	slices.Sort(list)
	return strings.Join(list, " ")
}

// A check ends with its own process: one that it left behind, and that keeps the output open, does not hold the roll.
func TestCheckThatLeavesAProcess(t *testing.T) {
	end := filepath.Join(t.TempDir(), "end")
	defer touch(t, end)
	site := aCanary()
	site.Groups[2].Roll.Check = []string{"/bin/sh", "-c", "while test -d " + filepath.Dir(end) + " && test ! -e " + end + "; do sleep 0.1; done & true"}
	if w, d, err := upgrade(t, site, func(*modelsite.World) {}); err != nil || w.Hosts["w2"].Version != newVersion {
		t.Errorf("%v\n%s", err, d.out.String())
	}
}

// A worker whose check fails because of what runs on it can leave, and the roll goes on.
func TestWorkerOfTheLastBatchLeaves(t *testing.T) {
	site := aCanary()
	dir := t.TempDir()
	site.Groups[2].Roll.Check = []string{"/bin/sh", "-c", "test -e " + filepath.Join(dir, "gone")}
	w, _, err := upgrade(t, site, func(*modelsite.World) {})
	if err == nil {
		t.Fatal("the check succeeded")
	}
	site.Hosts = slices.DeleteFunc(site.Hosts, func(h spec.Host) bool { return h.Name == "w1" })
	leaves := func() bool {
		return slices.ContainsFunc(w.Seen, func(args string) bool { return strings.Contains(args, "node remove w1") })
	}
	w.Kill = func(int) int {
		if leaves() {
			touch(t, filepath.Join(dir, "gone"))
		}
		return 0
	}
	d := &driver{w: w, c: site, file: aFile(t, newVersion), version: newVersion, options: plan.Options{Remove: true}}
	if err := d.apply(t.Context()); err != nil || !leaves() || w.Hosts["w2"].Version != newVersion || w.Gate != nil {
		t.Errorf("%v\n%s\n%s", err, d.out.String(), w.State())
	}
}

// A pod that was broken before the roll does not fail its batch, also in the run that continues it. One that breaks in it does.
func TestPodThatWasBrokenBeforeTheRoll(t *testing.T) {
	const agent, dns = "kube-system/DaemonSet/agent on w1", "kube-system/DaemonSet/dns on w1"
	_, d, err := upgrade(t, aCanary(), func(w *modelsite.World) { w.Broken = map[string]string{agent: "w1"} })
	if err != nil {
		t.Fatalf("%v\n%s", err, d.out.String())
	}
	w, d, err := upgrade(t, aCanary(), func(w *modelsite.World) {
		w.Broken = map[string]string{agent: "w1"}
		w.Changes = func(host, _ string) {
			if host == "w1" {
				w.Broken[dns] = "w1"
			}
		}
	})
	for range 2 {
		if err == nil || !strings.Contains(err.Error(), dns) || strings.Contains(err.Error(), agent) {
			t.Errorf("%v", err)
		}
		d, err = d.again(t)
	}
	delete(w.Broken, dns)
	if _, err = d.again(t); err != nil || w.Hosts["w2"].Version != newVersion {
		t.Errorf("%v", err)
	}
}

// Two drivers do not overwrite each other's batch.
func TestGateOfAnotherDriver(t *testing.T) {
	w, d, err := upgrade(t, aCanary(), func(w *modelsite.World) {
		w.Kill = func(int) int {
			if strings.Contains(w.Seen[len(w.Seen)-1], "cluster host gate") && w.Gate == nil && w.Version == oldVersion {
				w.Gate = gateOf("w2")
			}
			return 0
		}
	})
	if err == nil || !strings.Contains(err.Error(), "another driver") || w.Hosts["cp1"].Version != oldVersion {
		t.Errorf("%v\n%s", err, d.out.String())
	}
}

// The driver of the last batch may still change a host that this cluster.yaml does not have: the batch passes with its version only.
func TestLastBatchPassesWithItsVersion(t *testing.T) {
	site := aCluster()
	w := modelsite.New(site)
	applied(t, w, site, aFile(t, oldVersion), oldVersion)
	w.Gate = gateOf("w1")
	w.Gate.Verb, w.Gate.To = plan.Upgrade, newVersion
	other := *site
	other.Hosts = slices.DeleteFunc(slices.Clone(site.Hosts), func(h spec.Host) bool { return h.Name == "w1" })
	d := &driver{w: w, c: &other, file: aFile(t, newVersion), version: newVersion}
	if err := d.apply(t.Context()); err == nil || !strings.Contains(err.Error(), "w1: not Ready") || w.Gate == nil || w.Hosts["cp1"].Version != oldVersion {
		t.Errorf("%v\n%s\n%s", err, d.out.String(), w.State())
	}
}

// A rollWatch is what the hosts of a model know about a roll, without the driver's records.
type rollWatch struct {
	epoch  int            // begins with each run and each wait
	owing  map[string]int // hosts that changed, and did not pass since: when
	waited map[string]bool
	broken string // the first rule that was broken
}

func (r *rollWatch) changes(host, verb string) {
	_, again := r.owing[host]
	for other, when := range r.owing {
		if !again && when != r.epoch && r.broken == "" {
			r.broken = fmt.Sprintf("%q changes %s, and %s has not passed", verb, host, other)
		}
	}
	r.owing[host] = r.epoch
	delete(r.waited, host)
}

func (r *rollWatch) wait(nodes []string) {
	r.epoch++
	for _, name := range nodes {
		r.waited[name] = true
	}
}

// passed is called after a check that succeeded.
func (r *rollWatch) passed() {
	for name := range r.waited {
		delete(r.owing, name)
	}
	r.waited = map[string]bool{}
}

// Whatever fails, is killed, edited, skipped, undone or paused: no host is changed by a roll while another one has not passed its health
// and its check. No run says that all is done before. When all pass, it ends.
func TestGatesHoldInAnySequence(t *testing.T) {
	files := map[string]*run.File{oldVersion: aFile(t, oldVersion), newVersion: aFile(t, newVersion)}
	dir := t.TempDir()
	ended, blocked := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		c := aCanary()
		c.Groups = append(c.Groups, spec.Group{Name: "other"})
		c.Hosts[1].Group = rapid.SampledFrom([]string{"control-plane", "other"}).Draw(rt, "group of cp2")
		broken, log := filepath.Join(dir, "broken"), filepath.Join(dir, "log")
		_ = os.Remove(broken)
		for i := range c.Groups {
			c.Groups[i].Roll.Check = []string{"/bin/sh", "-c", "test ! -e " + broken + " && echo x >>" + log}
			c.Groups[i].Roll.Pause = rapid.IntRange(0, 3).Draw(rt, "pause") == 0
			c.Groups[i].Roll.Soak = time.Duration(rapid.IntRange(0, 1).Draw(rt, "soak")) * time.Minute
			c.Groups[i].Roll.MaxUnavailable = rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "maxUnavailable")
		}
		w := modelsite.New(c)
		first := &driver{w: w, c: c, file: files[oldVersion], version: oldVersion}
		if err := first.apply(t.Context()); err != nil {
			rt.Fatal(err)
		}
		watch := &rollWatch{owing: map[string]int{}, waited: map[string]bool{}}
		checks := 0 // that have succeeded
		see := func() {
			data, _ := os.ReadFile(log)
			if n := bytes.Count(data, []byte("x")); n > checks {
				checks = n
				watch.passed()
			}
		}
		_ = os.Remove(log)
		w.Changes = func(host, verb string) { see(); watch.changes(host, verb) }
		w.Waited = func(nodes []string) { see(); watch.wait(nodes) }
		apply := func(change func(*driver)) (*driver, error) {
			watch.epoch++
			d := &driver{w: w, c: c, file: files[newVersion], version: newVersion}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begun, killed := w.Commands, false
			at := 0
			if change != nil {
				change(d)
				at = rapid.IntRange(0, 150).Draw(rt, "killed at")
			}
			how := rapid.IntRange(1, 3).Draw(rt, "how")
			w.Kill = func(now int) int {
				switch {
				case at > 0 && now-begun == at:
					killed = true
					cancel()
					return how
				case killed:
					return 1
				}
				return 0
			}
			err := d.apply(ctx)
			w.Kill = nil
			for _, m := range w.Hosts {
				m.Lock = ""
			}
			see()
			if watch.broken != "" {
				rt.Fatalf("%s\n%s", watch.broken, d.out.String())
			}
			if err == nil && !killed && len(watch.owing) > 0 {
				rt.Fatalf("the run is done, and %v have not passed\n%s", watch.owing, d.out.String())
			}
			return d, err
		}
		for range rapid.IntRange(1, 5).Draw(rt, "runs") {
			if rapid.Bool().Draw(rt, "broken") {
				touch(rt, broken)
			} else {
				_ = os.Remove(broken)
			}
			w.Sick = map[string]bool{rapid.SampledFrom([]string{"", "", "cp1", "cp2", "w1", "w2"}).Draw(rt, "sick"): true}
			w.Fails = map[string]string{rapid.SampledFrom([]string{"", "", "cp2", "w1", "w2"}).Draw(rt, "fails"): "upgrade node --drain"}
			_, err := apply(func(d *driver) {
				c.Roll.Undo = rapid.Bool().Draw(rt, "undo")
				d.options.Continue = rapid.Bool().Draw(rt, "continue")
				if rapid.IntRange(0, 4).Draw(rt, "skip") == 0 {
					d.options.Skip = []string{rapid.SampledFrom([]string{"w1", "w2"}).Draw(rt, "whom")}
				}
				switch rapid.IntRange(0, 5).Draw(rt, "edit") {
				case 0:
					c.Hosts[3].Group = "worker"
				case 1:
					c.Groups[1].Roll.MaxUnavailable = "1"
				case 2:
					c.Kubeadm = fmt.Appendf(nil, `{"apiVersion":"kubeadm.k8s.io/v1beta4","kind":"ClusterConfiguration","scheduler":{"extraArgs":[{"name":"v","value":"%d"}]}}`, w.Commands)
				}
			})
			if err != nil && !fault.ExitCode(err).IsOutcome() && !errors.Is(err, modelsite.ErrKilled) {
				blocked++
			}
		}
		_ = os.Remove(broken)
		w.Sick, w.Fails = nil, map[string]string{}
		for round := 0; ; round++ {
			d, err := apply(nil)
			if err != nil && !fault.ExitCode(err).IsOutcome() {
				rt.Fatalf("all is well again: %v\n%s", err, w.State())
			}
			if err == nil {
				break
			}
			if fault.ExitCode(err) == fault.Paused {
				for i := range c.Groups {
					c.Groups[i].Roll.Pause = false
				}
			}
			if round > 8 {
				rt.Fatalf("no end: %+v", d.plan)
			}
		}
		ended++
		if w.Gate != nil || len(watch.owing) > 0 || strings.Count(w.State(), `version "v1.37.1", unfinished "", lock ""`) != 5 {
			rt.Fatalf("the end: gate %+v, owing %v\n%s", w.Gate, watch.owing, w.State())
		}
	})
	if ended == 0 || blocked == 0 {
		t.Errorf("%d sequences ended, %d runs were blocked", ended, blocked)
	}
}

func gateOf(host string) *facts.Gate {
	return &facts.Gate{Stage: "upgrade worker", Hosts: []string{host}, Groups: []string{"worker"}, By: "bob@desk", Since: time.Now()}
}

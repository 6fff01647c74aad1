package run_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"airlift/fault"
	"airlift/multihost/plan"
	"airlift/scripts/fixtures/modelsite"
)

// A worker that is down and skipped does not let apply wait after the control planes were upgraded: the plan holds the others of its
// group, and apply ends with that. When it is up again, the same command without --skip does the rest.
func TestWorkerThatIsDownHoldsItsGroup(t *testing.T) {
	c := aCluster()
	w := modelsite.New(c)
	applied(t, w, c, aFile(t, oldVersion), oldVersion)
	w.NotReady = map[string]bool{"w1": true}
	d := &driver{w: w, c: c, file: aFile(t, newVersion), version: newVersion, options: plan.Options{Skip: []string{"w1"}}}
	err := d.apply(t.Context())
	if fault.ExitCode(err) != fault.Held || !strings.HasPrefix(err.Error(), "w1 is down, so these do not change: upgrade worker: w2") || w.Hosts["w2"].Version != oldVersion || w.Version != newVersion {
		t.Fatalf("%v\n%s", err, w.State())
	}
	w.NotReady = nil
	again := &driver{w: w, c: c, file: d.file, version: newVersion}
	if err := again.apply(t.Context()); err != nil || w.Hosts["w2"].Version != newVersion {
		t.Errorf("%v\n%s", err, w.State())
	}
}

// A budget that never allows a disruption ends apply after its limit, with the budget's name, and the control planes upgraded.
func TestBudgetThatNeverAllowsEnds(t *testing.T) {
	c := aCluster()
	old, newer := aFile(t, oldVersion), aFile(t, newVersion)
	synctest.Test(t, func(t *testing.T) {
		w := modelsite.New(c)
		applied(t, w, c, old, oldVersion)
		w.Blocked = map[string][]string{"w1": {"shop/web"}}
		d := &driver{w: w, c: c, file: newer, version: newVersion}
		began := time.Now()
		err := d.apply(t.Context())
		if fault.ExitCode(err) != fault.Held || !strings.Contains(err.Error(), "shop/web of pods on w1") || w.Hosts["w2"].Version != newVersion || w.Hosts["w1"].Version != oldVersion {
			t.Errorf("%v\n%s", err, w.State())
		}
		if waited := time.Since(began); waited < plan.WaitLimit || waited > 2*plan.WaitLimit {
			t.Errorf("it waited for %v", waited)
		}
		if !strings.Contains(fmt.Sprint(d.plan.Notes), "w1 cannot be drained now: shop/web allows no disruption") {
			t.Errorf("the plan does not have the wait: %q", d.plan.Notes)
		}
	})
}

// Each command that changes a host is one of the plan, with its flags, and each of the plan runs.
func TestThePlanIsWhatRuns(t *testing.T) {
	c := aCluster()
	w := modelsite.New(c)
	old, newer := aFile(t, oldVersion), aFile(t, newVersion)
	for _, run := range []struct {
		version string
		change  func()
	}{
		{oldVersion, func() {}},
		{newVersion, func() { w.Cordoned = map[string]bool{"w2": true} }},
		{newVersion, func() { c.Kubeadm = configured("4").Kubeadm }},
	} {
		run.change()
		file := old
		if run.version == newVersion {
			file = newer
		}
		n := len(w.Seen)
		d := &driver{w: w, c: c, file: file, version: run.version}
		if err := d.apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		var planned, ran []string
		for _, st := range d.plan.Stages {
			for _, a := range st.Actions {
				for _, args := range a.Commands {
					planned = append(planned, strings.Join(args, " "))
				}
			}
		}
		for _, line := range w.Seen[n:] {
			path, args, _ := strings.Cut(line, " ")
			reads := strings.HasPrefix(args, "cluster host ") && !strings.HasPrefix(args, "cluster host nodes") || strings.HasPrefix(args, "preflight") || strings.Contains(args, "--plan")
			if strings.HasPrefix(path, "/var/lib/airlift/cluster/") && !reads {
				ran = append(ran, strings.TrimSuffix(args, " --progress json"))
			}
		}
		slices.Sort(planned)
		slices.Sort(ran)
		if !slices.Equal(planned, ran) || len(ran) == 0 {
			t.Errorf("the plan has\n  %s\nand these ran:\n  %s", strings.Join(planned, "\n  "), strings.Join(ran, "\n  "))
		}
	}
	if !slices.ContainsFunc(w.Seen, func(line string) bool { return strings.Contains(line, "upgrade node --drain=false") }) {
		t.Error("w2 was drained, and somebody had made it unschedulable")
	}
}

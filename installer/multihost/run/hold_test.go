package run_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/modelsite"
	"airlift/scripts/fixtures/seed"
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

// Each command that changes a host is one of the plan, with its flags, and each of the plan runs, whatever is edited.
func TestThePlanIsWhatRuns(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	files := []*run.File{aFile(t, oldVersion), aFile(t, newVersion), another(t, newVersion)}
	var all []string
	missing := func() (list []string) {
		for _, command := range []string{"upgrade node --drain=false", "upgrade node --drain-timeout", "registry enable", "reset --force", "reset --force --remove-node", "--keep-node", "reconfigure node", "join"} {
			if !slices.ContainsFunc(all, func(line string) bool { return strings.Contains(line, command) }) {
				list = append(list, command)
			}
		}
		return list
	}
	for tries := 0; tries < 20 || len(missing()) > 0 && tries < 400; tries++ {
		c := aCluster()
		w := modelsite.New(c)
		at, version := 0, oldVersion
		for step := range 8 {
			switch random.IntN(6) {
			case 0: // a newer file, and then another one of the same version
				at, version = 1+at%2, newVersion
			case 1:
				w.Cordoned = map[string]bool{"w2": step%2 == 0}
			case 2:
				c.Kubeadm = configured(fmt.Sprint(step)).Kubeadm
			case 3:
				if n := len(c.Hosts) - 1; n > 2 {
					w.Hosts[c.Hosts[n].Name].Adopted = random.IntN(2) == 0
					c.Hosts = c.Hosts[:n]
				}
			case 4:
				name := fmt.Sprint("x", step)
				c.Hosts = append(c.Hosts, spec.Host{Name: name, Role: spec.Worker, Group: "worker", SSH: spec.SSH{Address: name, Port: 22, User: "root"}})
				w.Hosts[name] = &modelsite.Machine{Name: name, Role: spec.Worker, Files: map[string]string{}, Free: 1 << 22, Labels: map[string]string{}}
			case 5:
				c.Hosts[random.IntN(3)].Labels = map[string]string{"step": fmt.Sprint(step)}
			}
			n := len(w.Seen)
			d := &driver{w: w, c: c, file: files[at], version: version, options: plan.Options{Remove: step > 0}}
			if err := d.apply(t.Context()); err != nil && fault.ExitCode(err) != fault.Waiting {
				t.Fatalf("step %d: %v\n%s", step, err, d.out.String())
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
			if !slices.Equal(planned, ran) {
				t.Fatalf("step %d: the plan has\n  %s\nand these ran:\n  %s", step, strings.Join(planned, "\n  "), strings.Join(ran, "\n  "))
			}
			all = append(all, ran...)
		}
	}
	if list := missing(); len(list) > 0 {
		t.Errorf("did not run: %q", list)
	}
}

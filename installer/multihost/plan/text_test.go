package plan_test

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/internal/progress"
	_ "airlift/scripts/fixtures/seed"
)

var (
	colors = regexp.MustCompile(`\x1b\[[0-9]*m`)
	row    = regexp.MustCompile(`^ ([+~-]) (.*)$`)
	total  = regexp.MustCompile(`\nPlan: (\d+) to add, (\d+) to change, (\d+) to remove; `)
)

// aPlan draws a plan whose stages have anything that actions may differ in.
func aPlan(t *rapid.T) *plan.Plan {
	p := &plan.Plan{Cluster: "site", Version: newVersion}
	verbs := rapid.SampledFrom([]string{plan.Init, plan.Join, plan.Unpack, plan.Upgrade, plan.Reconfigure, plan.NodeMeta, plan.Remove, plan.RemoveOff, plan.Pass})
	for i := range rapid.IntRange(1, 4).Draw(t, "stages") {
		st := plan.Stage{Name: fmt.Sprint("stage ", i), Limit: rapid.IntRange(0, 5).Draw(t, "limit"), Seconds: rapid.IntRange(0, 9000).Draw(t, "seconds")}
		for n := range rapid.IntRange(1, 30).Draw(t, "actions") {
			a := plan.Action{Host: fmt.Sprintf("host-%d-%d", i, n), Verb: verbs.Draw(t, "verb"), To: newVersion, Effect: plan.None,
				Why: rapid.SampledFrom([]string{"is not a node yet", "has another version " + strings.Repeat("x", 90)}).Draw(t, "why")}
			if rapid.Bool().Draw(t, "from") {
				a.From = oldVersion
			}
			if rapid.IntRange(0, 9).Draw(t, "changes") == 0 {
				a.Changes = []string{"+zone=" + strconv.Itoa(n)}
				a.Files = []facts.FileChange{{Name: "/a", Diff: fmt.Sprintf("--- /a\n+++ /a now\n@@ -1 +1 @@\n-- %d\n+- b\n - c\n", 100*i+n)}}
			}
			if rapid.Bool().Draw(t, "pods") {
				a.Effect, a.Pods = plan.Drain, []facts.PodGroup{{Workload: fmt.Sprintf("shop/p%d-%d", i, n), Pods: n + 1}}
			}
			st.Actions = append(st.Actions, a)
		}
		p.Stages = append(p.Stages, st)
	}
	return p
}

// Each action is in exactly one entry, the totals are those of the actions, hosts in one entry have equal actions, each pod that moves is
// there, and no line is longer than the terminal. Colors change nothing else.
func TestTextHasEachActionOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := aPlan(t)
		width := rapid.SampledFrom([]int{0, 72, 80, 132}).Draw(t, "width")
		text := p.Text(width, false)
		if colored := p.Text(width, true); colors.ReplaceAllString(colored, "") != text || !strings.Contains(colored, progress.Green) && strings.Contains(text, "\n + ") {
			t.Fatalf("with colors:\n%q\nwithout:\n%q", colored, text)
		}
		table, _, _ := strings.Cut(text, "\n\nChanges on ")
		table, _, _ = strings.Cut(table, "\n\nPods that move")
		counted, want := map[string]int{}, map[string]int{}
		var entry []string // hosts of the last entry
		var mark string
		entries := map[string][]string{} // by host
		end := func() {
			for _, h := range entry {
				entries[h] = entry
			}
			counted[mark] += len(entry)
			entry = nil
		}
		hosts := regexp.MustCompile(`host-\d+-\d+`)
		for line := range strings.Lines(table) {
			line = strings.TrimRight(line, "\n")
			if utf8.RuneCountInString(line) > max(width, 72) && (width != 0 || utf8.RuneCountInString(line) > 100) {
				t.Fatalf("%d columns of %d: %q", utf8.RuneCountInString(line), width, line)
			}
			if m := row.FindStringSubmatch(line); m != nil {
				end()
				mark = m[1]
			}
			entry = append(entry, hosts.FindAllString(line, -1)...)
		}
		end()
		all := map[string]plan.Action{}
		for _, st := range p.Stages {
			for _, a := range st.Actions {
				if n := strings.Count(table+" ", a.Host+",") + strings.Count(table, a.Host+" ") + strings.Count(table+"\n", a.Host+"\n"); n != 1 {
					t.Fatalf("%s is there %d times:\n%s", a.Host, n, text)
				}
				want[map[string]string{plan.Init: "+", plan.Join: "+", plan.Remove: "-", plan.RemoveOff: "-"}[a.Verb]]++
				for _, g := range a.Pods {
					if !strings.Contains(strings.Join(strings.Fields(text), " "), fmt.Sprintf("%d pod", g.Pods)) || !strings.Contains(text, g.Workload) {
						t.Fatalf("%s does not move:\n%s", g.Workload, text)
					}
				}
				for _, f := range a.Files {
					if strings.Count(text, f.Diff) != 1 {
						t.Fatalf("the diff %q is not there once:\n%s", f.Diff, text)
					}
				}
				all[a.Host] = a
			}
		}
		if counted["+"] != want["+"] || counted["-"] != want["-"] || counted["~"] != want[""] {
			t.Fatalf("%v in the table, want %v:\n%s", counted, want, text)
		}
		if m := total.FindStringSubmatch(text); m == nil || m[1] != strconv.Itoa(want["+"]) || m[2] != strconv.Itoa(want[""]) || m[3] != strconv.Itoa(want["-"]) {
			t.Fatalf("totals %q, want %v:\n%s", m, want, text)
		}
		for host, others := range entries {
			for _, other := range others {
				a, b := all[host], all[other]
				a.Host, b.Host, a.Pods, b.Pods = "", "", nil, nil
				if !reflect.DeepEqual(a, b) {
					t.Fatalf("%s and %s are in one entry:\n%s", host, other, text)
				}
			}
		}
	})
}

// The expected time is that of the last runs of hosts with the same role. Without any, it is an estimate.
func TestExpectedTime(t *testing.T) {
	in := site(oldVersion)
	p, problems := plan.Make(in)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if p.FromRuns || p.Seconds == 0 || !strings.Contains(strings.Join(strings.Fields(p.Text(0, false)), " "), "an estimate, because these hosts have no such runs yet") {
		t.Errorf("without runs: %d s:\n%s", p.Seconds, p.Text(0, false))
	}
	began := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	took := func(command string, seconds, code int) facts.Run {
		ended := began.Add(time.Duration(seconds) * time.Second)
		return facts.Run{Command: command, Began: began, Ended: &ended, ExitCode: &code}
	}
	for _, name := range []string{"cp0", "cp1", "cp2", "w0", "w1", "w2"} {
		f := fact(in, name)
		f.Runs = []facts.Run{took("upgrade node", 2, 0), took("upgrade node", 50, 0), took("upgrade node", 4000, 1), {Command: "upgrade node", Began: began},
			took("upgrade node phase unpack", 7, 0), took("upgrade apply phase unpack", 5, 0), took("upgrade apply phase registry", 2, 0), took("upgrade apply", 100, 0), took("join", 1, 0)}
	}
	fact(in, "w1").Runs = []facts.Run{took("upgrade node", 1<<30, 0)} // it lies
	if p, _ = plan.Make(in); !p.FromRuns {
		t.Errorf("it does not come from the runs:\n%s", p.Text(0, false))
	}
	sum := 0
	for _, st := range p.Stages {
		for _, a := range st.Actions {
			want := map[string]int{plan.Unpack: 7, plan.Upgrade: 50, plan.UpgradeApply: 100}[a.Verb]
			if a.Seconds != want {
				t.Errorf("%s of %s: %d s, want %d", a.Verb, a.Host, a.Seconds, want)
			}
		}
		sum += st.Seconds
	}
	if p.Seconds != sum {
		t.Errorf("%d s, want %d", p.Seconds, sum)
	}
}

// Requests to pods that have no other node, and to the API of a single control plane, may fail.
func TestRequestsThatMayFail(t *testing.T) {
	in := site(oldVersion)
	view(in).Pods = map[string][]facts.PodGroup{"w1": {{Workload: "shop/cart", Pods: 1, Only: true}, {Workload: "shop/web", Pods: 2}}}
	p, _ := plan.Make(in)
	if !slices.Contains(p.MayFail, "to shop/cart: its only pods move away from w1") || slices.ContainsFunc(p.MayFail, func(s string) bool { return strings.Contains(s, "shop/web") }) ||
		!strings.HasPrefix(p.MayFail[0], "to the API: those that are open on cp0, cp1, cp2 ") {
		t.Errorf("%q", p.MayFail)
	}
	if text := p.Text(80, false); !strings.Contains(text, "\nPods that move to other nodes:\n   w1  3 pods: shop/cart, shop/web (2)\n") {
		t.Error(text)
	}
	p, _ = plan.Make(site(newVersion))
	if len(p.MayFail) > 0 {
		t.Errorf("%q", p.MayFail)
	}
}

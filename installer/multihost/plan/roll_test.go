package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	_ "airlift/scripts/fixtures/seed"
)

// rollOf returns the stage that upgrades n workers of group g, and the state before its first batch.
func rollOf(t interface{ Fatal(...any) }, n int, rules spec.GroupRoll) (plan.Stage, plan.RollState) {
	in := site(newVersion)
	in.Spec.Groups = append(in.Spec.Groups, spec.Group{Name: "g", Roll: rules})
	for i := range n {
		name := fmt.Sprint("g", i)
		in.Spec.Hosts = append(in.Spec.Hosts, spec.Host{Name: name, Role: spec.Worker, Group: "g"})
		in.Answers[name] = plan.Answer{At: noon, Facts: &facts.Facts{MachineID: name, Time: noon, Arch: "amd64",
			Node: &facts.Node{Name: name, Role: spec.Worker, Airlift: true, CASHA256: "sha256:aa", Version: oldVersion}}}
		view(in).Nodes = append(view(in).Nodes, facts.ClusterNode{Name: name, Ready: true, Version: oldVersion})
	}
	in.Continue = true
	p, problems := plan.Make(in)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return *last(p), plan.RollState{Spec: in.Spec, Cluster: view(in), Now: noon}
}

func hosts(s plan.Step) (list []string) {
	for _, a := range s.Batch {
		list = append(list, a.Host)
	}
	return list
}

// Pain 34: never more of a group are down than its rule allows, whatever was down before; and a host that is down for
// another reason does not stop the roll if the rule has room.
func TestPain34NeverMoreDownThanAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "hosts")
		number := rapid.IntRange(1, 100).Draw(t, "number")
		rules, limit := spec.GroupRoll{MaxUnavailable: fmt.Sprint(number)}, number
		if rapid.Bool().Draw(t, "percent") {
			rules.MaxUnavailable, limit = fmt.Sprint(number, "%"), max(1, n*number/100)
		}
		stage, s := rollOf(t, n, rules)
		down := map[string]bool{}
		for i := range s.Cluster.Nodes {
			if node := &s.Cluster.Nodes[i]; strings.HasPrefix(node.Name, "g") && rapid.IntRange(0, 9).Draw(t, "down") == 0 {
				node.Ready, down[node.Name] = false, true
			}
		}
		for {
			step := plan.Next(stage, s)
			if step.Done {
				return
			}
			if len(step.Batch) == 0 {
				t.Fatalf("waits: %s", step.Wait) // hosts that are down are in the stage: their upgrade repairs them
			}
			before := len(down)
			for _, name := range hosts(step) {
				down[name] = true
			}
			if len(step.Batch) > limit || len(down) > max(limit, before) {
				t.Fatalf("%d of %d are down, at most %d may be: %v", len(down), n, limit, hosts(step))
			}
			for _, name := range hosts(step) {
				delete(down, name)
				s.Done = append(s.Done, name)
				i := slices.IndexFunc(s.Cluster.Nodes, func(n facts.ClusterNode) bool { return n.Name == name })
				s.Cluster.Nodes[i].Ready = true
			}
		}
	})
}

func TestPain34OtherHostsOfTheGroupThatAreDownCount(t *testing.T) {
	stage, s := rollOf(t, 4, spec.GroupRoll{MaxUnavailable: "50%"})
	stage.Actions = stage.Actions[1:] // g0 is not in the stage
	s.Down = []string{"g0"}
	if got := hosts(plan.Next(stage, s)); !slices.Equal(got, []string{"g1"}) {
		t.Errorf("batch %q", got)
	}
	stage.Limit = 1
	if step := plan.Next(stage, s); step.Wait != "g0 is down: at most 1 may be at once" {
		t.Errorf("%+v", step)
	}
}

// A host that an interrupted run left may be drained: it counts as down, and is first.
func TestPain34UnfinishedHostGoesFirst(t *testing.T) {
	stage, s := rollOf(t, 3, spec.GroupRoll{})
	stage.Actions[2].Began = true
	if got := hosts(plan.Next(stage, s)); !slices.Equal(got, []string{"g2"}) {
		t.Errorf("batch %q", got)
	}
	s.Done = []string{"g2"}
	if got := hosts(plan.Next(stage, s)); !slices.Equal(got, []string{"g0"}) {
		t.Errorf("next batch %q", got)
	}
}

// Pain 16: a control plane that is down without a reason in the plan stops the others.
func TestPain16ControlPlanesWaitForOneThatIsDown(t *testing.T) {
	in := site(oldVersion)
	p, _ := plan.Make(in)
	s := plan.RollState{Spec: in.Spec, Cluster: view(in), Now: noon, Done: []string{"cp0"}}
	if got := hosts(plan.Next(p.Stages[1], s)); !slices.Equal(got, []string{"cp1"}) {
		t.Errorf("batch %q", got)
	}
	apiDown(in, "cp0")
	s.Cluster = view(in)
	if step := plan.Next(p.Stages[1], s); step.Wait != "cp0 is down: at most 1 may be at once" {
		t.Errorf("%+v", step)
	}
}

// Pain 31: the budget is named, and other hosts go first.
func TestPain31HostWithoutHeadroomWaits(t *testing.T) {
	stage, s := rollOf(t, 2, spec.GroupRoll{})
	s.Cluster.BlockedBy = map[string][]string{"g0": {"shop/web"}}
	if got := hosts(plan.Next(stage, s)); !slices.Equal(got, []string{"g1"}) {
		t.Errorf("batch %q", got)
	}
	s.Done = []string{"g1"}
	if step := plan.Next(stage, s); step.Wait != "these PodDisruptionBudgets allow no disruption: shop/web of pods on g0" {
		t.Errorf("%+v", step)
	}
	stage.Actions[0].Effect = plan.Restart
	if got := hosts(plan.Next(stage, s)); !slices.Equal(got, []string{"g0"}) {
		t.Errorf("batch without drain %q", got)
	}
}

func TestWindows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	clock := func(hour, minute int) time.Duration {
		return time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute
	}
	night := &spec.Window{Days: []time.Weekday{time.Saturday}, Start: clock(22, 0), End: clock(4, 0), Zone: berlin}
	for _, c := range []struct {
		window *spec.Window
		now    time.Time
		opens  time.Time // zero: open
	}{
		{nil, noon, time.Time{}},
		{&spec.Window{Start: clock(11, 0), End: clock(13, 0)}, noon, time.Time{}},
		{&spec.Window{Start: clock(11, 0), End: clock(12, 0)}, noon, time.Date(2026, 11, 28, 11, 0, 0, 0, time.UTC)},
		{&spec.Window{Start: clock(12, 0), End: clock(12, 0)}, noon, time.Time{}}, // all day
		{night, time.Date(2026, 11, 28, 21, 59, 0, 0, berlin), time.Date(2026, 11, 28, 22, 0, 0, 0, berlin)},
		{night, time.Date(2026, 11, 28, 22, 0, 0, 0, berlin), time.Time{}},
		{night, time.Date(2026, 11, 29, 3, 59, 0, 0, berlin), time.Time{}}, // Saturday's window on Sunday
		{night, time.Date(2026, 11, 29, 4, 0, 0, 0, berlin), time.Date(2026, 12, 5, 22, 0, 0, 0, berlin)},
		{night, time.Date(2026, 11, 28, 21, 30, 0, 0, time.UTC), time.Time{}}, // 22:30 in Berlin
		// In the night to 2027-03-28 Berlin's clock goes from 02:00 to 03:00: 04:00 is 02:00 UTC, and not 03:00.
		{night, time.Date(2027, 3, 28, 1, 59, 0, 0, time.UTC), time.Time{}},
		{night, time.Date(2027, 3, 28, 2, 0, 0, 0, time.UTC), time.Date(2027, 4, 3, 20, 0, 0, 0, time.UTC)},
	} {
		stage, s := rollOf(t, 1, spec.GroupRoll{Window: c.window})
		s.Now = c.now
		step := plan.Next(stage, s)
		if c.opens.IsZero() && len(step.Batch) != 1 || !c.opens.IsZero() && !step.Until.Equal(c.opens) {
			t.Errorf("%+v at %v: %+v", c.window, c.now, step)
		}
	}
}

// Each minute of two weeks is in a window if a clock on the wall is between its hours: a rule without dates.
func TestWindowsMatchAClockOnTheWall(t *testing.T) {
	zones := []string{"UTC", "America/New_York", "Asia/Kolkata", "Pacific/Apia"}
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		start, end := rapid.IntRange(0, 1439).Draw(t, "start"), rapid.IntRange(0, 1439).Draw(t, "end")
		days := rapid.SliceOfDistinct(rapid.IntRange(0, 6), func(i int) int { return i }).Draw(t, "days")
		w := &spec.Window{Start: time.Duration(start) * time.Minute, End: time.Duration(end) * time.Minute, Zone: zone}
		for _, d := range days {
			w.Days = append(w.Days, time.Weekday(d))
		}
		stage, s := rollOf(t, 1, spec.GroupRoll{Window: w})
		s.Now = time.Date(2026, 7, 1, 0, rapid.IntRange(0, 14*24*60).Draw(t, "minute"), 0, 0, time.UTC)
		local := s.Now.In(zone)
		minute, day := local.Hour()*60+local.Minute(), local.Weekday()
		if minute < end && end <= start { // it began yesterday
			minute, day = minute+1440, (day+6)%7
		}
		last := end
		if end <= start {
			last += 1440
		}
		want := minute >= start && minute < last && (len(days) == 0 || slices.Contains(w.Days, day))
		if end <= start && !want { // or a window that begins today
			minute, day = local.Hour()*60+local.Minute(), local.Weekday()
			want = minute >= start && (len(days) == 0 || slices.Contains(w.Days, day))
		}
		if step := plan.Next(stage, s); (len(step.Batch) == 1) != want {
			t.Fatalf("%v: want open %v, got %+v", local, want, step)
		}
	})
}

// Also when the clock on the wall changes: in Havana and Santiago at midnight, and on Lord Howe by half an hour. What Next
// returns about the next opening is true, too.
func TestWindowsWhileAClockChanges(t *testing.T) {
	const hour = time.Hour
	for _, name := range []string{"Europe/Berlin", "America/Havana", "America/Santiago", "Africa/Cairo", "Australia/Lord_Howe"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []*spec.Window{{End: 24 * hour, Days: []time.Weekday{time.Friday, time.Sunday}}, {Start: hour / 2, End: 3 * hour},
			{Start: 22 * hour, End: 5 * hour / 2}, {Start: 5 * hour / 2, End: 3 * hour}, {Start: 2 * hour, End: 3 * hour, Days: []time.Weekday{time.Sunday}}} {
			w.Zone = zone
			stage, s := rollOf(t, 1, spec.GroupRoll{Window: w})
			open := func(at time.Time) (bool, time.Time) {
				s.Now = at
				step := plan.Next(stage, s)
				return len(step.Batch) == 1, step.Until
			}
			for _, change := range changesIn(zone) {
				for at := change.Add(-26 * hour); at.Before(change.Add(26 * hour)); at = at.Add(30 * time.Minute) {
					is, until := open(at)
					if is != onTheWall(w, at.In(zone)) {
						t.Fatalf("%+v at %v: open is %v", w, at.In(zone), is)
					}
					before, _ := open(until.Add(-time.Minute))
					if then, _ := open(until); !is && (before || !then) {
						t.Fatalf("%+v at %v: it does not open at %v", w, at.In(zone), until.In(zone))
					}
				}
			}
		}
	}
}

// onTheWall reports whether a clock that shows this is between the hours of a window.
func onTheWall(w *spec.Window, local time.Time) bool {
	clock := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute
	on := func(day time.Weekday) bool { return len(w.Days) == 0 || slices.Contains(w.Days, day) }
	if w.Start < w.End {
		return w.Start <= clock && clock < w.End && on(local.Weekday())
	}
	return w.Start <= clock && on(local.Weekday()) || clock < w.End && on((local.Weekday()+6)%7)
}

// changesIn returns when the clock of a zone changes in 2026.
func changesIn(zone *time.Location) (list []time.Time) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, zone)
	for _, end := at.ZoneBounds(); end.Year() == 2026; _, end = end.In(zone).ZoneBounds() {
		list = append(list, end)
	}
	return list
}

package timeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// clock is a clock that moves only when pass is called.
type clock struct{ now time.Time }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

func fake() (*Recorder, *clock) {
	c := &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return newRecorder(func() time.Time { return c.now }, "", 0), c
}

// story is a run with everything that a timeline can show: sub-steps, waits
// whose state changes, a stream in parallel with the steps that waits too, and
// overlapping work in the bundle stream.
func story(r *Recorder, c *clock) {
	ctx := r.Context(context.Background())
	step := func(name string, run func(context.Context)) {
		ctx, s := Start(ctx, Steps, name)
		run(ctx)
		s.End()
	}
	var stream *Span
	step("unpack", func(ctx context.Context) {
		var in context.Context
		in, stream = Start(ctx, Bundle, "bundle")
		Wait(ctx, "bundle", "bin/runc").End()
		wait := Wait(ctx, "bundle", "bin/containerd")
		_, entry := Start(in, Bundle, "bin/containerd")
		entry.Set("bytes", 42)
		c.pass(1500 * time.Millisecond)
		entry.End()
		wait.End()
		c.pass(100 * time.Millisecond)
		late := Wait(ctx, "bundle", "bin/ctr")
		stands := Wait(in, "containerd")
		c.pass(400 * time.Millisecond)
		stands.End()
		late.End()
	})
	step("certs", func(ctx context.Context) {
		for _, name := range []string{"ca", "apiserver"} {
			_, s := Start(ctx, Steps, name)
			c.pass(time.Millisecond)
			s.End()
		}
	})
	step("wait-node", func(ctx context.Context) {
		w := Wait(ctx, "the node to be Ready")
		c.pass(2 * time.Second)
		w.End()
		w = Wait(ctx, "pods")
		w.Saw("coredns: Pending; kube-proxy: Pending")
		w.Awaiting("coredns (2), kube-proxy")
		c.pass(3 * time.Second)
		w.Saw("coredns: Pending")
		w.Saw("coredns: Pending")
		w.Awaiting("coredns (2)")
		_, behind := Start(ctx, Bundle, "left over")
		c.pass(time.Second)
		_, other := Start(ctx, Bundle, "another")
		stream.End()
		behind.End()
		c.pass(time.Second)
		other.End()
		w.End()
	})
}

func TestTable(t *testing.T) {
	r, c := fake()
	story(r, c)
	for _, tt := range []struct {
		all  bool
		want string
	}{
		{false, `This took 9.0 s:

  start    took  step                   waited for
  0.0 s   2.0 s  unpack     ##........  bundle: bin/containerd
  2.0 s   7.0 s  wait-node  ..########  5.0 s pods: coredns (2)
          0.0 s  another step
                 in parallel:
  0.0 s   8.0 s  bundle     ########..  0.4 s containerd
  7.0 s   1.0 s  left over  .......#..
  8.0 s   1.0 s  another    ........##
`},
		{true, `This took 9.0 s:

  start    took  step                     waited for
  0.0 s   2.0 s  unpack       ##........  bundle: bin/containerd
  2.0 s   0.0 s  certs        ..#.......
  2.0 s   0.0 s    ca         ..#.......
  2.0 s   0.0 s    apiserver  ..#.......
  2.0 s   7.0 s  wait-node    ..########  5.0 s pods: coredns (2)
                 in parallel:
  0.0 s   8.0 s  bundle       ########..  0.4 s containerd
  7.0 s   1.0 s  left over    .......#..
  8.0 s   1.0 s  another      ........##
`},
	} {
		var got bytes.Buffer
		if err := r.WriteTable(&got, tt.all); err != nil {
			t.Fatal(err)
		}
		if got.String() != tt.want {
			t.Errorf("all %t:\n%s\nwant:\n%s", tt.all, got.String(), tt.want)
		}
	}
}

func TestTableOfAShortRun(t *testing.T) {
	r, c := fake()
	_, s := Start(r.Context(t.Context()), Steps, "certs")
	c.pass(1400 * time.Millisecond)
	s.End()
	var few, all bytes.Buffer
	if err := r.WriteTable(&few, false); err != nil || few.String() != "This took 1.4 s.\n" {
		t.Errorf("%q (%v)", few.String(), err)
	}
	if err := r.WriteTable(&all, true); err != nil || !strings.Contains(all.String(), "certs") {
		t.Errorf("%q (%v)", all.String(), err)
	}
}

func TestTableFits80Columns(t *testing.T) {
	r, c := fake()
	ctx, s := Start(r.Context(t.Context()), Steps, "kubelet-wait-bootstrap")
	w := Wait(ctx, "pods")
	w.Awaiting(strings.Repeat("kube-contröller-manager, ", 9))
	c.pass(20 * time.Minute)
	w.End()
	s.End()
	var got bytes.Buffer
	if err := r.WriteTable(&got, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.String(), " 1200 s  kubelet-wait-bootstrap  ##########  pods: kube-contröller-man") {
		t.Errorf("\n%s", got.String())
	}
	for line := range strings.Lines(got.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.ContainsAny(line, "\r\t\x1b") {
			t.Errorf("control characters: %q", line)
		}
	}
}

// decoded is the Trace Event Format as specified, independent of the types that
// write it.
type decoded struct {
	TraceEvents []map[string]any  `json:"traceEvents"`
	OtherData   map[string]string `json:"otherData"`
}

func traceOf(t *testing.T, r *Recorder) decoded {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteTrace(&b, About{Command: "install init", Version: "v1", KubernetesVersion: "v1.29.15", Outcome: "done"}); err != nil {
		t.Fatal(err)
	}
	var d decoded
	in := json.NewDecoder(&b)
	in.DisallowUnknownFields()
	if err := in.Decode(&struct {
		*decoded
		DisplayTimeUnit string `json:"displayTimeUnit"`
	}{decoded: &d}); err != nil {
		t.Fatal(err)
	}
	return d
}

// complete checks the required fields of all X events, and that the events of a
// row nest. It returns them as "row: name start+length".
func (d decoded) complete(t *testing.T) (list []string) {
	t.Helper()
	rows := map[float64]string{}
	open := map[float64][][2]float64{}
	for _, e := range d.TraceEvents {
		number := func(field string) float64 {
			n, ok := e[field].(float64)
			if !ok || n < 0 || n != float64(int64(n)) {
				t.Fatalf("%s is not a number of its kind: %v", field, e)
			}
			return n
		}
		name, _ := e["name"].(string)
		if name == "" || number("pid") != 1 {
			t.Errorf("neither name nor process: %v", e)
		}
		tid := number("tid")
		switch e["ph"] {
		case "M":
			if name == "thread_name" {
				rows[tid] = e["args"].(map[string]any)["name"].(string)
			}
		case "X":
			from, to := number("ts"), number("ts")+number("dur")
			if rows[tid] == "" {
				t.Errorf("row %v has no name: %v", tid, e)
			}
			around := slices.DeleteFunc(open[tid], func(o [2]float64) bool { return o[1] <= from })
			if n := len(around); n > 0 && (around[n-1][1] < to || around[n-1][0] > from) {
				t.Errorf("%v overlaps what is open in its row: %v", e, around)
			}
			open[tid] = append(around, [2]float64{from, to})
			list = append(list, fmt.Sprintf("%s: %s %s %v+%v", rows[tid], e["cat"], name, from/1e3, (to-from)/1e3))
		default:
			t.Errorf("unexpected phase: %v", e)
		}
	}
	return list
}

func TestTrace(t *testing.T) {
	r, c := fake()
	story(r, c)
	d := traceOf(t, r)
	want := []string{
		"steps: work unpack 0+2000",
		"steps: wait bundle: bin/runc 0+0",
		"steps: wait bundle: bin/containerd 0+1500",
		"steps: wait bundle: bin/ctr 1600+400",
		"steps: work certs 2000+2",
		"steps: work ca 2000+1",
		"steps: work apiserver 2001+1",
		"steps: work wait-node 2002+7000",
		"steps: wait the node to be Ready 2002+2000",
		"steps: wait pods: coredns (2) 4002+5000",
		"steps: seen coredns: Pending; kube-proxy: Pending 4002+3000",
		"steps: seen coredns: Pending 7002+2000",
		"bundle stream: work bundle 0+8002",
		"bundle stream: work bin/containerd 0+1500",
		"bundle stream: wait containerd 1600+400",
		"bundle stream: work another 8002+1000",
		"bundle stream (2): work left over 7002+1000",
	}
	if got := d.complete(t); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	args := map[string]map[string]any{}
	for _, e := range d.TraceEvents {
		args[e["name"].(string)], _ = e["args"].(map[string]any)
	}
	if a := args["pods: coredns (2)"]; a["last seen"] != "coredns: Pending" {
		t.Errorf("pods: %v", a)
	}
	if a := args["bundle"]; a["started by"] != "unpack" {
		t.Errorf("bundle: %v", a)
	}
	if a := args["bin/containerd"]; a["bytes"] != 42.0 {
		t.Errorf("bin/containerd: %v", a)
	}
	if o := d.OtherData; o["command"] != "install init" || o["kubernetesVersion"] != "v1.29.15" || o["outcome"] != "done" || o["started"] != "2026-01-02T03:04:05Z" || o["seconds"] != "9.002" {
		t.Errorf("other data: %v", o)
	}
}

// TestTraceOfAnInterruptedRun: the trace contains the unfinished spans, up to
// now.
func TestTraceOfAnInterruptedRun(t *testing.T) {
	r, c := fake()
	ctx, _ := Start(r.Context(t.Context()), Steps, "images")
	Wait(ctx, "etcd").Saw("nothing")
	c.pass(time.Second)
	d := traceOf(t, r)
	want := []string{"steps: work images 0+1000", "steps: wait etcd 0+1000", "steps: seen nothing 0+1000"}
	if got := d.complete(t); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, e := range d.TraceEvents {
		if unfinished := e["cat"] == "work" || e["cat"] == "wait"; unfinished && e["args"].(map[string]any)["unfinished"] != true {
			t.Errorf("%v", e)
		}
	}
}

// TestWhatWasBefore: the run started before the recorder did.
func TestWhatWasBefore(t *testing.T) {
	c := &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	r := newRecorder(func() time.Time { return c.now }, "launch", 200*time.Millisecond)
	_, s := Start(r.Context(t.Context()), Steps, "certs")
	c.pass(time.Second)
	s.End()
	d := traceOf(t, r)
	want := []string{"steps: work launch 0+200", "steps: work certs 200+1000"}
	if got := d.complete(t); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if o := d.OtherData; o["started"] != "2026-01-02T03:04:04.8Z" || o["seconds"] != "1.200" {
		t.Errorf("other data: %v", o)
	}
}

// TestWhatOverlapsGetsRowsOfItsOwn has two parallel steps, each with a wait,
// and a sub-step that ends after its step.
func TestWhatOverlapsGetsRowsOfItsOwn(t *testing.T) {
	r, c := fake()
	ctx := r.Context(t.Context())
	inA, a := Start(ctx, Steps, "a")
	waitA := Wait(inA, "x")
	c.pass(time.Millisecond)
	inB, b := Start(ctx, Steps, "b")
	waitB := Wait(inB, "y")
	c.pass(time.Millisecond)
	_, late := Start(inA, Steps, "late")
	waitA.End()
	a.End()
	c.pass(time.Millisecond)
	late.End()
	waitB.End()
	b.End()
	_, after := Start(ctx, Steps, "after")
	c.pass(time.Millisecond)
	after.End()
	want := []string{
		"steps: work a 0+2", "steps: wait x 0+2", "steps: work after 3+1",
		"steps (2): work b 1+2", "steps (2): wait y 1+2",
		"steps (3): work late 2+1",
	}
	if got := traceOf(t, r).complete(t); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestManyGoroutines(t *testing.T) {
	r := New("launch", time.Second)
	ctx := r.Context(t.Context())
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			ctx, s := Start(ctx, lanes[i%len(lanes)], fmt.Sprint("work ", i))
			defer s.End()
			for j := range 20 {
				w := Wait(ctx, "something")
				w.Saw(fmt.Sprint(j))
				w.Set("round", j)
				w.End()
				Here(ctx).Awaiting("more")
			}
			if err := r.WriteTrace(io.Discard, About{}); err != nil {
				t.Error(err)
			}
			if err := r.WriteTable(io.Discard, true); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	works := 0
	for _, line := range traceOf(t, r).complete(t) {
		if strings.Contains(line, "work work") {
			works++
		}
	}
	if works != 50 {
		t.Errorf("%d of 50 spans", works)
	}
}

func TestNothingWithoutARecorder(t *testing.T) {
	var none *Recorder
	ctx, s := Start(none.Context(t.Context()), Steps, "certs")
	for _, s := range []*Span{s, Wait(ctx, "x"), Here(ctx)} {
		if s != nil {
			t.Fatal("a span without a recorder")
		}
		s.Saw("x")
		s.Awaiting("x")
		s.Set("x", 1)
		s.End()
	}
	if In(ctx, nil) != ctx {
		t.Error("another context")
	}
	var out bytes.Buffer
	if err := none.WriteTable(&out, true); err != nil || out.Len() > 0 {
		t.Errorf("%q (%v)", out.String(), err)
	}
	if n := testing.AllocsPerRun(100, func() {
		ctx, s := Start(ctx, Steps, "certs")
		Wait(ctx, "x").End()
		s.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAWaitRemembersOnlySoMuch: a wait stores a limited number of states, and
// always the last one.
func TestAWaitRemembersOnlySoMuch(t *testing.T) {
	r, c := fake()
	w := Wait(r.Context(t.Context()), "x")
	for i := range 2 * maxStates {
		w.Saw(fmt.Sprint("state ", i))
		c.pass(time.Second)
	}
	w.End()
	events := traceOf(t, r).TraceEvents
	if n := len(events); n > maxStates+10 {
		t.Errorf("%d events", n)
	}
	for _, e := range events {
		if last := fmt.Sprint("state ", 2*maxStates-1); e["name"] == "x" && e["args"].(map[string]any)["last seen"] != last {
			t.Errorf("last seen: %v", e["args"])
		}
	}
}

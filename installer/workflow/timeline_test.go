package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"airlift/installer/timeline"
)

// drawn returns a recorder's spans as "row: label", and the labels of failed
// spans.
func drawn(t *testing.T, r *timeline.Recorder) (spans, failed []string) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteTrace(&b, timeline.About{}); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			Tid      int
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(b.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	rows := map[int]any{}
	for _, e := range trace.TraceEvents {
		if e.Name == "thread_name" {
			rows[e.Tid] = e.Args["name"]
		}
		if e.Ph == "X" {
			spans = append(spans, rows[e.Tid].(string)+": "+e.Name)
			if e.Args["failed"] == true {
				failed = append(failed, e.Name)
			}
		}
	}
	return spans, failed
}

func TestRunIsRecorded(t *testing.T) {
	r := timeline.New("", 0)
	var out bytes.Buffer
	c := &Console{Out: &out, Timeline: r, Verbosity: 1}
	c.Summary("That is all.\n")
	nothing := func(context.Context) error { return nil }
	err := Run(r.Context(t.Context()), c, []Step{
		{Name: "certs", Run: nothing, Steps: []Step{{Name: "ca", Run: nothing}}},
		{Name: "etcd", Steps: []Step{{Name: "local", Run: func(ctx context.Context) error {
			timeline.Wait(ctx, "etcd", "a vote").End()
			return nil
		}}}},
		{Name: "addon", Run: nothing},
	}, []string{"addon"})
	if err != nil {
		t.Fatal(err)
	}
	spans, failed := drawn(t, r)
	if want := []string{"steps: certs", "steps: etcd", "steps: local", "steps: etcd: a vote"}; !slices.Equal(spans, want) || failed != nil {
		t.Errorf("%q, want %q; failed: %q", spans, want, failed)
	}
	_, end, ok := strings.Cut(out.String(), "This took ")
	if !ok || !strings.Contains(end, "    local") || !strings.HasSuffix(end, "\n\nThat is all.\n") {
		t.Errorf("the table and the closing words:\n%s", out.String())
	}
}

func TestFailureIsRecorded(t *testing.T) {
	r := timeline.New("", 0)
	var out bytes.Buffer
	err := Run(r.Context(t.Context()), &Console{Out: &out, Timeline: r}, []Step{
		{Name: "etcd", Steps: []Step{{Name: "local", Run: func(context.Context) error { return errors.New("boom") }}}},
		{Name: "addon", Run: func(context.Context) error { return nil }},
	}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	spans, failed := drawn(t, r)
	if want := []string{"steps: etcd", "steps: local"}; !slices.Equal(spans, want) || !slices.Equal(failed, []string{"etcd", "local"}) {
		t.Errorf("%q; failed: %q", spans, failed)
	}
	if strings.Contains(out.String(), "This took") {
		t.Errorf("a table of a run that failed:\n%s", out.String())
	}
}

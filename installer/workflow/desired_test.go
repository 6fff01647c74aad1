package workflow

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"airlift/installer/desired"
	"airlift/installer/pki"
)

// A run applies what Desired returned. A dry run and a plan only see it.
func TestStepsApplyWhatTheyDesire(t *testing.T) {
	var did []string
	note := func(text string) { did = append(did, text) }
	writes := func(name string) Step {
		return Step{
			Name:    name,
			Prepare: func(context.Context) error { note("prepare " + name); return nil },
			Desired: func(context.Context) (desired.List, error) {
				note("desired " + name)
				return desired.List{Files: []pki.File{{Path: "/" + name}}}, nil
			},
			Apply: func(_ context.Context, l desired.List) error { note("apply " + l.Files[0].Path); return nil },
		}
	}
	steps := []Step{
		{Name: "check", Reads: true, Run: func(context.Context) error { note("check"); return nil }},
		{Name: "wait", Run: func(context.Context) error { note("wait"); return nil }},
		writes("a"),
		{Name: "group", Steps: []Step{writes("b"), {Name: "start", Run: func(context.Context) error { note("start"); return nil }}}},
	}
	c := &Console{Out: new(bytes.Buffer)}
	want := func(what string, list ...string) {
		t.Helper()
		if !slices.Equal(did, list) {
			t.Errorf("%s: %q, want %q", what, did, list)
		}
		did = nil
	}
	if err := Run(t.Context(), c, steps, nil); err != nil {
		t.Fatal(err)
	}
	want("run", "check", "wait", "prepare a", "desired a", "apply /a", "prepare b", "desired b", "apply /b", "start")
	dry := Preview(steps, func(_ context.Context, step string, l desired.List) error {
		note("show " + step + l.Files[0].Path)
		return nil
	})
	if err := Run(t.Context(), c, dry, nil); err != nil {
		t.Fatal(err)
	}
	want("dry run", "check", "desired a", "show a/a", "desired b", "show group/b/b")
	steps[2].Needed = true
	if err := Run(t.Context(), c, Preview(steps, nil), []string{"a"}); err == nil || !strings.Contains(err.Error(), "cannot be skipped") {
		t.Errorf("a dry run without a step that a run needs: %v", err)
	}
	l, err := Desired(t.Context(), steps)
	if err != nil || len(l.Files) != 2 || l.Files[0].Path != "/a" || l.Files[1].Path != "/b" {
		t.Errorf("%v, %v", l, err)
	}
	want("plan", "desired a", "desired b")
	steps[3].Steps[0].Desired = func(context.Context) (desired.List, error) { return desired.List{}, errors.New("no") }
	if _, err := Desired(t.Context(), steps); err == nil || !strings.Contains(err.Error(), "group: b: no") {
		t.Error(err)
	}
}

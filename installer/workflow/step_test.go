package workflow

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"airlift/internal/fault"
)

func TestRun(t *testing.T) {
	var did []string
	step := func(name string, err error, subs ...Step) Step {
		s := Step{Name: name, Doc: "do " + name, Steps: subs}
		if subs == nil {
			s.Run = func(context.Context) error { did = append(did, name); return err }
		}
		return s
	}
	steps := []Step{step("one", nil), step("two", nil, step("a", nil), step("b", nil)), step("three", nil)}
	for _, tt := range []struct {
		name  string
		skip  []string
		steps []Step
		want  string
		err   string
	}{
		{"all", nil, steps, "one a b three", ""},
		{"skip a step", []string{"one"}, steps, "a b three", ""},
		{"skip with its sub-steps", []string{"two"}, steps, "one three", ""},
		{"skip a sub-step", []string{"two/a"}, steps, "one b three", ""},
		{"unknown name", []string{"b"}, steps, "", `"b": there is no such phase`},
		{"stops at an error", nil, []Step{step("one", nil), step("two", errors.New("boom")), step("three", nil)}, "one two", "two: boom"},
		{"a needed step", []string{"one"}, []Step{{Name: "one", Needed: true, Run: func(context.Context) error { return nil }}}, "", `"one": this phase cannot be skipped`},
		{"names the sub-step", nil, []Step{step("one", nil, step("a", errors.New("boom")))}, "a", "one: a: boom"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			did = nil
			var out bytes.Buffer
			err := Run(t.Context(), &Console{Out: &out}, tt.steps, tt.skip)
			if got := strings.Join(did, " "); got != tt.want {
				t.Errorf("did %q, want %q", got, tt.want)
			}
			if (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if len(tt.skip) > 0 && tt.err != "" && fault.ExitCode(err) != fault.Usage {
				t.Errorf("exit code %d", fault.ExitCode(err))
			}
			if bytes.ContainsAny(out.Bytes(), "\r\x1b") {
				t.Errorf("control characters without a terminal: %q", out.String())
			}
		})
	}
}

func TestRunStopsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var did []string
	err := Run(ctx, &Console{Out: new(bytes.Buffer)}, []Step{
		{Name: "one", Run: func(context.Context) error { did = append(did, "one"); cancel(); return nil }},
		{Name: "two", Run: func(context.Context) error { did = append(did, "two"); return nil }},
	}, nil)
	if len(did) != 1 || fault.ExitCode(err) != fault.Interrupted {
		t.Errorf("did %q, error %v", did, err)
	}
}

func TestEmptyStepsAreLeftOut(t *testing.T) {
	var out bytes.Buffer
	ran := ""
	step := func(name string, empty bool) Step {
		return Step{Name: name, Empty: empty, Run: func(context.Context) error { ran += name; return nil }}
	}
	if err := Run(t.Context(), &Console{Out: &out}, []Step{step("a", false), step("b", true), step("c", false)}, []string{"b"}); err != nil || ran != "ac" {
		t.Errorf("ran %q: %v", ran, err)
	}
	if !strings.Contains(out.String(), "[2/2] c") {
		t.Errorf("output:\n%s", out.String())
	}
}

package reset

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"airlift/installer/workflow"
)

func TestResetGoesOnPastErrors(t *testing.T) {
	var did []string
	step := func(name string, err error) workflow.Step {
		return workflow.Step{Name: name, Run: func(context.Context) error { did = append(did, name); return err }}
	}
	failed, err := runReset(t.Context(), &workflow.Console{Out: new(bytes.Buffer)}, []workflow.Step{
		step("preflight", nil), step("one", errors.New("stuck")), {Name: "two", Steps: []workflow.Step{step("a", errors.New("busy")), step("b", nil)}},
	}, nil)
	if got := strings.Join(did, " "); got != "preflight one a b" {
		t.Errorf("did %q", got)
	}
	if want := []string{"one: stuck", "a: busy"}; err != nil || !slices.Equal(failed, want) {
		t.Errorf("failed: %q, want %q (%v)", failed, want, err)
	}
}

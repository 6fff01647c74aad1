package output

import (
	"testing"

	"airlift/internal/fault"
)

// Without the flag, no outcome is an exit code. What failed always is.
func TestPlanExit(t *testing.T) {
	for code := fault.Failure; code <= fault.Waiting; code++ {
		err := fault.New(code, "x")
		want := code
		if code.IsOutcome() {
			want = 0
		}
		if got := fault.ExitCode(PlanExit(false).Code(err)); got != want {
			t.Errorf("code %d without the flag: %d", code, got)
		}
		if got := fault.ExitCode(PlanExit(true).Code(err)); got != code {
			t.Errorf("code %d with the flag: %d", code, got)
		}
	}
	if fault.ExitCode(PlanExit(true).Work()) != fault.Work || PlanExit(false).Work() != nil {
		t.Error("work")
	}
}

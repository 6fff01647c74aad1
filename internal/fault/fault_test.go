package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"airlift/internal/fault"
)

func TestHintAndExitCodeSurviveWrapping(t *testing.T) {
	inner := fault.New(fault.Bundle, "reading payload: %w", errors.New("short")).Hint("copy the file again")
	outer := fmt.Errorf("unpacking: %w", inner)
	if got := fault.Hint(outer); got != "copy the file again" {
		t.Errorf("hint = %q", got)
	}
	if got := fault.ExitCode(outer); got != fault.Bundle {
		t.Errorf("exit code = %d", got)
	}
	if got := outer.Error(); got != "unpacking: reading payload: short" {
		t.Errorf("text = %q", got)
	}
}

func TestOuterFaultWinsAndInnerHintIsFound(t *testing.T) {
	inner := fault.New(fault.Bundle, "inner").Hint("inner hint")
	outer := fault.Wrap(fmt.Errorf("outer: %w", inner), fault.Preflight, "")
	if got := fault.ExitCode(outer); got != fault.Preflight {
		t.Errorf("exit code = %d", got)
	}
	if got := fault.Hint(outer); got != "inner hint" {
		t.Errorf("hint = %q", got)
	}
}

func TestPlainErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fault.Code
	}{
		{nil, 0},
		{errors.New("x"), fault.Failure},
		{fmt.Errorf("pulling: %w", context.Canceled), fault.Interrupted},
		{fault.Wrap(fmt.Errorf("pulling: %w", context.Canceled), fault.Bundle, ""), fault.Interrupted},
	} {
		if got := fault.ExitCode(c.err); got != c.want {
			t.Errorf("ExitCode(%v) = %d, want %d", c.err, got, c.want)
		}
	}
	if fault.Wrap(nil, fault.Failure, "hint") != nil {
		t.Error("Wrap(nil) is not nil")
	}
}

package fault_test

import (
	"errors"
	"strings"
	"testing"

	"airlift/internal/fault"
)

// Texts of other hosts must not control the terminal of the user.
func TestPrintWritesNoControlCharacters(t *testing.T) {
	var out strings.Builder
	fault.Print(&out, fault.New(fault.Failure, "%w", errors.New("für \u00a0 → \x1b[2J\u009b1m\u202e\x00\xff\r\nnext\tline")).Hint("\x07beep"))
	if want := "error: für \u00a0 → ?[2J?1m???\nnext\tline\nhint: ?beep\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

package output

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"airlift/internal/fault"
	"airlift/internal/progress"
)

// run runs a command with these arguments, and returns its outputs.
func run(do func(cmd *cobra.Command) error, args ...string) (stdout, stderr string) {
	var out, errs strings.Builder
	cmd := &cobra.Command{Use: "install", SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error { return do(cmd) }}
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	BindProgress(cmd)
	PrintError(cmd, cmd.Execute())
	return out.String(), errs.String()
}

// lines decodes events without their times.
func lines(t *testing.T, text string) (list []progress.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var e progress.Event
		if err := d.Decode(&e); err != nil || e.Time.IsZero() {
			t.Fatalf("%q: %v", line, err)
		}
		e.Time = time.Time{}
		list = append(list, e)
	}
	return list
}

func TestEvents(t *testing.T) {
	do := func(cmd *cobra.Command) error {
		out := cmd.OutOrStdout()
		emit := out.(interface{ Emit(progress.Event) }).Emit
		emit(progress.Event{Kind: progress.Step, Step: "certs", Number: 1, Of: 2, Text: "Create them"})
		fmt.Fprint(out, "        a ", "line\n\nwarning: <it> is old\nhalf a")
		emit(progress.Event{Kind: progress.Done, Text: "All done.\n\n    now type this\n"})
		fmt.Fprint(out, " line")
		return nil
	}
	stdout, stderr := run(do, "--progress", "json")
	want := []progress.Event{
		{Kind: "step", Step: "certs", Number: 1, Of: 2, Text: "Create them"},
		{Kind: "note", Text: "a line"}, {Kind: "warning", Text: "<it> is old"}, {Kind: "note", Text: "half a line"},
		{Kind: "done", Text: "All done.\n\n    now type this"},
	}
	if got := lines(t, stdout); fmt.Sprint(got) != fmt.Sprint(want) || stderr != "" {
		t.Errorf("got %+v\nand %q", got, stderr)
	}
}

func TestLastEventOfAnError(t *testing.T) {
	stdout, stderr := run(func(*cobra.Command) error { return fault.New(fault.Preflight, "no\nroom").Hint("df -h") }, "--progress", "json")
	if got := lines(t, stdout); len(got) != 1 || got[0] != (progress.Event{Kind: "error", Text: "no\nroom", Code: 3, Hint: "df -h"}) || stderr != "" {
		t.Errorf("%+v, %q", got, stderr)
	}
	// An error in a later flag, and in the flag itself.
	if stdout, stderr := run(nil, "--progress", "json", "--no-such"); lines(t, stdout)[0].Kind != "error" || stderr != "" {
		t.Errorf("%q, %q", stdout, stderr)
	}
	if stdout, stderr := run(nil, "--progress", "yaml"); stdout != "" || !strings.HasPrefix(stderr, "error: ") {
		t.Errorf("%q, %q", stdout, stderr)
	}
}

func TestTextIsNoEvent(t *testing.T) {
	do := func(cmd *cobra.Command) error {
		fmt.Fprintln(cmd.OutOrStdout(), "        a line")
		return errors.New("no")
	}
	for _, args := range [][]string{nil, {"--progress", "text"}, {"--progress", "json", "--progress", "text"}} {
		if stdout, stderr := run(do, args...); stdout != "        a line\n" || stderr != "error: no\n" {
			t.Errorf("%q: %q, %q", args, stdout, stderr)
		}
	}
}

// A document on standard output stays as it is, and the events go to standard error.
func TestDocumentsAreNoEvents(t *testing.T) {
	for name, write := range map[string]func(cmd *cobra.Command) error{
		"verbatim": func(cmd *cobra.Command) error {
			_, err := io.WriteString(Verbatim(cmd.OutOrStdout()), "{\n}\n")
			return err
		},
		"-o json": func(cmd *cobra.Command) error {
			show, err := (&Flags{format: "json"}).Printer()
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), struct{}{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr := run(write, "--progress", "json")
			var document struct{}
			if err := json.Unmarshal([]byte(stdout), &document); err != nil {
				t.Errorf("%q: %v", stdout, err)
			}
			if got := lines(t, stderr); len(got) != 1 || got[0].Kind != "done" {
				t.Errorf("%q", stderr)
			}
		})
	}
}

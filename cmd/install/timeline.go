package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/host/filesystem"
	"airlift/installer/timeline"
	"airlift/internal/fault"
)

const timelineHelp = `

--timeline FILE writes a timeline of the run, even if it fails: when each step began,
how long it took, what it waited for, and what was unpacked and imported at the same
time. FILE is JSON in the Trace Event Format. To view it, copy it from the host and
open it in chrome://tracing of any Chromium, which needs no network, or in
https://ui.perfetto.dev. Its directory must belong to root, so that no other user can
place links in it.`

type timelineFlag struct{ file string }

func (t *timelineFlag) bind(f *pflag.FlagSet) {
	f.StringVar(&t.file, "timeline", "", "write a timeline of the run to this `FILE`, for a trace viewer; with - it goes to standard output, and all other output to standard error")
}

// record runs run with a timeline recorder in cmd's context, and writes the
// timeline even if run fails. After a usage error it writes none. It checks
// before run that it can write the file.
func (t *timelineFlag) record(cmd *cobra.Command, cfg *config.Config, run func(*timeline.Recorder) error) error {
	out := cmd.OutOrStdout()
	if t.file == "-" {
		cmd.SetOut(cmd.ErrOrStderr())
	} else if err := t.check(); err != nil {
		return err
	}
	ctx, rec := cmd.Context(), timeline.New("launch", own.launched)
	cmd.SetContext(rec.Context(ctx))
	failed := run(rec)
	if t.file == "" || fault.ExitCode(failed) == fault.Usage {
		return failed
	}
	about := timeline.About{Command: commandLine(cmd), Version: version, KubernetesVersion: cfg.KubernetesVersion, Outcome: "done"}
	switch {
	case failed != nil && ctx.Err() != nil:
		about.Outcome = "interrupted"
	case failed != nil:
		about.Outcome = "failed"
	}
	var trace bytes.Buffer
	err := rec.WriteTrace(&trace, about)
	if err == nil && t.file == "-" {
		_, err = output.Documents(out).Write(trace.Bytes())
	} else if err == nil {
		err = filesystem.WriteOutput(t.file, trace.Bytes(), 0o644)
	}
	switch {
	case err != nil && failed == nil:
		return fault.Wrap(fmt.Errorf("writing the timeline: %w", err), fault.Failure, "all steps succeeded; only the timeline was not written")
	case err != nil:
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: writing the timeline: %s\n", err)
	case t.file != "-":
		fmt.Fprintf(cmd.OutOrStdout(), "\nThe timeline is in %s. Open it in chrome://tracing or https://ui.perfetto.dev.\n", t.file)
	}
	return failed
}

// check returns an error if the file cannot be written. It leaves no file
// behind.
func (t *timelineFlag) check() error {
	if t.file == "" {
		return nil
	}
	if err := filesystem.CheckOutput(t.file); err != nil {
		hint := cmp.Or(fault.Hint(err), "choose a file in an existing directory")
		return fault.New(fault.Usage, "--timeline %q cannot be written: %w", t.file, err).Hint("nothing was changed; " + hint + ", or - for standard output")
	}
	return nil
}

// commandLine returns the command for the timeline file, which users may pass
// on. It includes the names of all given flags, but only those values that
// cannot contain secrets or names.
func commandLine(cmd *cobra.Command) string {
	words := []string{"install " + commandName(cmd)}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		value := "…"
		switch f.Value.Type() {
		case "bool", "int", "int32", "duration":
			value = f.Value.String()
		}
		words = append(words, "--"+f.Name+"="+value)
	})
	return strings.Join(words, " ")
}

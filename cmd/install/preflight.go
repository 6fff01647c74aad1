package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/output"
	"airlift/installer/flow/initcluster"
	"airlift/installer/flow/join"
	"airlift/installer/preflight"
	"airlift/internal/fault"
)

func newPreflightCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Check whether this host can become a node",
		Long: `Check whether this host can become a node, with the checks and flags of init and
join. The command changes nothing. It reports all problems at once, warnings and
errors separately, each with a fix.

Exit codes: 0 all checks passed, perhaps with warnings; 3 a check failed; 4 this
file is damaged.`,
		Example: "  ./install preflight init --config kubeadm.yaml\n  ./install preflight join --output json",
	}
	cmd.AddCommand(
		preflightCmd("init", "Check whether this host can become the first control plane", output.NoArgs, new(initFlags)),
		preflightCmd("join [HOST:PORT]", "Check whether this host can join a cluster", output.AtMostOneArg("address"), new(joinFlags)),
	)
	return cmd
}

// A nodeFlagSet holds the flags of init or of join.
type nodeFlagSet interface {
	bind(f *pflag.FlagSet)
	lookOver(cmd *cobra.Command, args []string) (run checker, done func(), err error)
}

// A checker runs the preflight checks.
type checker interface {
	Preflight(context.Context) (preflight.Report, error)
}

func (in *initFlags) lookOver(cmd *cobra.Command, _ []string) (checker, func(), error) {
	in.runFlags.changesNothing = true
	r, err := in.open(cmd)
	if err != nil {
		return nil, nil, err
	}
	run := initcluster.New(r.plan, in.options, r.host, r.console)
	return run, func() { run.Close(); r.done() }, nil
}

func (in *joinFlags) lookOver(cmd *cobra.Command, args []string) (checker, func(), error) {
	in.runFlags.changesNothing = true
	r, err := in.open(cmd, args)
	if err != nil {
		return nil, nil, err
	}
	run := join.New(r.plan, r.host, r.console)
	return run, func() { run.Close(); r.done() }, nil
}

func preflightCmd(use, short string, args cobra.PositionalArgs, in nodeFlagSet) *cobra.Command {
	formats, name := &output.Flags{}, strings.Fields(use)[0]
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args,
		Long: short + ".\nIt has all flags of '" + name + "', and lists here those that it adds: './install " + name + " --help' has the others.",
		RunE: func(cmd *cobra.Command, args []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			cmd.SetOut(cmd.ErrOrStderr()) // messages go to standard error
			run, done, err := in.lookOver(cmd, args)
			if err != nil {
				return err
			}
			defer done()
			return printReport(cmd.Context(), out, run, show)
		},
	}
	in.bind(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = f.Name != "config" && f.Name != "ignore-preflight-errors" })
	formats.Bind(cmd.Flags())
	return cmd
}

// printReport prints the report on standard output. The returned error is
// short, because the report has the details.
func printReport(ctx context.Context, out io.Writer, run checker, show output.Printer) error {
	report, err := run.Preflight(ctx)
	if err != nil && len(report.Errors) == 0 {
		return err
	}
	if show == nil {
		report.Write(out)
	} else if err := show(out, report); err != nil {
		return err
	}
	if fault.ExitCode(err) == fault.Bundle {
		return fault.New(fault.Bundle, "this file is damaged: %d problem(s) must be solved first", len(report.Errors)).Hint(fault.Hint(err))
	}
	if err != nil {
		return fault.New(fault.Preflight, "preflight checks failed: %d problem(s) must be solved first", len(report.Errors)).
			Hint(report.IgnoreHint())
	}
	if show == nil {
		fmt.Fprintln(out, "All preflight checks passed.")
	}
	return nil
}

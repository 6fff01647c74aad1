package clustercmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/clustertest"
	"airlift/internal/fault"
)

func newTest(in *site) *cobra.Command {
	formats := &output.Flags{}
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Test whether the cluster works",
		Long: `Test whether the cluster works: run 'test' on a control plane, and print its result. Pods on
every node ask each other, DNS, Services and API servers. It prints what failed, on which
nodes and in which layer, and what to type.

Exit codes: 0 the cluster passed, perhaps with notes; 1 something failed, or the test could
not run; 9 another test runs: try again.`,
		Example: "  ./install cluster test\n  ./install cluster test -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			return in.gathered(cmd, cmd.ErrOrStderr(), nil, func(ctx context.Context, s *opened) error {
				result, err := s.test(ctx)
				if err != nil {
					return err
				}
				if show != nil {
					err = show(cmd.OutOrStdout(), result)
				} else {
					result.Write(cmd.OutOrStdout())
				}
				if err == nil && !result.Passed {
					err = fault.New(fault.Failure, "the cluster %s does not pass: %d finding(s)", s.Site.Cluster.Name, len(result.Findings)).
						Hint("type what is named above, then run it again: ./install cluster test")
				}
				return err
			})
		},
	}
	formats.Bind(cmd.Flags())
	return cmd
}

// test runs 'airlift test' on a control plane: with the installer of the host, which the pods of the test run, too.
func (s *opened) test(ctx context.Context) (*clustertest.Result, error) {
	defer s.Site.Display.Clear()
	h, err := s.Site.Healthy()
	if err != nil {
		return nil, err
	}
	s.Site.Display.Printf("%s: testing the cluster\n", h.Name)
	out, err := h.Installer(ctx, "test", "-o", "json")
	result := &clustertest.Result{}
	if decodeErr := json.Unmarshal(out, result); decodeErr != nil || len(result.Nodes) == 0 || err != nil && result.Passed { // it also has a document if something failed
		err = cmp.Or(err, decodeErr, errors.New("the test has no result"))
		return nil, fault.Wrap(fmt.Errorf("%s: %w", h.Name, err), fault.ExitCode(err), cmp.Or(fault.Hint(err), "the installer of "+h.Name+" may be older than this file: ./install cluster plan"))
	}
	return result, nil
}

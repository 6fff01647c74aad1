package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/cluster"
	"airlift/installer/clustertest"
	"airlift/installer/clustertest/probe"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/internal/fault"
)

func newTestCmd() *cobra.Command {
	formats, kubeconfig := &output.Flags{}, ""
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Test whether this cluster works",
		Long: `Test whether this cluster works, after an install, an upgrade or a repair: pods on every
node ask each other, DNS, Services and API servers. It prints what failed, on which nodes and
in which layer, and what to type.

It tests the network between hosts and between pods in both directions, also with large
packets; DNS through its Service and at each of its pods; Services from pods and from hosts;
ports of hosts; NetworkPolicies, if something enforces them; a volume, if there is a default
StorageClass; the embedded registry; the API at each address; clocks; and it counts requests
that are lost meanwhile. Nodes that are not Ready are named at once and not waited for.

Run it on a control plane. It needs no image: its pods use an image that the node has, with
the command airlift of the node. They are in the namespace ` + clustertest.Namespace + `, which is removed at the
end, also after Ctrl-C; the next test removes what a killed one left. Only one test runs at a
time. Three nodes take about half a minute. From your machine: './install cluster test'.

Exit codes: 0 the cluster passed, perhaps with notes; 1 something failed, or the test could
not run; 9 another test runs: try again.`,
		Example: "  ./install test\n  ./install test -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			client, name, err := testClient(cmd.Context(), kubeconfig)
			if err != nil {
				return err
			}
			t := &clustertest.Test{Client: client, Node: name, Report: func(format string, args ...any) {
				fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
			}}
			result, err := t.Run(cmd.Context())
			if err != nil {
				return err
			}
			if show != nil {
				err = show(cmd.OutOrStdout(), result)
			} else {
				result.Write(cmd.OutOrStdout())
			}
			switch {
			case err != nil:
				return err
			case len(result.Findings) > 0:
				return fault.New(fault.Failure, "the cluster does not pass: %d finding(s)", len(result.Findings)).Hint("type what is named above, then run it again: ./install test")
			case !result.Passed:
				return fault.New(fault.Failure, "no node was tested").Hint("see the nodes: ./install status")
			}
			return nil
		},
	}
	formats.Bind(cmd.Flags())
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of an administrator (default: "+adminConf+")")
	cmd.AddCommand(newTestServeCmd(), newTestProbeCmd())
	return cmd
}

// testClient returns an administrator's client, and the name of this host.
func testClient(ctx context.Context, kubeconfig string) (*cluster.Client, string, error) {
	h, err := host.Open("/")
	if err != nil {
		h = host.OpenDamaged("/") // the test reads nothing of the ledger
	}
	name := node.Observe(h).Name
	if name == "" {
		name, _ = os.Hostname()
	}
	if kubeconfig == "" {
		kubeconfig = adminConf
		if !node.FileExists(h, adminConf) {
			return nil, "", fault.New(fault.Failure, "this host has no %s", adminConf).Hint("run it on a control plane, or give the kubeconfig of an administrator: ./install test --kubeconfig FILE")
		}
	}
	client, err := cluster.Load(kubeconfig, "")
	if err != nil {
		return nil, "", err
	}
	if err := client.Reach(ctx); err != nil {
		return nil, "", fault.Wrap(err, fault.Failure, "see this control plane: ./install status")
	}
	return client, name, nil
}

// newTestServeCmd returns what servers in pods of a test run.
func newTestServeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Answer the pods of a test", Hidden: true, Args: output.OneArg("a pod of 'test' runs this", "run the test: ./install test"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var s probe.Server
			if err := decodeArgument(args[0], &s); err != nil {
				return err
			}
			if err := s.Serve(cmd.Context(), cmd.OutOrStdout()); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
	}
}

// newTestProbeCmd returns what probes in pods of a test run.
func newTestProbeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "probe", Short: "Ask from a pod of a test", Hidden: true, Args: output.OneArg("a pod of 'test' runs this", "run the test: ./install test"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var p probe.Plan
			if err := decodeArgument(args[0], &p); err != nil {
				return err
			}
			return p.Run(cmd.Context(), output.Verbatim(cmd.OutOrStdout()))
		},
	}
}

// decodeArgument decodes what the test gave a pod. Another version of the command may not know a field.
func decodeArgument(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fault.New(fault.Usage, "the argument is not of this version of the command: %w", err).Hint("run the test: ./install test")
	}
	return nil
}

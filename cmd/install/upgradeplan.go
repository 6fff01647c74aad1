package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/upgrade"
	"airlift/installer/preflight"
	"airlift/internal/fault"
)

// planFlags are the flags of upgrade plan and upgrade diff.
type planFlags struct {
	options    upgrade.PlanOptions
	configFile string
}

func (in *planFlags) bind(f *pflag.FlagSet) {
	o := &in.options
	f.SortFlags = false
	f.StringVar(&in.configFile, "config", "", "kubeadm's configuration `FILE` with an UpgradeConfiguration; - is standard input")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of the cluster (default: "+adminConf+")")
	f.StringVar(&o.Patches, "patches", "", "the `DIRECTORY` with the patches for 'upgrade apply'")
	f.BoolVar(&o.EtcdUpgrade, "etcd-upgrade", true, "also plan the upgrade of etcd")
	f.IntVarP(&o.Context, "context-lines", "c", 3, "how many lines to show around each change in a diff")
}

// read reads the plan. It accepts a version as argument, which must be the version of this file.
// err is also set if a check failed; then the plan has the errors.
func (in *planFlags) read(cmd *cobra.Command, args []string) (*upgrade.Plan, error) {
	if in.options.Context < 0 {
		return nil, fault.New(fault.Usage, "--context-lines %d is negative", in.options.Context).Hint("use 0 or more")
	}
	if err := readConfig(cmd, in.configFile, &in.options.UpgradePlan, config.ReadUpgradePlan); err != nil {
		return nil, err
	}
	b, done, err := shared.Payload()
	if err != nil {
		return nil, err
	}
	defer done()
	if err := b.NeedsKubernetes(cmd.CommandPath()); err != nil {
		return nil, err
	}
	for _, requested := range append(args, in.options.KubernetesVersion) {
		if err := config.CheckVersion(requested, b.KubernetesVersion()); err != nil {
			return nil, err
		}
	}
	h, _, err := runFlags{changesNothing: true}.openHost()
	if err != nil {
		return nil, err
	}
	messages := console(cmd)
	messages.Out, messages.TTY = cmd.ErrOrStderr(), false
	return upgrade.ReadPlan(cmd.Context(), b, in.options, h, messages)
}

func newUpgradePlanCmd() *cobra.Command {
	in, formats, diff, exit := &planFlags{}, &output.Flags{}, false, output.PlanExit(false)
	cmd := &cobra.Command{
		Use:   "plan [VERSION]",
		Short: "Show what an upgrade would change, and what prevents it",
		Long: `Show what an upgrade to the version of this file would change, and check whether it
can succeed: the versions of all nodes and components, the files and the stored
configuration that change, and all problems at once, each with a fix. Run it on a
control plane. It changes nothing. 'upgrade apply' and 'upgrade node' run the same
checks before they change anything.

Exit codes: 0 the upgrade can begin, perhaps with warnings; 3 a check failed. With
--detailed-exitcode, 5 instead of 0 if the upgrade changes something.`,
		Example: "  ./install upgrade plan\n  ./install upgrade plan -o json\n  ./install upgrade plan --diff",
		Args:    output.AtMostOneArg("version"),
		RunE: func(cmd *cobra.Command, args []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			plan, err := in.read(cmd, args)
			if plan == nil {
				return err
			}
			in.print(cmd.OutOrStdout(), plan, show, diff)
			if len(plan.Errors) > 0 {
				return fault.New(fault.Preflight, "the upgrade cannot begin: %d problem(s) must be solved first", len(plan.Errors)).
					Hint(preflight.Report{Errors: plan.Errors}.IgnoreHint())
			}
			if err == nil && (plan.From != plan.To || len(plan.Changes) > 0) {
				return exit.Work()
			}
			return err
		},
	}
	f := cmd.Flags()
	in.bind(f)
	o := &in.options
	f.BoolVar(&o.AllowExperimental, "allow-experimental-upgrades", false, "allow alpha and beta versions and release candidates")
	f.BoolVar(&o.AllowRC, "allow-release-candidate-upgrades", false, "allow release candidates")
	f.BoolVar(&o.Drain, "drain", true, "check whether the pods of each node can move to other nodes")
	f.StringSliceVar(&o.IgnorePreflightErrors, "ignore-preflight-errors", nil, "checks whose errors become warnings, or all")
	f.BoolVar(&o.PrintConfig, "print-config", false, "also print the ClusterConfiguration that the upgrade stores")
	exit.Bind(f)
	f.BoolVar(&diff, "diff", false, "also print the differences, as 'upgrade diff' does")
	formats.Bind(f)
	return cmd
}

func (in *planFlags) print(out io.Writer, plan *upgrade.Plan, show output.Printer, diff bool) {
	if show != nil {
		_ = show(out, plan) // a lost output cancels the command
		return
	}
	plan.Write(out, diff)
	if in.options.PrintConfig && plan.Configuration != "" {
		fmt.Fprintf(out, "\n%s", plan.Configuration)
	}
}

func newUpgradeDiffCmd() *cobra.Command {
	in := &planFlags{}
	cmd := &cobra.Command{
		Use:   "diff [VERSION]",
		Short: "Show the differences that an upgrade makes on this control plane",
		Long: `Show the differences that an upgrade makes on this control plane, as a unified diff: the
manifests of the static pods, the configuration of the kubelet and of containerd, and
the configuration stored in the cluster. "[redacted]" is in the place of a value that may be
a secret, as in the output of status. It changes nothing.`,
		Example: "  ./install upgrade diff\n  ./install upgrade diff --context-lines 0",
		Args:    output.AtMostOneArg("version"),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := in.read(cmd, args)
			if plan == nil {
				return err
			}
			if len(plan.Changes) == 0 && err != nil {
				return err
			}
			plan.WriteDiffs(output.Verbatim(cmd.OutOrStdout()))
			return nil
		},
	}
	in.bind(cmd.Flags())
	return cmd
}

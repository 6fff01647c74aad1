package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/output"
	"airlift/installer/cluster/apply"
	"airlift/installer/config"
	"airlift/installer/flow/site"
	"airlift/installer/host"
	"airlift/installer/timeline"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// applyFlags are the flags of apply and of the commands below it.
type applyFlags struct {
	options       site.ApplyOptions
	diff          bool
	yes           bool
	skipFileCheck bool
	exit          output.PlanExit
	timeline      timelineFlag
}

const whatIsRemoved = `
Only objects are removed that Airlift applied and nobody else did, and that no other
manifest has. Definitions, namespaces and what has volumes stay, unless --also names them.
The command prints what is removed and what stays, and asks.`

func newApplyCmd() *cobra.Command {
	in := &applyFlags{}
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Apply the site's own manifests in this file to the cluster",
		Long: `Apply the site's own manifests in this file to the running cluster, as the phases
manifests and wait-manifests of init do. Run it on one control plane, after 'import'
on every node. It is safe to run it again: it changes only what is different.

Manifests that other files applied stay in the cluster's inventory. A manifest of the
same name replaces the earlier one: objects that it no longer contains are listed, and
with --prune they are removed when the new ones run. --diff shows what apply would do, and
changes nothing. 'apply undo' brings back what the last apply replaced.
` + whatIsRemoved + `

The command fails if the cluster has another minor version of Kubernetes, or if images
of the manifests are in this file but were not imported on this node.` + timelineHelp,
		Example: "  ./more apply --diff\n  ./more apply\n  ./more apply --prune\n  ./more apply --print-manifest\n  ./more apply --force-conflicts",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := in.check(); err != nil {
				return err
			}
			cfg := &config.Config{}
			return in.timeline.record(cmd, cfg, func(*timeline.Recorder) error { return in.run(cmd, cfg) })
		},
	}
	f, o := cmd.Flags(), &in.options
	f.SortFlags = false
	f.BoolVar(&in.diff, "diff", false, "show what would change, and change nothing")
	in.exit.Bind(f)
	f.BoolVar(&o.Prune, "prune", false, "when the manifests run, remove objects that only earlier versions of them have")
	in.bindRemoval(f)
	f.StringVar(&o.Kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of the cluster")
	f.BoolVar(&o.ForceConflicts, "force-conflicts", false, "also replace fields that other field managers have changed")
	f.BoolVar(&o.IgnoreVersion, "ignore-version", false, "also apply to a cluster of another minor version of Kubernetes")
	f.BoolVar(&o.PrintManifest, "print-manifest", false, "print the manifests instead of applying them")
	f.StringVar(&o.RenderDir, "render-dir", "", "write the manifests to this `DIRECTORY` instead of applying them")
	f.StringSliceVar(&o.SkipPhases, "skip-phases", nil, "phases to skip\nPhases: "+strings.Join(workflow.Names(site.ApplyPhases()), ", "))
	f.BoolVar(&in.skipFileCheck, "skip-file-check", false, "do not verify this file first; use it only after 'bundle verify' or sha256sum")
	in.timeline.bind(f)
	cmd.AddCommand(newApplyUndoCmd(), newApplyRemoveCmd(), newApplyHistoryCmd())
	return cmd
}

// bindRemoval adds the flags of what removes objects.
func (in *applyFlags) bindRemoval(f *pflag.FlagSet) {
	f.StringArrayVar(&in.options.Also, "also", nil, "also remove this `OBJECT` that stays otherwise, such as 'Namespace web' (repeatable)")
	f.BoolVarP(&in.yes, "yes", "y", false, "do not ask for confirmation")
}

func newApplyUndoCmd() *cobra.Command {
	in := &applyFlags{options: site.ApplyOptions{Undo: true}}
	cmd := &cobra.Command{
		Use:   "undo [MANIFEST[@VERSION]...]",
		Short: "Apply again what the last apply replaced",
		Long: `Apply again the versions of manifests that the last apply replaced, and remove the objects
that only the replaced ones had. A manifest that the last apply brought is removed. The
versions are from the history in the cluster: the earlier file is not needed, but its
images must be on the nodes.

Without names, it undoes all that the last apply changed. With a name, it undoes the last
change of this manifest; web@3 applies version 3 of the manifest web. It prefers the newest
earlier version that ran. To undo an undo, run it again. An undo that was interrupted is continued.
` + whatIsRemoved,
		Example: "  ./install apply undo --diff\n  ./install apply undo\n  ./install apply undo web\n  ./install apply undo web@3",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.options.Names = args
			if err := in.check(); err != nil {
				return err
			}
			return in.run(cmd, &config.Config{})
		},
	}
	f, o := cmd.Flags(), &in.options
	f.SortFlags = false
	f.BoolVar(&in.diff, "diff", false, "show what would change, and change nothing")
	in.exit.Bind(f)
	in.bindRemoval(f)
	f.StringVar(&o.Kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of the cluster")
	f.BoolVar(&o.ForceConflicts, "force-conflicts", false, "also replace fields that other field managers have changed")
	f.StringSliceVar(&o.SkipPhases, "skip-phases", nil, "phases to skip\nPhases: wait-manifests")
	completePhases(cmd, "wait-manifests")
	return cmd
}

func newApplyRemoveCmd() *cobra.Command {
	in, dryRun := &applyFlags{options: site.ApplyOptions{Remove: true}}, false
	cmd := &cobra.Command{
		Use:   "remove MANIFEST...",
		Short: "Remove manifests with their objects",
		Long: `Remove manifests from the cluster: the hooks of their charts run, their objects are
removed, and their history. An undo does not bring them back: apply a file that has them.
` + whatIsRemoved,
		Example: "  ./install apply remove web --dry-run\n  ./install apply remove web\n  ./install apply remove web --also 'PersistentVolumeClaim web/data'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Usage, "remove needs the names of manifests").Hint("to see the names: ./install apply history")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in.options.Names, in.diff = args, dryRun
			return in.run(cmd, &config.Config{})
		},
	}
	f, o := cmd.Flags(), &in.options
	f.SortFlags = false
	in.bindRemoval(f)
	f.BoolVar(&dryRun, "dry-run", false, "only print what would be removed")
	f.StringVar(&o.Kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of the cluster")
	f.StringSliceVar(&o.SkipPhases, "skip-phases", nil, "phases to skip\nPhases: "+strings.Join(site.RemovalPhases, ", "))
	completePhases(cmd, site.RemovalPhases...)
	return cmd
}

// completePhases completes --skip-phases.
func completePhases(cmd *cobra.Command, names ...string) {
	_ = cmd.RegisterFlagCompletionFunc("skip-phases", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails only if there is one
}

func newApplyHistoryCmd() *cobra.Command {
	in, formats := &applyFlags{}, output.Flags{}
	cmd := &cobra.Command{
		Use:   "history [MANIFEST...]",
		Short: "List the versions of manifests that were applied",
		Long: `List the versions of the manifests in the cluster that are kept: the last ten of each, and
the last that ran. A version ran if its workloads were ready once, and its hooks succeeded.
The file is the name that the file had from which the version was applied.`,
		Example: "  ./install apply history\n  ./install apply history web -o json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.options.Names = args
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			return in.open(cmd, &config.Config{}, func(run *site.Apply) error {
				list, err := run.History(cmd.Context())
				if err != nil {
					return err
				}
				if show != nil {
					return show(cmd.OutOrStdout(), versionList{list})
				}
				return writeHistory(cmd.OutOrStdout(), list)
			})
		},
	}
	cmd.Flags().SortFlags = false
	formats.Bind(cmd.Flags())
	cmd.Flags().StringVar(&in.options.Kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of the cluster")
	return cmd
}

// versionList is the document that apply history prints with --output.
type versionList struct {
	Versions []apply.Revision `json:"versions"`
}

// check refuses flags that have no meaning together.
func (in *applyFlags) check() error {
	o := in.options
	switch {
	case o.PrintManifest && in.timeline.file == "-":
		return fault.New(fault.Usage, "--timeline - and --print-manifest both write to standard output").Hint("choose a file for the timeline")
	case o.ManifestsOnly() && (in.diff || o.Prune):
		return fault.New(fault.Usage, "--print-manifest and --render-dir change nothing in the cluster, so --diff and --prune have no effect").Hint("remove one of them")
	case bool(in.exit) && !in.diff:
		return fault.New(fault.Usage, "--detailed-exitcode has no effect without --diff").Hint("add --diff")
	case len(o.Also) > 0 && !o.Prune && !o.Undo:
		return fault.New(fault.Usage, "--also has no effect without --prune").Hint("add --prune, or remove --also")
	case o.Prune && slices.ContainsFunc(o.SkipPhases, func(name string) bool { return strings.HasSuffix(name, "manifests") }):
		return fault.New(fault.Usage, "--prune removes objects when the manifests run, so no phase before can be skipped").Hint("remove --skip-phases, or --prune")
	}
	return nil
}

// run applies the manifests, or does what the flags ask for. It sets the Kubernetes version in cfg, for the timeline.
func (in *applyFlags) run(cmd *cobra.Command, cfg *config.Config) error {
	return in.open(cmd, cfg, func(run *site.Apply) error {
		if !in.diff {
			return run.Run(cmd.Context())
		}
		found, err := run.Compare(cmd.Context())
		if err != nil {
			return err
		}
		return in.writeComparison(cmd.OutOrStdout(), found)
	})
}

// open opens this file and this host.
func (in *applyFlags) open(cmd *cobra.Command, cfg *config.Config, do func(*site.Apply) error) error {
	c := console(cmd)
	if in.options.PrintManifest || in.diff {
		c.Out = cmd.ErrOrStderr()
	}
	b, done, err := shared.Payload()
	if err != nil {
		return err
	}
	defer done()
	cfg.KubernetesVersion = b.KubernetesVersion()
	if reads := cmd.Name() == "apply"; reads && !in.skipFileCheck { // the others read nothing of this file
		b.CheckFile(cmd.Context())
	}
	h, err := host.Open("/")
	if err != nil {
		return err
	}
	if !in.yes {
		in.options.Confirm = func(question string) error { return confirm(cmd, question, "answer with y, or run it with --yes") }
	}
	run := site.NewApply(b, in.options, h, c)
	defer run.Close()
	return do(run)
}

// writeHistory prints versions of manifests as a table.
func writeHistory(out io.Writer, list []apply.Revision) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "There is no history: nothing was applied by an Airlift that keeps one.")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "MANIFEST\tVERSION\tSTATE\tAPPLIED\tCHART\tFILE\tSHA256 OF ITS MANIFEST.JSON")
	for _, r := range list {
		state := "not known to have run"
		if r.Complete {
			state = "ran"
		}
		if r.Damaged {
			state = "damaged; to remove it: " + r.RemoveCommand()
		}
		if r.Current {
			state = "present, " + state
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Manifest, r.Number, state, r.Began, cmp.Or(r.Chart, "-"), cmp.Or(r.File, "-"), cmp.Or(r.Bundle, "-"))
	}
	return table.Flush()
}

// writeComparison prints what an apply would do. Its error is the exit code of a plan.
func (in *applyFlags) writeComparison(out io.Writer, c *site.Comparison) error {
	for _, line := range site.UndoLines(c.Undos) {
		fmt.Fprintln(out, line)
	}
	var failed []string
	for _, d := range c.Differences {
		progress.WriteDiff(out, d.Diff)
		for _, list := range []struct {
			what  string
			names []string
		}{{"would be created", d.Created}, {"would be changed", d.Changed}, {"", d.Kept}, {"would run", d.Hooks}} {
			for _, name := range list.names {
				fmt.Fprintln(out, strings.TrimSpace(d.Manifest+": "+name+" "+list.what))
			}
		}
		for _, text := range d.Failed {
			failed = append(failed, d.Manifest+": "+text)
		}
		if !d.Any() {
			fmt.Fprintf(out, "%s: nothing to change\n", d.Manifest)
		}
	}
	what := "would be removed"
	if !in.options.Prune && !in.options.Undo && !in.options.Remove && len(c.Plan.Removed()) > 0 {
		what = "would no longer be in the manifests; --prune would remove them"
	}
	for _, line := range site.PlanLines(c.Plan, what) {
		fmt.Fprintln(out, line)
	}
	if len(failed) > 0 {
		return fault.New(fault.Failure, "the API server would not accept these objects:\n  - %s", strings.Join(failed, "\n  - ")).
			Hint("correct the manifests and build the bundle again; objects that wait for others of the same file are accepted later")
	}
	plan := c.Plan
	if !in.options.Prune && !in.options.Undo && !in.options.Remove {
		plan = nil // only --prune removes them
	}
	if in.options.Remove { // at least the history is removed
		return nil
	}
	if (&site.Comparison{Differences: c.Differences, Undos: c.Undos, Plan: plan}).Work() {
		return in.exit.Work()
	}
	fmt.Fprintln(out, "Nothing to do.")
	return nil
}

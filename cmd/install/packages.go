package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/host"
	"airlift/installer/host/ospackages"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/workflow"
)

// A packageState is a package in the document that packages prints with --output.
type packageState struct {
	Name      string `json:"name"`
	Version   string `json:"version"`             // in this file
	Installed string `json:"installed,omitempty"` // the version that the host has
	Act       string `json:"act,omitempty"`       // install, upgrade, repair or keep; "" if the host has it
	Reason    string `json:"reason,omitempty"`
}

type packageStates struct {
	Packages []packageState `json:"packages"`
}

func newPackagesCmd() *cobra.Command {
	formats, dryRun := &output.Flags{}, false
	cmd := &cobra.Command{
		Use:   "packages",
		Short: "Install the packages of the distribution in this file",
		Long: `Install the packages of the distribution in this file, with the host's own dpkg or rpm and
without a network. init and join do that first; this command is for a host before that, and
for a node that gets a newer file. On a host that is not a node, it leaves out packages that
only control planes or workers get. It is safe to run it again.

Before the first change, it compares release and architecture, and dpkg or rpm checks
that nothing is missing and that no other package would be removed. A package that the host
has in a newer version, or holds, stays as it is. --dry-run runs the same check, and lists what would be done.

What is installed is recorded. 'packages remove' and 'reset' remove only that.`,
		Example: "  ./install packages --dry-run\n  ./install packages\n  ./install packages --dry-run -o json\n  ./install packages remove",
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			return installPackages(cmd, dryRun, show)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be done")
	formats.Bind(cmd.Flags())
	cmd.AddCommand(newPackagesRemoveCmd())
	return cmd
}

func installPackages(cmd *cobra.Command, dryRun bool, show output.Printer) error {
	c := console(cmd)
	if show != nil {
		c.Out = cmd.ErrOrStderr()
	}
	b, done, err := shared.Payload()
	if err != nil {
		return err
	}
	defer done()
	if err := phases.NoPackages(b.Manifest); err != nil {
		return err
	}
	open := openHost
	if dryRun {
		open = func() (*host.Host, func(), error) {
			h, err := host.Open("/")
			return h, func() {}, err
		}
	}
	h, unlock, err := open()
	if err != nil {
		return err
	}
	defer unlock()
	role := node.Observe(h).Role
	p := phases.PackagesOf(b, role, node.NewMachine(h, c))
	p.Attach = func(ctx context.Context) error { return b.AttachNode(ctx, h, c) }
	if role == node.NoNode && len(phases.PackagesFor(b, role)) < len(b.Manifest.Packages) {
		c.Note("packages that only control planes or workers get are left out: init and join install them")
	}
	b.CheckFile(cmd.Context())
	if !dryRun {
		err = recorded(cmd, h, b.KubernetesVersion(), func() error {
			return workflow.RunPhase(cmd.Context(), c, []workflow.Step{p.Step()}, "packages")
		})
		if err != nil || show == nil {
			return err
		}
	}
	items, err := p.Items(cmd.Context())
	if err == nil && dryRun {
		err = p.Check(cmd.Context(), items)
	}
	if err != nil {
		return err
	}
	if show == nil {
		return printPackages(cmd.OutOrStdout(), items)
	}
	states := packageStates{[]packageState{}}
	for _, i := range items {
		states.Packages = append(states.Packages, packageState{i.Name, i.Version, i.Has, i.Act, i.Reason})
	}
	return show(cmd.OutOrStdout(), states)
}

// printPackages prints what a dry run found.
func printPackages(out io.Writer, items []ospackages.Item) error {
	for _, i := range items {
		word := i.Act + ": "
		if i.Act == ospackages.Nothing || i.Act == ospackages.Keep {
			word = ""
		}
		fmt.Fprintf(out, "%s%s\n", word, i)
	}
	_, err := fmt.Fprintf(out, "Nothing was changed. %d of %d packages would be installed.\n", len(ospackages.Changes(items)), len(items))
	return err
}

func newPackagesRemoveCmd() *cobra.Command {
	yes, dryRun := false, false
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Remove the packages that Airlift installed on this host",
		Long: `Remove the packages that Airlift installed on this host, with the host's own dpkg or rpm.
A package stays if the host had it before, if something else has changed it since, if it is
on hold, or if another package needs it; the list has the reasons. Configuration files of
dpkg's packages stay. 'reset' does the same.`,
		Example: "  ./install packages remove --dry-run\n  ./install packages remove --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, unlock, err := openHost()
			if err != nil {
				return err
			}
			defer unlock()
			plan, out := uninstall.PlanPackages(cmd.Context(), h), cmd.OutOrStdout()
			for _, i := range plan {
				fmt.Fprintf(out, "%s: %s\n", i.Act, i)
			}
			switch {
			case len(plan) == 0:
				fmt.Fprintln(out, "Airlift installed no packages on this host: nothing was changed.")
				return nil
			case dryRun:
				fmt.Fprintln(out, "Nothing was changed.")
				return nil
			}
			if !yes {
				if err := confirm(cmd, "This removes packages from this host. Continue?", "answer with y, or run it with --yes"); err != nil {
					return err
				}
			}
			return recorded(cmd, h, "", func() error {
				if err := uninstall.RemovePackages(cmd.Context(), h); err != nil {
					return err
				}
				return h.ForgetUnused()
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be removed")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

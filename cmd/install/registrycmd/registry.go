// Package registrycmd has the commands of the embedded registry.
package registrycmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/flow/registrychange"
	"airlift/installer/host"
	"airlift/internal/fault"
)

// New returns the command registry.
func New(e nodecmd.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Start, show and remove the embedded registry",
		Args:  output.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEnable(e), newStatus(), newRemove(e), newDisable(e), newNode(), newServe())
	return cmd
}

func newEnable(e nodecmd.Environment) *cobra.Command {
	dryRun := false
	var ignore []string
	cmd := &cobra.Command{
		Use:   "enable",
		Short: "Start the embedded registry on this node of a running cluster",
		Long: `Let a control plane of a running cluster keep this file and serve it, on port 7444: thin
installers read it, and containerd of each node pulls its images. Run it on each control
plane, and then on each worker, where it only configures containerd.

For the registries in the names of its images, containerd then asks only the control planes,
and no longer the registry itself. After --registry-mirror, it asks the mirrors, the control
planes, and then the registry. A registry that has a configuration of its own in
/etc/containerd/certs.d keeps it.

It is safe to run it again: it finishes what an interrupted run left.`,
		Example: "  ./install registry enable\n  ./install registry enable --dry-run",
		Args:    output.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, done, err := e.Payload()
			if err != nil {
				return err
			}
			defer done()
			b.CheckFile(cmd.Context())
			h, unlock, err := e.Host()
			if err != nil {
				return err
			}
			defer unlock()
			run, err := registrychange.NewEnable(cmd.Context(), b, ignore, h, e.Console(cmd))
			if err != nil {
				return err
			}
			if dryRun {
				run.DryRun()
				return nil
			}
			return e.Recorded(cmd, h, b.KubernetesVersion(), func() error { return run.Run(cmd.Context()) })
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&ignore, "ignore-preflight-errors", nil, "checks whose errors become warnings: Port-7444, DiskSpace, Firewall; 'all' ignores all")
	f.BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	return cmd
}

func newDisable(e nodecmd.Environment) *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use:   "disable",
		Short: "Remove the embedded registry from the cluster",
		Long: `Remove the embedded registry from the cluster: the kept files and the service of each
control plane, and the configuration of containerd on each node. Run it on one control
plane. The other nodes follow within two minutes, and it waits for the nodes that are Ready.
Images on the nodes stay.

A kept file may be the last copy of a bundle. To keep it, copy it from
/var/lib/airlift/bundles first: "registry status" prints how its name begins.

It is safe to run it again: it finishes what an interrupted run left.`,
		Example: "  ./install registry disable\n  ./install registry disable --dry-run",
		Args:    output.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, unlock, err := e.Host()
			if err != nil {
				return err
			}
			defer unlock()
			run, err := registrychange.NewDisable(cmd.Context(), h, e.Console(cmd))
			if err != nil {
				return err
			}
			if dryRun {
				run.DryRun()
				return nil
			}
			return e.Recorded(cmd, h, "", func() error { return run.Run(cmd.Context()) })
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	return cmd
}

func newRemove(e nodecmd.Environment) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Remove one kept file",
		Long: `Let the control planes no longer keep one file, and no longer serve its images. ID is the
beginning of its ID, which "registry status" prints. Run it on one control plane. The
control planes then remove their copies, an hour after they were written at the earliest.
Images on the nodes stay. Images that every node was to have, and that only this file has,
are not listed any more.

The last file with the version of Kubernetes that a node has is not removed, and no file
that was the base of another kept file. A kept file may be the last copy of a bundle: the
command asks for confirmation.`,
		Example: "  ./install registry remove 0123456789ab",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "remove needs the beginning of one ID").Hint("list the files: ./install registry status")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			h, unlock, err := e.Host()
			if err != nil {
				return err
			}
			defer unlock()
			run, err := registrychange.NewRemove(cmd.Context(), args[0], h, e.Console(cmd))
			if err != nil {
				return err
			}
			if !force {
				if err := e.Confirm(cmd, run.Question(), "answer with y, or run it with --force"); err != nil {
					return err
				}
			}
			return e.Recorded(cmd, h, "", func() error { return run.Run(cmd.Context()) })
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "do not ask for confirmation")
	return cmd
}

func newStatus() *cobra.Command {
	formats := &output.Flags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the kept files, their servers, and which nodes use them",
		Long: `Show which files the control planes keep, which of their servers are ready, which nodes
use them, and which control planes containerd of this host asks for the images of each
registry. A worker may not list the nodes.`,
		Example: "  ./install registry status\n  ./install registry status -o json",
		Args:    output.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			h, err := host.Open("/")
			if err != nil {
				return err
			}
			state, err := registrychange.ReadStatus(cmd.Context(), h)
			if err != nil {
				return err
			}
			if show != nil {
				return show(cmd.OutOrStdout(), state)
			}
			return state.Write(cmd.OutOrStdout())
		},
	}
	formats.Bind(cmd.Flags())
	return cmd
}

// newNode returns the command of airlift-registry-node.service.
func newNode() *cobra.Command {
	return &cobra.Command{
		Use:    "node",
		Short:  "Let this node follow the embedded registry of its cluster, once",
		Hidden: true,
		Args:   output.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := registrychange.Follower{Root: "/", Log: func(format string, args ...any) {
				fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
			}}
			return f.Run(cmd.Context())
		},
	}
}

// Package registrycmd has the commands of the embedded registry, and of the registries of the site.
package registrycmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/flow/registrychange"
	"airlift/installer/host"
	"airlift/installer/workflow"
)

// New returns the command registry.
func New(e nodecmd.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Start, show and remove the embedded registry, and change mirrors",
	}
	cmd.AddCommand(newEnable(e), newStatus(), newRemove(e), newDisable(e), newMirrors(e), newNode(), newServe())
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, done, err := e.Payload()
			if err != nil {
				return err
			}
			defer done()
			b.CheckFile(cmd.Context())
			return e.Change(cmd, nodecmd.How{Version: b.KubernetesVersion(), DryRun: dryRun}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
				return registrychange.NewEnable(cmd.Context(), b, ignore, h, c)
			})
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.Change(cmd, nodecmd.How{DryRun: dryRun}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
				return registrychange.NewDisable(cmd.Context(), h, c)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	return cmd
}

func newRemove(e nodecmd.Environment) *cobra.Command {
	yes := false
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
		Args:    output.OneArg("remove needs the beginning of one ID", "list the files: ./install registry status"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.Change(cmd, nodecmd.How{AskHint: nodecmd.Unless(yes, "answer with y, or run it with --yes")}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
				return registrychange.NewRemove(cmd.Context(), args[0], h, c)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func newStatus() *cobra.Command {
	return output.Show(&cobra.Command{
		Use:   "status",
		Short: "Show the kept files, their servers, and which nodes use them",
		Long: `Show which files the control planes keep, which of their servers are ready, which nodes
use them, and which control planes containerd of this host asks for the images of each
registry. A worker may not list the nodes.`,
		Example: "  ./install registry status\n  ./install registry status -o json",
	}, func(cmd *cobra.Command, _ []string) (*registrychange.Status, error) {
		h, err := host.Open("/")
		if err != nil {
			return nil, err
		}
		return registrychange.ReadStatus(cmd.Context(), h)
	}, (*registrychange.Status).Write)
}

// newNode returns the command of airlift-registry-node.service.
func newNode() *cobra.Command {
	return &cobra.Command{
		Use:    "node",
		Short:  "Let this node follow the embedded registry of its cluster, once",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := registrychange.Follower{Root: "/", Log: func(format string, args ...any) {
				fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
			}}
			return f.Run(cmd.Context())
		},
	}
}

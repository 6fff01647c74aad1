package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"airlift/cmd/install/adoptcmd"
	"airlift/cmd/install/certscmd"
	"airlift/cmd/install/clustercmd"
	"airlift/cmd/install/hostroute"
	"airlift/cmd/install/loadbalancer"
	"airlift/cmd/install/reconfigurecmd"
	"airlift/cmd/install/registrycmd"
	"airlift/cmd/install/secretscmd"
	"airlift/cmd/install/seedcmd"
	"airlift/cmd/install/thin"
	"airlift/cmd/output"
	"airlift/cmd/suggest"
	"airlift/installer/cluster"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// version is the version of this installer. The Makefile sets it.
var version = "dev"

const rootLong = `install makes this host a Kubernetes node. It needs this file and no network.

The file contains the binaries and the images, and runs the phases of kubeadm. You need
root. The host needs systemd, and a kernel with overlayfs, cgroups and namespaces.

Ctrl-C, SIGTERM, a lost session and a closed output ('./install init | head')
interrupt the command between two changes. Run the same command again to
continue. A second Ctrl-C ends it at once, and it can still be continued. To keep
it running after the session ends, start it with nohup or systemd-run.

Exit codes: 0 success, 1 failure (of status: something is wrong; of audit and test: a check failed), 2 usage error, 3 the
host does not meet the requirements, 4 this file is incomplete or damaged, not signed by
the required key or older than the required version, 130 interrupted. Of 'cluster', 6 to
9: it did not fail, and did not do all; of test, 9: another test runs. Of plans, with --detailed-exitcode, 5: there is
something to do.`

func newRootCmd() *cobra.Command {
	verbosity, rootfs := 0, ""
	var required requiredKey
	cmd := &cobra.Command{
		Use:           "install",
		Short:         "Install Kubernetes on this host, without a network",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cobra.EnableCommandSorting = false // keep phases in the order in which they run
	cmd.PersistentFlags().IntVarP(&verbosity, "v", "v", 0, "log verbosity: 0, 1 (each sub-step and file) or 2 (also each request to the API server, on standard error)")
	cmd.PersistentFlags().StringVar(&rootfs, "rootfs", "", "change the root directory to this `DIRECTORY` first (chroot)")
	required.bind(cmd.PersistentFlags())
	output.BindProgress(cmd)
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		logRequests(cmd, verbosity)
		if err := output.RefuseEmpty(cmd, "require-key", "signature", "require-version", "ca-cert-hash", "discovery-token-ca-cert-hash"); err != nil {
			return err
		}
		if err := required.check(cmd); err != nil {
			return err
		}
		return changeRoot(rootfs)
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fault.New(fault.Usage, "%w", err).Hint(suggest.Flag(cmd, err))
	})
	init, join := newInitCmd(), newJoinCmd()
	apply, bring, images, upgrade := newApplyCmd(), newImportCmd(), newImagesCmd(), newUpgradeCmd()
	completeAll(init, join, apply, bring, images, upgrade)
	for i, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Several hosts, from one machine:", []*cobra.Command{clustercmd.New(openOwnFile), seedcmd.New(openHost)}},
		{"One host:", []*cobra.Command{newPackagesCmd(), newPreflightCmd(), init, join, newResetCmd()}},
		{"Second day:", []*cobra.Command{newStatusCmd(), newTestCmd(), newAuditCmd(), upgrade, reconfigurecmd.New(shared), newEndpointCmd(), newNodeCmd(), newTokenCmd(), newKubeconfigCmd(), certscmd.New(shared), secretscmd.New(shared), bring, apply, images}},
		{"Recovery:", []*cobra.Command{newDoctorCmd(), newEtcdCmd()}},
		{"Advanced:", []*cobra.Command{newConfigCmd(), registrycmd.New(shared), adoptcmd.New(shared)}},
		{"Help:", []*cobra.Command{newDocsCmd(), newVersionCmd()}},
	} {
		id := fmt.Sprint(i)
		cmd.AddGroup(&cobra.Group{ID: id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = id
			cmd.AddCommand(c)
		}
		cmd.SetHelpCommandGroupID(id) // of the last group
		cmd.SetCompletionCommandGroupID(id)
	}
	cmd.AddCommand(adoptcmd.NewDisown(shared), thin.New(openOwnFile), hostroute.New(), loadbalancer.New())
	output.Complete(cmd)
	tidy(cmd)
	return cmd
}

// logRequests makes the command print its requests to the API server with -v 2.
func logRequests(cmd *cobra.Command, verbosity int) {
	if verbosity < 2 {
		return
	}
	cmd.SetContext(cluster.WithRequestLog(cmd.Context(), func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
	}))
}

// console returns a Console that prints on the command's output.
func console(cmd *cobra.Command) *workflow.Console {
	c := &workflow.Console{Out: cmd.OutOrStdout(), Results: output.Verbatim(cmd.OutOrStdout())}
	c.Verbosity, _ = cmd.Flags().GetInt("v")
	if f, ok := c.Out.(interface{ Fd() uintptr }); ok {
		c.TTY = term.IsTerminal(int(f.Fd()))
	}
	return c
}

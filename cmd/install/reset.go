package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/reset"
	"airlift/installer/host"
	"airlift/internal/fault"
)

// resetFlags are the flags of reset and of each of its phases.
type resetFlags struct {
	reset      config.Reset
	configFile string
	kubeconfig string
	yes        bool
}

func newResetCmd() *cobra.Command {
	in := &resetFlags{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Remove everything that init or join installed on this host",
		Long: `Remove everything that init or join installed on this host: pods, mounts, the pod
network's interfaces, iptables and nftables rules, routes, certificates, etcd's
data, units and binaries.

Airlift keeps a ledger of what it creates. Reset removes what the ledger lists, and
nothing else. At the end it lists what remains, with the reasons. It does not touch
a container runtime that existed before, and keeps the backups of the cluster that
upgrades saved in ` + host.UpgradeBackups + `: a restore follows a reset.

A node that was not installed by Airlift, for example by kubeadm, has no ledger.
Reset refuses it and lists what it would remove. With --without-ledger, it shows
that list, asks for confirmation, and removes what is in the list.

On a node that was adopted, reset takes back what Airlift changed, and leaves the node as it
was adopted, with its ledger. It refuses if the node was upgraded or reconfigured: undo that
first. With --remove-node, it removes the node, as kubeadm reset does, and what Airlift installed.

On a control plane, reset waits while another one restarts its components. With stacked
etcd, it first removes this member from the etcd cluster. It refuses if the other control
planes would lose their quorum, or if the endpoint of the cluster leads to this host, except
with --force.

The node remains in the cluster. Remove it on a control plane, before or after the reset:
./install node remove NAME. Before, its pods move to other nodes.`,
		Example: "  ./install reset\n  ./install reset --yes\n  ./install reset --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, h, done, err := in.open(cmd, true)
			if err != nil {
				return err
			}
			defer done()
			if in.reset.DryRun {
				return run.DryRun(cmd.Context())
			}
			return recorded(cmd, h, "", func() error { return run.Run(cmd.Context()) })
		},
	}
	in.bind(cmd.Flags())
	cmd.Flags().StringSliceVar(&in.reset.SkipPhases, "skip-phases", nil, "phases to skip; './install reset phase --help' lists them")
	phases := newPhaseCmd(reset.Phases(), output.NoArgs, func() phaseRun { return new(resetPhase) })
	phases.Short, phases.Long = "Run one phase of reset", "Run one phase of reset. It does not ask for confirmation."
	phases.Example = "  ./install reset phase remove-etcd-member"
	cmd.AddCommand(phases)
	return cmd
}

func (in *resetFlags) bind(f *pflag.FlagSet) {
	r := &in.reset
	f.SortFlags = false
	f.BoolVarP(&in.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVarP(&r.Force, "force", "f", false, "as --yes, and continue if the other control planes would lose their etcd quorum or the endpoint; does not remove more")
	f.BoolVar(&r.WithoutLedger, "without-ledger", false, "reset a node without a ledger: show what would be removed, and ask for confirmation, even with --force")
	f.BoolVar(&r.RemoveNode, "remove-node", false, "remove a node that was adopted; without it, reset leaves such a node as it was adopted")
	f.StringVar(&in.configFile, "config", "", "kubeadm's configuration `FILE` with a ResetConfiguration; - is standard input")
	f.StringVar(&r.CertificatesDir, "cert-dir", config.CertificatesDir, "with --without-ledger: the `DIRECTORY` of certificates to empty")
	f.BoolVar(&r.CleanupTmpDir, "cleanup-tmp-dir", false, "also remove kubeadm's backups in /etc/kubernetes/tmp")
	f.StringVar(&r.CRISocket, "cri-socket", "", "the container runtime's socket (default unix://"+config.ContainerdSocket+")")
	f.StringVar(&in.kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of the cluster, used if this host's etcd does not respond")
	f.StringSliceVar(&r.IgnorePreflightErrors, "ignore-preflight-errors", nil, "has no effect: the only check of reset, IsPrivilegedUser, cannot be ignored")
	f.BoolVar(&r.DryRun, "dry-run", false, "only print what would be done")
}

// open opens the host, plans the reset and asks for confirmation. The caller
// must call done at the end.
func (in *resetFlags) open(cmd *cobra.Command, ask bool) (run *reset.Reset, h *host.Host, done func(), err error) {
	if err := readConfig(cmd, in.configFile, &in.reset, config.ReadReset); err != nil {
		return nil, nil, nil, err
	}
	if in.kubeconfig, err = config.Absolute("--kubeconfig", in.kubeconfig); err != nil {
		return nil, nil, nil, err
	}
	in.reset.Complete()
	if err := in.reset.ValidateReset(); err != nil {
		return nil, nil, nil, err
	}
	h, unlock, err := openUnfinished()
	if err != nil {
		return nil, nil, nil, err
	}
	recorded := h.Records().Used()
	run, err = reset.New(in.reset, in.kubeconfig, h, console(cmd))
	switch {
	case err != nil || run.Empty() || in.reset.DryRun:
	case !recorded || in.reset.WithoutLedger:
		why := "Airlift has no ledger of this node. kubeadm creates these on a node:"
		if recorded {
			why = "These are in the ledger of this host, or kubeadm creates them on a node:"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", why, run.Describe())
		err = confirm(cmd, run.Question(), "answer with: yes | ./install reset --without-ledger")
	case ask && !in.reset.Force && !in.yes:
		err = confirm(cmd, run.Question(), "answer with y, or run it with --yes")
	}
	if err != nil {
		unlock()
		return nil, nil, nil, err
	}
	return run, h, unlock, nil
}

type resetPhase struct{ resetFlags }

func (p *resetPhase) bind(f *pflag.FlagSet, _ string) { p.resetFlags.bind(f) }

func (p *resetPhase) run(cmd *cobra.Command, name string, _ []string) error {
	run, h, done, err := p.open(cmd, false)
	if err != nil {
		return err
	}
	defer done()
	if p.reset.DryRun {
		return run.DryRunPhase(name)
	}
	return recorded(cmd, h, "", func() error { return run.RunPhase(cmd.Context(), name) })
}

// confirm asks the user for confirmation. The answer comes from a terminal or a
// pipe: 'yes | install reset'.
func confirm(cmd *cobra.Command, question, hint string) error {
	fmt.Fprint(cmd.OutOrStdout(), question+" [y/N] ")
	answer, err := output.ReadLine(cmd.Context(), cmd.InOrStdin())
	if ctx := cmd.Context(); ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, syscall.EIO) { // the terminal was closed
		return fault.New(fault.Interrupted, "interrupted: the terminal was closed").Hint("nothing was changed")
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		fmt.Fprintln(cmd.OutOrStdout()) // end the line: no user pressed return
	}
	if errors.Is(err, io.EOF) && answer == "" {
		return fault.New(fault.Usage, "%s needs confirmation, and standard input ended without an answer", cmd.Name()).Hint(hint)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return fault.New(fault.Failure, "not confirmed: nothing was changed")
	}
	return nil
}

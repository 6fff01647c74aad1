package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"airlift/fault"
	"airlift/installer"
	"airlift/installer/config"
)

// resetFlags are what reset and each of its phases take.
type resetFlags struct {
	reset      config.Reset
	configFile string
	kubeconfig string
}

func newResetCmd() *cobra.Command {
	in := &resetFlags{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Put this host back to where init or join works again",
		Long: `Put this host back to where init or join works again: stops and removes pods,
mounts, the pod network's interfaces, packet filter rules and routes, and
removes certificates, etcd's data, units and programs that install put here.
A container runtime that was here before is left alone.

On a control plane with an etcd of its own that etcd leaves the cluster first.
What would cost the other control planes their quorum is refused, unless it is
forced.

The node's entry in the cluster stays: kubectl delete node NAME removes it.`,
		Example: "  ./install reset\n  ./install reset --force\n  ./install reset --dry-run",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, done, err := in.open(cmd, true)
			if err != nil {
				return err
			}
			defer done()
			if n.Resetting.DryRun {
				return n.DryRunReset(cmd.Context())
			}
			return n.RunReset(cmd.Context())
		},
	}
	in.bind(cmd.Flags())
	cmd.Flags().StringSliceVar(&in.reset.SkipPhases, "skip-phases", nil, "phases to leave out\nThe phases: "+strings.Join(installer.Names(new(installer.Node).Reset()), ", "))
	phases := newPhaseCmd(new(installer.Node).Reset(), noArgs, func() phaseRun { return new(resetPhase) })
	phases.Short, phases.Long = "Run one phase of reset", "Run one phase of reset alone, without asking."
	phases.Example = "  ./install reset phase remove-etcd-member"
	cmd.AddCommand(phases)
	return cmd
}

func (in *resetFlags) bind(f *pflag.FlagSet) {
	r := &in.reset
	f.SortFlags = false
	f.BoolVarP(&r.Force, "force", "f", false, "do not ask, and do not refuse what costs the other control planes their etcd")
	f.StringVar(&in.configFile, "config", "", "kubeadm's configuration file with a ResetConfiguration; - is standard input")
	f.StringVar(&r.CertificatesDir, "cert-dir", config.CertificatesDir, "the folder of certificates to empty")
	f.BoolVar(&r.CleanupTmpDir, "cleanup-tmp-dir", false, "also empty /etc/kubernetes/tmp, where kubeadm keeps backups")
	f.StringVar(&r.CRISocket, "cri-socket", "", "the container runtime's socket (default unix://"+config.ContainerdSocket+")")
	f.StringVar(&in.kubeconfig, "kubeconfig", adminConf, "how to reach the cluster, where this host's etcd does not answer")
	f.StringSliceVar(&r.IgnorePreflightErrors, "ignore-preflight-errors", nil, "accepted as by kubeadm; its one check here, IsPrivilegedUser, cannot be passed over")
	f.BoolVar(&r.DryRun, "dry-run", false, "say what would be done, and change nothing")
}

// open asks for confirmation and opens the host. The caller calls done at the
// end.
func (in *resetFlags) open(cmd *cobra.Command, ask bool) (n *installer.Node, done func(), err error) {
	if err := readConfig(cmd, in.configFile, &in.reset, config.ReadReset); err != nil {
		return nil, nil, err
	}
	in.reset.Complete()
	if err := in.reset.ValidateReset(); err != nil {
		return nil, nil, err
	}
	if ask && !in.reset.Force && !in.reset.DryRun {
		if err := confirm(cmd); err != nil {
			return nil, nil, err
		}
	}
	h, unlock, err := openHost()
	if err != nil {
		return nil, nil, err
	}
	n = &installer.Node{Config: &config.Config{Timeouts: in.reset.Timeouts}, Host: h, Console: console(cmd), Resetting: in.reset, Kubeconfig: in.kubeconfig}
	return n, unlock, nil
}

// resetPhase is one run of one of reset's phases.
type resetPhase struct{ resetFlags }

func (p *resetPhase) bind(f *pflag.FlagSet, _ string) { p.resetFlags.bind(f) }

func (p *resetPhase) run(cmd *cobra.Command, name string, _ []string) error {
	n, done, err := p.open(cmd, false)
	if err != nil {
		return err
	}
	defer done()
	if n.Resetting.DryRun {
		return n.DryRunResetPhase(name)
	}
	return installer.RunPhase(cmd.Context(), n.Console, n.Reset(), name)
}

// confirm asks whoever runs reset: at the terminal, or with an answer that is
// piped in ('yes | install reset').
func confirm(cmd *cobra.Command) error {
	fmt.Fprint(cmd.OutOrStdout(), "This removes the Kubernetes node on this host, and on the last control plane the cluster's data. Go on? [y/N] ")
	answer, err := readLine(cmd.Context(), cmd.InOrStdin())
	if ctx := cmd.Context(); ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, syscall.EIO) { // a terminal that is gone
		return fault.New(fault.Interrupted, "nothing was changed", "interrupted: the terminal is gone")
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		fmt.Fprintln(cmd.OutOrStdout()) // nobody has pressed return
	}
	if errors.Is(err, io.EOF) && answer == "" {
		return fault.New(fault.Usage, "answer it, or run it with --force", "reset asks before it removes this node, and nobody answers")
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return fault.New(fault.Failure, "", "not confirmed: nothing was changed")
	}
	return nil
}

// readLine reads a line, or ends with the context.
func readLine(ctx context.Context, r io.Reader) (string, error) {
	type answer struct {
		line string
		err  error
	}
	given := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		given <- answer{line, err}
	}()
	select {
	case a := <-given:
		return a.line, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

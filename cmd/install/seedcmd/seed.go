// Package seedcmd has the commands of a host that becomes a node from a seed.
package seedcmd

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/output"
	"airlift/installer/host"
	"airlift/installer/multihost/agent/boot"
	"airlift/installer/multihost/seed"
	"airlift/internal/fault"
)

// New returns the command seed. open opens this host for changes.
func New(open func() (*host.Host, func(), error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "seed",
		Short: "Make this host a node from a drive, without SSH",
		Long: `Make this host a node from a drive, without SSH: 'bundle seed' writes the drive, and user data that starts
'seed run' at the first boot. See './install docs seed'.`,
	}
	h := func(cmd *cobra.Command) *boot.Host {
		out := output.Verbatim(cmd.OutOrStdout())
		b := boot.New("/", out, open)
		b.Run = boot.RunCopy(out)
		return b
	}
	cmd.AddCommand(newRun(h), newStatus(), newEnd(h))
	return cmd
}

func newRun(this func(*cobra.Command) *boot.Host) *cobra.Command {
	key, dryRun := "", false
	cmd := &cobra.Command{
		Use:   "run [DIRECTORY]",
		Short: "Find this host in the seed, and run its init or join",
		Long: `Find this host in the seed by serial number, MAC address or label, and run what './install cluster apply' would
run on it. DIRECTORY is where the drive is mounted; without it, an earlier run continues. The unit ` + seed.Unit + `
runs this command at boot.

The signature of the seed must be by the key in ` + seed.KeyFile + `. A host that is in no row, a wrong signature, an expired seed,
and a host that is a node already or has another installation change nothing. An interrupted run continues: the host
keeps a copy of the drive in ` + seed.CopyDir + ` until it is done or the seed expires. The first control plane runs until all hosts are done; then it
deletes the token and the certificates from the cluster.`,
		Example: "  ./install seed run /mnt\n  ./install seed run /mnt --dry-run",
		Args:    output.AtMostOneArg("directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b := this(cmd)
			b.Key = key
			if len(args) == 1 {
				b.Drive = args[0]
			}
			if !dryRun {
				return b.Start(cmd.Context())
			}
			p, err := b.DryRun(cmd.Context())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "cluster  %s\nhost     %s\nrole     %s\n", p.Cluster, p.Host, p.Role)
			if p.Over != "" {
				fmt.Fprintf(out, "nothing to do: %s\n", p.Over)
				return nil
			}
			fmt.Fprintf(out, "match    %s\n", p.Match)
			for _, step := range p.Steps {
				fmt.Fprintf(out, "step     %s\n", step)
			}
			return nil
		},
	}
	f := cmd.Flags()
	bindKey(f, &key)
	f.BoolVar(&dryRun, "dry-run", false, "only print the row of this host and its commands")
	return cmd
}

func newStatus() *cobra.Command {
	return output.Show(&cobra.Command{
		Use:   "status",
		Short: "Show how far the hosts of the seed are",
		Long: `Show how far this host is. On a control plane, also show all hosts of the seed: what each one reports, and
whether its node is Ready. A report is what a host with the token claims about itself.`,
		Example: "  ./install seed status\n  ./install seed status -o json",
	}, func(cmd *cobra.Command, _ []string) (*boot.Status, error) {
		s, err := boot.ReadStatus(cmd.Context(), "/")
		if err == nil && s == nil {
			err = fault.New(fault.Failure, "this host has taken no seed").Hint("see why: journalctl -u " + seed.Unit)
		}
		return s, err
	}, func(s *boot.Status, out io.Writer) error {
		fmt.Fprintf(out, "cluster  %s\nhost     %s (%s)\nstate    %s\nexpires  %s\n", s.Cluster, s.Host, s.Role, s.State, s.Expires.UTC().Format("2006-01-02 15:04 UTC"))
		if s.Reason != "" {
			fmt.Fprintf(out, "reason   %s\n", s.Reason)
		}
		if s.Unknown != "" {
			fmt.Fprintf(out, "the other hosts are not known: %s\n", s.Unknown)
		}
		if len(s.Rows) == 0 {
			return nil
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "\nHOST\tROLE\tREPORTS\tNODE\tMESSAGE")
		for _, r := range s.Rows {
			node := r.Node
			if node == "" {
				node = "none"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Name, r.Role, r.State, node, r.Message)
		}
		return w.Flush()
	})
}

func newEnd(this func(*cobra.Command) *boot.Host) *cobra.Command {
	key := ""
	cmd := &cobra.Command{
		Use:   "end",
		Short: "Stop the seed on this host, and remove its copy of the drive",
		Long: `Stop and disable ` + seed.Unit + ` on this host, also during a command, and remove its copy of the drive. On the first control plane,
also delete the token, the certificates and the permission to report from the cluster: the other hosts then cannot
join any more. A node stays a node.`,
		Example: "  ./install seed end",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := this(cmd)
			b.Key = key
			if err := b.End(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "The seed has ended on this host.")
			return nil
		},
	}
	bindKey(cmd.Flags(), &key)
	return cmd
}

// bindKey adds the flag for hosts whose first boot put the key elsewhere.
func bindKey(f *pflag.FlagSet, key *string) {
	f.StringVar(key, "key", seed.KeyFile, "the `FILE` with the public key that must have signed the seed")
	_ = f.MarkHidden("key") // fails only if the flag does not exist
}

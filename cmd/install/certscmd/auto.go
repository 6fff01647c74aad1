package certscmd

import (
	"github.com/spf13/cobra"

	"airlift/installer/flow/certs"
	"airlift/installer/host"
	"airlift/installer/node"
)

func newAuto() *cobra.Command {
	off, zone := false, ""
	cmd := &cobra.Command{
		Use:   "auto",
		Short: "Renew certificates every night when less than a third of their validity period is left",
		Long: `Renew certificates every night when less than a third of their validity period
is left, and restart the components that use them.

A systemd timer on this host runs 'certs renew all --due --restart'. Run this command on
each control plane. Each control plane starts at a different time between midnight and
six o'clock, and waits while another one restarts its components: a Lease in kube-system
names that one. The timer runs ` + host.CommandPath + `.

To see when it runs and what it did:

    systemctl list-timers ` + certs.Timer.Name + `.timer
    journalctl -u ` + certs.Timer.Name + `.service

'./install reset' removes the timer too.`,
		Example: "  ./install certs auto\n  ./install certs auto --off",
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, unlock, err := node.OpenToChange("/")
			if err != nil {
				return err
			}
			defer unlock()
			if off {
				return certs.RemoveTimer(cmd.Context(), h, cmd.OutOrStdout())
			}
			return certs.StartTimer(cmd.Context(), h, zone, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "remove the timer")
	cmd.Flags().StringVar(&zone, "time-zone", "", "the time zone of midnight, such as Europe/Berlin (default: the host's)")
	return cmd
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
)

// certsTimer renews certificates that are due. It runs every night; the delay spreads control
// planes over six hours.
var certsTimer = host.Timer{
	Name:     "airlift-certs-renew",
	About:    "Renew the certificates of this control plane that are due",
	Schedule: "OnCalendar=*-*-* 00:00:00\nRandomizedDelaySec=6h\nFixedRandomDelay=true\nPersistent=true",
	Command:  "certs renew all --due --restart",
}

func newCertsAutoCmd() *cobra.Command {
	off := false
	cmd := &cobra.Command{
		Use:   "auto",
		Short: "Renew certificates every night when less than a third of their validity period is left",
		Long: `Renew certificates every night when less than a third of their validity period
is left, and restart the components that use them.

A systemd timer on this host runs 'certs renew all --due --restart'. Run this command on
each control plane. Each control plane starts at a different time between midnight and
six o'clock, and waits while another one restarts its components: a Lease in kube-system
names that one. The timer uses a copy of this installer in ` + host.StubPath + `,
which an upgrade replaces.

To see when it runs and what it did:

    systemctl list-timers ` + certsTimer.Name + `.timer
    journalctl -u ` + certsTimer.Name + `.service

'./install reset' removes the timer too.`,
		Example: "  ./install certs auto\n  ./install certs auto --off",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, unlock, err := host.OpenLocked("/")
			if err != nil {
				return err
			}
			defer unlock()
			if off {
				if err := h.RemoveTimer(cmd.Context(), certsTimer); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s.timer removed: certificates are not renewed automatically\n", certsTimer.Name)
				return nil
			}
			if _, err := os.Stat(config.ManifestsDir + "/kube-apiserver.yaml"); errors.Is(err, fs.ErrNotExist) {
				return fault.New(fault.Failure, "this host is not a control plane: %s/kube-apiserver.yaml does not exist", config.ManifestsDir).Hint("run it on each control plane; kubelets renew their own certificates")
			}
			if !h.Records().Used() {
				return fault.New(fault.Failure, "Airlift did not install this control plane, so reset could not remove the timer").Hint("run './install certs renew all --due --restart' from your own timer")
			}
			changed, err := h.EnsureTimer(cmd.Context(), certsTimer)
			if err != nil {
				return err
			}
			done := "is already active"
			if changed {
				done = "started"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s.timer %s: it renews certificates when less than a third of their validity period is left\n", certsTimer.Name, done)
			return nil
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "remove the timer")
	return cmd
}

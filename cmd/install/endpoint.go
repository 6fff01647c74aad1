package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/daemon"
	"airlift/installer/endpoint/balancer"
	"airlift/installer/endpoint/service"
	"airlift/installer/endpoint/vip"
	"airlift/internal/fault"
)

func newEndpointCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "endpoint",
		Short: "Change how the API is reached, show it, and move the virtual address",
	}
	cmd.AddCommand(newEndpointApplyCmd(), newEndpointNodeCmd(), newEndpointUndoCmd(), newEndpointStatusCmd(), newEndpointHandoverCmd(), newEndpointServeCmd())
	return cmd
}

func newEndpointStatusCmd() *cobra.Command {
	return output.Show(&cobra.Command{
		Use:   "status",
		Short: "Show how this host reaches the API servers, and who has the virtual address",
		Long: `Show what the endpoint's service of this host does: whether this control plane has the
virtual address, since when and why, and which API servers the balancer uses. It works
while no API server answers.`,
		Example: "  ./install endpoint status\n  ./install endpoint status -o json",
	}, func(cmd *cobra.Command, _ []string) (*service.State, error) {
		state, err := service.Query(cmd.Context())
		if err == nil && state == nil {
			err = fault.New(fault.Failure, "no endpoint service runs on this host").
				Hint("on a cluster with --control-plane-vip or --control-plane-balancer, see: systemctl status airlift-endpoint.service")
		}
		return state, err
	}, writeEndpoint)
}

func writeEndpoint(s *service.State, w io.Writer) error {
	if s.VIP != nil {
		writeVIP(w, s.VIP)
	}
	if s.Balancer != nil {
		writeBalancer(w, s.Balancer)
	}
	return nil
}

func writeVIP(w io.Writer, s *vip.Status) {
	var addresses []string
	for _, a := range s.Addresses {
		addresses = append(addresses, a.String())
	}
	now := time.Now()
	fmt.Fprintf(w, "virtual address  %s: %s", strings.Join(addresses, ", "), s.Where(now))
	if holders := s.Lasting(now); len(holders) > 0 {
		fmt.Fprintf(w, ", since %s", holders[len(holders)-1].Since.Format(time.DateTime))
	}
	fmt.Fprintf(w, "\n                 %s\n", s.Reason)
	if s.APIServer != "" {
		fmt.Fprintf(w, "                 this API server is not ready: %s\n", s.APIServer)
	}
	if c := s.Conflict; c != nil {
		fmt.Fprintf(w, "                 CONFLICT: another host, %s, announced %s at %s\n", c.MAC, c.Address, c.Time.Format(time.DateTime))
	}
}

func writeBalancer(w io.Writer, s *balancer.Status) {
	for _, l := range s.Listen {
		fmt.Fprintf(w, "balancer         %s, API servers from the %s\n", l, s.Source)
	}
	for _, b := range s.Backends {
		fmt.Fprintf(w, "                 %-21s %-8s since %s, %d connections", b.Address, b.State, b.Since.Format(time.DateTime), b.Connections)
		if b.Error != "" {
			fmt.Fprintf(w, ": %s", b.Error)
		}
		fmt.Fprintln(w)
	}
}

func newEndpointHandoverCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "handover",
		Short: "Give the virtual address to another control plane, before work on this host",
		Long: `Give the virtual address to another control plane, before work on this host. etcd's
leadership moves with it. Without another ready control plane, nothing changes.
'upgrade' and 'reset' do this themselves.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := service.Query(cmd.Context())
			if err != nil {
				return err
			}
			if state == nil || state.VIP == nil {
				return fault.New(fault.Failure, "this host has no part in a virtual address").Hint("run it on a control plane of a cluster with --control-plane-vip")
			}
			if !state.VIP.Held {
				fmt.Fprintln(cmd.OutOrStdout(), "This host does not have the virtual address. Nothing was changed.")
				return nil
			}
			if err := service.Handover(cmd.Context()); err != nil {
				return err
			}
			after, err := service.Query(cmd.Context())
			if err != nil {
				return err
			}
			if after != nil && after.VIP != nil && after.VIP.Held {
				return fault.New(fault.Failure, "no other control plane has a ready API server: the address stays here").Hint("on the other control planes, see: ./install endpoint status")
			}
			fmt.Fprintln(cmd.OutOrStdout(), "Another control plane has the virtual address.")
			return nil
		},
	}
}

// newEndpointServeCmd returns the command of airlift-endpoint.service.
func newEndpointServeCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "serve",
		Short:  "Run the balancer and the virtual address of this host",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return service.Run(cmd.Context(), daemon.Log(cmd.ErrOrStderr()))
		},
	}
}

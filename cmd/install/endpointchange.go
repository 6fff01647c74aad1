package main

import (
	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/installer/flow/endpointchange"
	"airlift/installer/host"
	"airlift/installer/workflow"
)

func newEndpointApplyCmd() *cobra.Command {
	options := endpointchange.Options{Verb: endpointchange.Apply}
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Give the running cluster a virtual address, a balancer or another control-plane endpoint",
		Long: `Give the running cluster a virtual address, a balancer on each node, or a control-plane
endpoint of your own. Then it can have more than one control plane. Run it on a control
plane, and then './install endpoint node' on each node that it names.

On this control plane it adds the names to the API server's certificate, which is read
without a restart, starts the address and the balancer, and stores the endpoint in
kubeadm-config. When all control planes serve the endpoint, it lets the kubelet,
admin.conf and cluster-info use it, and when all nodes follow, kube-proxy and flannel.
The former address of the API works as before.

It is safe to run it again: it finishes what an interrupted run left.`,
		Example: "  ./install endpoint apply --control-plane-vip 10.1.2.100 --control-plane-balancer\n" +
			"  ./install endpoint apply --control-plane-endpoint k8s.site.example:6443\n" +
			"  ./install endpoint apply --control-plane-vip 10.1.2.100 --dry-run",
	}
	bindEndpointChange(cmd, &options)
	f := cmd.Flags()
	f.StringSliceVar(&options.VIPs, "control-plane-vip", nil, "a free `ADDRESS` in the subnet of the control planes, at which a healthy one answers; with a comma, one of each family")
	f.BoolVar(&options.Balancer, "control-plane-balancer", false, "run a balancer on each node, through which its own processes reach all API servers")
	f.StringVar(&options.ControlPlaneEndpoint, "control-plane-endpoint", "", "a stable `ADDRESS` or DNS name for the whole control plane, with or without a port (default: the cluster's, else the first --control-plane-vip, else the balancer)")
	return cmd
}

func newEndpointNodeCmd() *cobra.Command {
	options := endpointchange.Options{Verb: endpointchange.Follow}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Let this node follow the last 'endpoint apply' or 'endpoint undo'",
		Long: `Let this node, a control plane or a worker, follow the last 'endpoint apply' or 'endpoint
undo'. It starts or stops the balancer, and lets the kubelet use the endpoint. The kubelet
restarts; pods keep running. Control planes come first, as the commands say. Where 'init'
made the endpoint, it repairs what is missing on this node.

It is safe to run it again: it finishes what an interrupted run left.`,
		Example: "  ./install endpoint node",
	}
	bindEndpointChange(cmd, &options)
	return cmd
}

func newEndpointUndoCmd() *cobra.Command {
	options := endpointchange.Options{Verb: endpointchange.Undo}
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Undo the last 'endpoint apply'",
		Long: `Undo the last 'endpoint apply', on a control plane. Then run './install endpoint node' on
each node that it names, and at the end here: this removes the address, the balancer and
their names in the certificate. A cluster with several control planes keeps an endpoint.

It is safe to run it again: it finishes what an interrupted run left.`,
		Example: "  ./install endpoint undo\n  ./install endpoint undo --dry-run",
	}
	bindEndpointChange(cmd, &options)
	return cmd
}

// bindEndpointChange adds what the commands that change the endpoint have in common.
func bindEndpointChange(cmd *cobra.Command, options *endpointchange.Options) {
	dryRun := false
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return shared.Change(cmd, nodecmd.How{DryRun: dryRun}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
			return endpointchange.New(cmd.Context(), *options, h, c)
		})
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&options.IgnorePreflightErrors, "ignore-preflight-errors", nil, "checks whose errors become warnings: ControlPlaneVIP, ControlPlaneEndpoint, Port-7443; 'all' ignores all")
	f.BoolVar(&dryRun, "dry-run", false, "only print what would be done")
}

package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"airlift/cmd/output"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/flow/site"
	"airlift/installer/host"
	"airlift/installer/status"
	"airlift/internal/fault"
)

func newStatusCmd() *cobra.Command {
	formats, kubeconfig := &output.Flags{}, ""
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of this node",
		Long: `Show the state of this node on one screen: the node, its components, versions,
certificates, etcd, the virtual address and the balancer, images, add-ons, what was edited
by hand, the site's manifests, the last backup and the last command that changed this
host. Then it lists what is wrong, and what to type.

It changes nothing, and also works on a worker, on a host that is not a node, and while
the API server or containerd is down: then it shows what the host knows. What cannot be
read is "unknown", with the reason. It takes less than 5 seconds.

Exit codes: 0 nothing is wrong, perhaps with warnings; 1 something is wrong, or this host
is not a node.`,
		Example: "  ./install status\n  ./install status -o json\n  ./install status -o jsonpath='{.problems[*].message}'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			r, done := openStatus(cmd, kubeconfig)
			defer done()
			s, err := r.Read(cmd.Context())
			if err != nil {
				return err
			}
			if show != nil {
				err = show(cmd.OutOrStdout(), s)
			} else {
				s.Write(cmd.OutOrStdout(), textWidth(cmd))
			}
			if err == nil && !s.Healthy {
				err = fault.New(fault.Failure, "%d problem(s) on this host", len(s.Problems)).Hint("for a remote engineer: ./install doctor")
			}
			return err
		},
	}
	formats.Bind(cmd.Flags())
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of the cluster (default: "+adminConf+" on a control plane, the kubelet's on a worker)")
	return cmd
}

// openStatus opens what the status is read from. It also works with a damaged ledger, and for
// an installer without a bundle.
func openStatus(cmd *cobra.Command, kubeconfig string) (r *status.Reader, done func()) {
	h, damaged := host.Open("/")
	if damaged != nil {
		h = host.OpenDamaged("/")
		if errors.Is(damaged, fs.ErrPermission) {
			damaged = fault.Wrap(damaged, fault.Failure, "run it with sudo or as root")
		}
	}
	r = &status.Reader{Host: h, Ledger: damaged, Kubeconfig: kubeconfig, Contents: status.Contents{Airlift: version}}
	b, done, err := shared.Payload()
	if err != nil {
		output.Warner(cmd)("images and manifests are not compared with a bundle file: %v", err)
		return r, func() {}
	}
	r.Contents = site.Contents(b, version)
	r.Contents.Drift = func(ctx context.Context, kubeconfig string) ([]status.Drift, error) {
		return reconfigure.ReadDrift(ctx, b, kubeconfig, h)
	}
	return r, done
}

// textWidth is the width of the terminal, at least 80 columns; 0 for a pipe or a file, whose
// lines are not wrapped.
func textWidth(cmd *cobra.Command) int {
	f, ok := cmd.OutOrStdout().(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 80
	}
	return max(80, width)
}

// Package adoptcmd has the commands that take over nodes of other tools, and end that.
package adoptcmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/adoption"
	"airlift/installer/config"
	"airlift/installer/flow/adopt"
	"airlift/installer/host"
	"airlift/installer/workflow"
)

// New returns the command adopt.
func New(e nodecmd.Environment) *cobra.Command {
	formats, dryRun, kubeconfig := &output.Flags{}, false, ""
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Take over this node, which another tool made",
		Long: `Take over this node, which another tool made, so that Airlift can upgrade it: ` + strings.Join(adoption.Makers(), ", ") + `.
Run it on each node, control planes first, as root. The API must answer.

It recognises what made the node and how, and lists what differs from a node of Airlift's,
with what an upgrade does about it. Then it writes Airlift's ledger, which lists what
Airlift may change from now on, and installs the command airlift. It changes no other file,
and restarts nothing. What cannot be taken over is refused before that, with all reasons at
once.

After that, the commands work as on a node that Airlift installed: upgrade, upgrade undo,
certs, etcd, import, status, endpoint, registry, cluster. The container runtime and the pod
network stay as they are. 'reset' takes back what Airlift changed, and leaves the node as it
was adopted; 'disown' ends the adoption.

On an adopted node, it reports that there is nothing to do.

Exit codes: 0 the node is adopted, or could be (--dry-run); 1 failure; 2 usage error; 3 the
node cannot be adopted; 4 this file is damaged.`,
		Example: "  ./install adopt --dry-run\n  ./install adopt\n  ./install adopt --dry-run -o json",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			options := adopt.Options{}
			if options.Kubeconfig, err = config.Absolute("--kubeconfig", kubeconfig); err != nil {
				return err
			}
			if options.Target, err = version(e, cmd); err != nil {
				return err
			}
			h, unlock, err := e.Host()
			if err != nil {
				return err
			}
			defer unlock()
			c := e.Console(cmd)
			if show != nil {
				c = &workflow.Console{Out: io.Discard}
			}
			run := adopt.New(options, h, c)
			do := run.Run
			if dryRun {
				do = run.DryRun
			}
			result, err := do(cmd.Context())
			if result == nil {
				return err
			}
			if show != nil {
				if failed := show(cmd.OutOrStdout(), result); failed != nil {
					return failed
				}
			} else if err != nil { // what was found before the refusals
				fmt.Fprintln(cmd.OutOrStdout(), result.Text())
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&dryRun, "dry-run", false, "only print what was found")
	f.StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of the cluster (default: "+config.KubernetesDir+"/admin.conf on a control plane, else the kubelet's)")
	formats.Bind(f)
	return cmd
}

// version returns the version of Kubernetes in this file.
func version(e nodecmd.Environment, cmd *cobra.Command) (string, error) {
	b, done, err := e.Payload()
	if err != nil {
		return "", err
	}
	defer done()
	if err := b.NeedsKubernetes(cmd.CommandPath()); err != nil {
		return "", err
	}
	return b.KubernetesVersion(), nil
}

// NewDisown returns the command disown.
func NewDisown(e nodecmd.Environment) *cobra.Command {
	yes, dryRun := false, false
	cmd := &cobra.Command{
		Use:   "disown",
		Short: "End the adoption of this node, and leave what runs",
		Long: `End the adoption of this node: remove Airlift's timers, the command airlift, and the
ledger with the files that 'reset' and 'upgrade undo' would restore. What runs stays as it
is: binaries, units, static pods, configuration, certificates and images, also those that
an upgrade replaced. To restore these first: ./install upgrade undo, and ./install reset.

It refuses while an upgrade or a rotation of the CAs is not finished, and while Airlift's
endpoint or embedded registry serves this node.

It shows what is removed and what stays, and asks for confirmation. It is safe to run it
again: it finishes what an interrupted run left.

Exit codes: 0 the node is not adopted any more; 1 failure, or not confirmed; 2 usage error;
3 refused.`,
		Example: "  ./install disown\n  ./install disown --dry-run\n  ./install disown --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, unlock, err := host.OpenLocked("/") // it finishes an interrupted disown
			if err != nil {
				return err
			}
			defer unlock()
			if err := adopt.CheckDisown(h); err != nil {
				return err
			}
			if !h.Records().Manages() {
				fmt.Fprintln(cmd.OutOrStdout(), "Airlift manages no node on this host. There is nothing to do.")
				return nil
			}
			text, err := adopt.DescribeDisown(h)
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), text)
			if dryRun {
				return nil
			}
			if !yes {
				if err := e.Confirm(cmd, "This ends the adoption of this node. Continue?", "answer with y, or run it with --yes"); err != nil {
					return err
				}
			}
			return e.Recorded(cmd, h, "", func() error { return adopt.Disown(cmd.Context(), h, e.Console(cmd)) })
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&dryRun, "dry-run", false, "only print what would be removed")
	return cmd
}

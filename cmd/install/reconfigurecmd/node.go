package reconfigurecmd

import (
	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/cluster"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

func newNode(e nodecmd.Environment) *cobra.Command {
	in := &flags{env: e, options: reconfigure.Options{Node: true}}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Let this node follow the configuration that the cluster stores",
		Long: `Let this node, a control plane or a worker, follow the configuration that the cluster
stores, after 'reconfigure' on a control plane, or after an edit of ConfigMap
kube-system/kubeadm-config. Run it on one node after the other, control planes first. A
control plane gets the files of 'reconfigure --file', too.

With --config, it reads an InitConfiguration: its nodeRegistration has the arguments of this
node's kubelet and its taints.

If a component does not become healthy, all changes of this node are undone. It is safe to
run it again: it finishes what an interrupted run left, and changes nothing else.

Exit codes: of --plan, 0 this is the plan, 3 a check failed; with --detailed-exitcode, 5
there is something to do.`,
		Example: "  ./install reconfigure node\n  ./install reconfigure node --plan\n  ./install reconfigure node --restore",
		RunE:    func(cmd *cobra.Command, _ []string) error { return in.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&in.configFile, "config", "", "a `FILE` with an InitConfiguration for this node; - is standard input")
	in.bind(f)
	return cmd
}

func newUndo(e nodecmd.Environment) *cobra.Command {
	yes, kubeconfig, ignored := false, "", []string(nil)
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Undo the last change of the configuration on this node",
		Long: `Restore the manifests, files, certificates and configuration that the last 'reconfigure' or
'reconfigure node' replaced on this node. After 'reconfigure', the stored configuration and
the add-ons are restored, too: then run './install reconfigure node' on the other nodes.

What it restores is kept in ` + host.ReconfigureDir + ` until the next change, or until an
upgrade to another version. It is refused if the cluster was changed again since.

On a worker whose taints were changed, it needs the kubeconfig of an administrator.`,
		Example: "  ./install reconfigure undo\n  ./install reconfigure undo --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.Change(cmd, nodecmd.How{AskHint: nodecmd.Unless(yes, "answer with y, or run it with --yes")}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
				run, err := revision.NewUndo(revision.Reconfigure, h, c)
				if err == nil {
					run.Kubeconfig, run.IgnorePreflightErrors = kubeconfig, ignored
				}
				return run, err
			})
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of the cluster (default: /etc/kubernetes/admin.conf on a control plane, else the kubelet's)")
	cmd.Flags().StringSliceVar(&ignored, "ignore-preflight-errors", nil, "checks whose errors become warnings: ContainerdFiles; 'all' ignores all")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func newPrint(nodecmd.Environment) *cobra.Command {
	kubeconfig := ""
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the documents that the cluster stores, for 'reconfigure --config'",
		Long: `Print the ClusterConfiguration that the cluster stores, and the KubeletConfiguration and the
KubeProxyConfiguration, unless they have only defaults. The result is a file for 'reconfigure
--config': without an edit, it changes nothing.`,
		Example: "  ./install reconfigure print > kubeadm.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := host.Open("/")
			if err != nil {
				return err
			}
			client, err := node.AdminClient(cmd.Context(), h, kubeconfig)
			if err != nil {
				return err
			}
			text, err := cluster.StoredDocuments(cmd.Context(), client.API)
			if err != nil {
				return fault.Wrap(err, fault.Failure, fault.Hint(err))
			}
			_, err = output.Verbatim(cmd.OutOrStdout()).Write(text)
			return err
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", node.AdminConf, "the kubeconfig `FILE` of an administrator")
	return cmd
}

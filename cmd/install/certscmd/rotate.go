package certscmd

import (
	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/rotate"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/workflow"
)

const rotateCALong = `Replace the CAs of the cluster, of the front proxy and of etcd with new ones, while the
cluster runs. There are three stages. Run each stage on all nodes, control planes first,
before you start the next one:

  distribute  all nodes trust the old and the new CAs
  issue       the new CAs sign all certificates
  finish      all nodes trust only the new CAs

A stage fails, and lists the nodes, if some nodes have not completed the previous one. Run
an interrupted command again to finish it. Until the first node starts the stage issue, run
'cancel' on all nodes to keep the old CAs.

Each stage restarts the kubelet and, one by one, the components of a control plane. Pods keep
running, but the pods of the add-ons are restarted, because they read the CA when they start.

The CAs' keys must be on the control planes. The key of service account tokens is not
replaced. Make a backup first: ./install etcd snapshot.

A rotation alone does not answer the theft of a key. Until all nodes have reached the stage
finish, the old CAs are trusted: a thief who reaches an API server is an administrator. See
"If a key was stolen" in ./install docs certificates.`

func newRotateCA(e nodecmd.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Replace the cluster's CAs, in three stages on all nodes",
		Long:  rotateCALong,
	}
	cmd.AddCommand(
		newRotationStage(e, rotate.Distribute, "Let this node trust the old and the new CAs", `Let this node trust the old and the new CAs. On the first control plane it also creates
the new CAs, and prints a key. The other control planes get the CAs through the cluster,
encrypted with that key: --certificate-key. A worker gets only certificates.`),
		newRotationStage(e, rotate.Issue, "Let the new CAs sign this node's certificates", `Let the new CAs sign this node's certificates, when all nodes trust them. The first control
plane restarts the pods of the add-ons first, because they would not trust its API server.
A worker requests its kubelet's certificate from the cluster.`),
		newRotationStage(e, rotate.Finish, "Let this node trust only the new CAs", `Let this node trust only the new CAs, when they have signed all certificates. On the last
node, it also removes the files and objects of the rotation. If that is a worker, run it on a
control plane once more. Kubeconfigs with a certificate of the old CA no longer work.`),
		newRotationStage(e, rotate.Cancel, "Let this node trust only the old CAs again", `Let this node trust only the old CAs again. This is possible until the first node starts
the stage issue. If the first 'distribute' was interrupted before the cluster knew of the
rotation, it removes the new CAs.`),
		newRotationStatus(),
	)
	return cmd
}

func newRotationStage(e nodecmd.Environment, stage, short, long string) *cobra.Command {
	options := rotate.Options{Stage: stage}
	cmd := &cobra.Command{
		Use:     stage,
		Short:   short,
		Long:    long + "\n\nIt is safe to run it again: it finishes what an interrupted run left.",
		Example: "  ./install certs rotate-ca " + stage,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runRotation(e, cmd, options) },
	}
	f := cmd.Flags()
	f.StringVar(&options.Kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of the cluster (default: "+node.AdminConf+" on a control plane, else the kubelet's)")
	f.StringVar(&options.CertificatesDir, "cert-dir", "", "the `DIRECTORY` of the certificates (default: the directory in the cluster's configuration)")
	if stage == rotate.Distribute {
		f.StringVar(&options.CertificateKey, "certificate-key", "", "on a control plane that is not the first: the `KEY` that the first one printed, 64 hexadecimal digits")
	}
	f.BoolVar(&options.RestartWorkloads, "restart-workloads", false, "where add-ons are restarted, also restart the Deployments, DaemonSets and StatefulSets of all namespaces")
	return cmd
}

func runRotation(e nodecmd.Environment, cmd *cobra.Command, options rotate.Options) error {
	var err error
	if options.CertificatesDir, err = config.Absolute("--cert-dir", options.CertificatesDir); err != nil {
		return err
	}
	if options.Kubeconfig, err = config.Absolute("--kubeconfig", options.Kubeconfig); err != nil {
		return err
	}
	return e.Change(cmd, nodecmd.How{}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
		return rotate.New(cmd.Context(), options, h, c)
	})
}

func newRotationStatus() *cobra.Command {
	kubeconfig := ""
	cmd := output.Show(&cobra.Command{
		Use:     "status",
		Short:   "Show the stage of each node, and what to run next",
		Long:    "Show which stage each node has reached, and what to run next. Run it on a control plane.",
		Example: "  ./install certs rotate-ca status\n  ./install certs rotate-ca status -o json",
	}, func(cmd *cobra.Command, _ []string) (*rotate.Status, error) {
		return rotate.ReadStatus(cmd.Context(), kubeconfig)
	}, (*rotate.Status).Write)
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", node.AdminConf, "the kubeconfig `FILE` of the cluster")
	return cmd
}

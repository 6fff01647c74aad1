package clustercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	archive "airlift/installer/backup"
	"airlift/installer/cluster"
	"airlift/installer/host/filesystem"
	"airlift/installer/multihost/run"
	"airlift/internal/fault"
)

func newKubeconfig(in *site) *cobra.Command {
	merge, name := false, ""
	cmd := &cobra.Command{
		Use:   "kubeconfig [FILE|-]",
		Short: "Use kubectl on this machine: merge or print the administrator's kubeconfig",
		Long: `Print the administrator's kubeconfig of a control plane, or write it to FILE, which must not
exist and gets the mode 0600. It is a secret: whoever has it can do everything in the cluster,
until it expires.

With --merge, it is added to the file that kubectl reads on this machine: ~/.kube/config, or
$KUBECONFIG. The context and the cluster have the name in cluster.yaml, or the one of --context.
Entries of other clusters stay, and so does the current context, if there is one. Merge again
after the certificate was renewed: a merge that changes nothing writes nothing.

A kubeconfig that has more than one cluster, or that names commands, files or a proxy, is
refused: kubectl would use them on this machine.
For other users, see 'kubeconfig user' on a control plane.`,
		Example: "  ./install cluster kubeconfig --merge\n  ./install cluster kubeconfig admin.conf\n  kubectl --kubeconfig admin.conf get nodes",
		Args:    output.AtMostOneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case merge && len(args) > 0:
				return fault.New(fault.Usage, "a FILE and --merge cannot be given together").Hint("give one of them; KUBECONFIG names the file to merge into")
			case !merge && name != "":
				return fault.New(fault.Usage, "--context has no effect without --merge").Hint("./install cluster kubeconfig --merge --context NAME")
			case len(args) == 0:
				args = []string{"-"}
			}
			return in.gathered(cmd, cmd.ErrOrStderr(), func(*opened) error { return checkNew(args[0]) }, func(ctx context.Context, s *opened) error {
				data, server, err := s.kubeconfig(ctx, cmd)
				if err != nil {
					return err
				}
				if merge {
					err = mergeKubeconfig(cmd, data, cmp.Or(name, s.Site.Cluster.Name), server)
				} else {
					err = writeKubeconfig(cmd, data, args[0])
				}
				if err == nil && (merge || args[0] != "-") {
					s.tellKubectl(cmd)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&merge, "merge", false, "add it to ~/.kube/config, or to $KUBECONFIG")
	cmd.Flags().StringVar(&name, "context", "", "with --merge: the `NAME` of the context and of the cluster (default: the cluster's name in cluster.yaml)")
	return cmd
}

// kubeconfig reads the administrator's kubeconfig. Server replaces a server in it that other machines do not reach; else it is "".
func (s *opened) kubeconfig(ctx context.Context, cmd *cobra.Command) (data []byte, server string, err error) {
	h, err := s.Site.Healthy()
	if s.Site.Display.Clear(); err != nil {
		return nil, "", err
	}
	if endpoint := h.Facts.Cluster.ControlPlaneEndpoint; isLoopback(endpoint) {
		server = serverOf(h)
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: the endpoint of the cluster is %s, the balancer of each node; elsewhere, kubectl needs a control plane: kubectl --server %s\n", endpoint, server)
	}
	if data, err = h.Output(ctx, "cat", "/etc/kubernetes/admin.conf"); err != nil {
		return nil, "", err
	}
	if err := cluster.CheckOne(data); err != nil {
		return nil, "", fault.New(fault.Failure, "%s: reading /etc/kubernetes/admin.conf: %w", h.Name, err).
			Hint("see it on that host: kubectl config view --kubeconfig /etc/kubernetes/admin.conf; create another one there: ./install kubeconfig user --client-name NAME")
	}
	return data, server, nil
}

// serverOf returns the API server of a control plane.
func serverOf(h *run.Host) string {
	if own := h.Facts.Node.APIServer; own != "" && !isLoopback(strings.TrimPrefix(own, "https://")) {
		return own
	}
	address := h.SSH.Address
	for _, n := range h.Facts.Cluster.Nodes {
		if n.Name == h.Name && len(n.Addresses) > 0 {
			address = n.Addresses[0]
		}
	}
	return "https://" + net.JoinHostPort(address, "6443")
}

func isLoopback(endpoint string) bool {
	address, err := netip.ParseAddrPort(endpoint)
	return err == nil && address.Addr().IsLoopback()
}

// mergeKubeconfig adds a kubeconfig to the file of kubectl.
func mergeKubeconfig(cmd *cobra.Command, data []byte, name, server string) error {
	file, changed, err := cluster.Merge(data, name, server)
	if err != nil {
		return err
	}
	state := "is now"
	if !changed {
		state = "already is"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "The context %s %s in %s, with the credentials of an administrator: keep the file safe.\nTo use it: kubectl --context %s get nodes\n",
		name, state, file, fault.Word(name))
	return nil
}

// tellKubectl says where kubectl is if this machine has none: there may be no network to fetch it from.
func (s *opened) tellKubectl(cmd *cobra.Command) {
	h, err := s.Site.Healthy()
	if _, found := exec.LookPath("kubectl"); err != nil || found == nil {
		return
	}
	fmt.Fprintf(cmd.OutOrStdout(), "This machine has no kubectl in its PATH. Each node has it: scp -P %d %s:/usr/local/bin/kubectl .\n",
		cmp.Or(h.SSH.Port, 22), fault.Word(h.SSH.User+"@"+h.SSH.Address))
}

// writeKubeconfig writes a kubeconfig to a new file, or to standard output if it is -.
func writeKubeconfig(cmd *cobra.Command, data []byte, file string) error {
	if file == "-" {
		_, err := output.Verbatim(cmd.OutOrStdout()).Write(data)
		return err
	}
	if err := writeNew(file, func(out io.Writer) error { _, err := out.Write(data); return err }); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is the kubeconfig of an administrator. Keep it safe.\nTo use it: kubectl --kubeconfig %s get nodes\n", file, fault.Word(file))
	return nil
}

func newBackup(in *site) *cobra.Command {
	keep := ""
	var recipients []string
	cmd := &cobra.Command{
		Use:   "backup [FILE]",
		Short: "Save a backup of the cluster, on this machine or on a control plane",
		Long: `Save a backup of the cluster, as 'etcd snapshot' does, from a control plane that is healthy to
this machine. FILE must not exist and gets the mode 0600; the default is
backup-CLUSTER-TIME.tar in the current directory. The control plane keeps nothing of it, also if
the connection is cut. With --on-host, the backup is saved on the control plane, at that path.

It has all secrets of the cluster: keep it safe, or encrypt it with --recipient.
'./install etcd restore' restores the cluster from it.`,
		Example: "  ./install cluster backup\n  ./install cluster backup site.tar.age --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\n  ./install cluster backup --on-host /mnt/backup/site.tar",
		Args:    output.AtMostOneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKept(keep, args); err != nil {
				return err
			}
			if _, _, err := archive.Recipients(recipients, nil); err != nil {
				return err
			}
			name := "-"
			return in.record().gathered(cmd, cmd.ErrOrStderr(), func(s *opened) error {
				if keep == "" {
					name = s.fileName(args, "backup", ".tar")
				}
				return checkNew(name)
			}, func(ctx context.Context, s *opened) error {
				h, err := s.Site.Healthy()
				if err == nil {
					err = s.Site.Each(ctx, "backup", []*run.Host{h}, func(ctx context.Context, h *run.Host) error { return backup(ctx, h, name, keep, recipients) })
				}
				if s.Site.Display.Stop(); err != nil {
					return err
				}
				if keep != "" {
					name = h.Name + ":" + keep
				}
				fmt.Fprintf(cmd.OutOrStdout(), "The backup is %s. It has all secrets of the cluster: keep it safe.\n", name)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&keep, "on-host", "", "save the backup on the control plane, at this `PATH`")
	cmd.Flags().StringArrayVar(&recipients, "recipient", nil, "encrypt the file with age to this public `KEY`, age1… (repeatable)")
	return cmd
}

// checkKept checks the path on the control plane, if there is one.
func checkKept(keep string, args []string) error {
	switch {
	case keep != "" && len(args) > 0:
		return fault.New(fault.Usage, "a FILE on this machine and --on-host cannot be given together").Hint("give one of them")
	case keep != "" && !strings.HasPrefix(keep, "/"):
		return fault.New(fault.Usage, "--on-host %q: it must be an absolute path on the control plane", keep).Hint("for example: ./install cluster backup --on-host /mnt/backup/site.tar")
	}
	return nil
}

// backup saves a backup at the path keep on a control plane, or else in a file on this machine. On the control plane, that is never a
// file, because a cut connection would leave all secrets of the cluster there.
func backup(ctx context.Context, h *run.Host, name, keep string, recipients []string) error {
	args := []string{"cluster", "host", "backup"}
	if keep != "" {
		args = []string{"etcd", "snapshot", keep}
	}
	for _, r := range recipients {
		args = append(args, "--recipient", r)
	}
	if keep != "" {
		return h.Install(ctx, args...)
	}
	return writeNew(name, func(out io.Writer) error {
		err := h.Document(ctx, out, args...)
		if fault.ExitCode(err) == fault.Usage {
			return fault.New(fault.Failure, "%s has an older installer, which cannot send a backup: %w", h.Name, err).
				Hint("save it on the control plane: ./install cluster backup --on-host PATH; or run first: ./install cluster apply")
		}
		return err
	})
}

// checkNew refuses a file that exists: it may be an older backup, or a kubeconfig with other clusters.
func checkNew(name string) error {
	if name == "-" {
		return nil
	}
	if _, err := os.Lstat(name); err == nil {
		return exists(name)
	}
	return checkOutput(name)
}

// checkOutput refuses a file that cannot be written.
func checkOutput(name string) error {
	if err := filesystem.CheckOutput(name); err != nil {
		return fault.Wrap(fmt.Errorf("writing %s: %w", name, err), fault.Usage, "choose a file in an existing directory")
	}
	return nil
}

func exists(name string) error {
	return fault.New(fault.Usage, "%s exists, and is not replaced", name).Hint("choose another name, or remove the file")
}

// writeNew writes a file that must not exist, with mode 0600. An error leaves none.
func writeNew(name string, write func(io.Writer) error) error {
	out, err := filesystem.CreateOutput(name)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	defer out.Discard()
	if err := write(out); err != nil {
		return err
	}
	err = out.CommitNew()
	if errors.Is(err, fs.ErrExist) {
		return exists(name)
	}
	return err
}

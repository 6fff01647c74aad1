package certscmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/flow/certs"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

func newRenew(e nodecmd.Environment) *cobra.Command {
	source, options := &certs.Source{}, certs.Options{}
	var list strings.Builder
	for _, name := range pki.RenewableNames() {
		fmt.Fprintf(&list, "\n  %-26s %s", name, pki.RenewableDoc(name))
	}
	cmd := &cobra.Command{
		Use:   "renew all|NAME...",
		Short: "Renew certificates, for the same validity period",
		Long: `Renew certificates, expired or not. Each gets a new key and keeps its subject,
names and usages. The rest of a kubeconfig does not change. CAs are not renewed: see
'certs rotate-ca'.

The kubelet renews its own client certificate. If it was offline until the certificate
expired, 'all' renews it on a control plane. A worker does not have the CA's key: remove
its kubelet.conf and join it again, with a new token ('./install token create').

Names of certificates:` + list.String() + `

The components of the control plane use the old certificates until they are
restarted. --restart restarts them one after the other, and waits until each is healthy:
the kubelet if its certificate was renewed, then etcd, the API server, the controller
manager and the scheduler. Without --restart, the command prints which must be restarted.

If the cluster has several control planes, --restart waits while another one restarts its
components. It renews nothing if etcd would have no quorum meanwhile, or if no other API
server is ready. If certificates have expired, run it on all control planes within a few
minutes: etcd is healthy only when most of its members are.`,
		Example:   "  ./install certs renew all --restart\n  ./install certs renew apiserver admin.conf",
		ValidArgs: append([]string{"all"}, pki.RenewableNames()...),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Usage, "certs renew requires 'all' or names of certificates").Hint("see '" + cmd.CommandPath() + " --help' for the names")
			}
			for _, name := range args {
				if name == "all" && len(args) == 1 {
					continue
				}
				if !slices.Contains(pki.RenewableNames(), name) {
					return fault.New(fault.Usage, "unknown certificate %q", name).Hint(fault.Choose(name, "the names are", append([]string{"all"}, pki.RenewableNames()...)))
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			source.Warn, options.Names = output.Warner(cmd), args
			if err := options.Validate(source); err != nil {
				return err
			}
			return certs.Renew(cmd.Context(), source, options, e.Console(cmd), func(h *host.Host, run func() error) error {
				return e.Recorded(cmd, h, "", run)
			})
		},
	}
	bind(cmd.Flags(), source)
	cmd.Flags().BoolVar(&options.Restart, "restart", false, "restart the components that use the renewed certificates, one after the other, and wait until each is healthy")
	cmd.Flags().BoolVar(&options.Due, "due", false, "with all: renew only certificates that have less than a third of their validity period left")
	return cmd
}

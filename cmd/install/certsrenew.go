package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
)

func newCertsRenewCmd() *cobra.Command {
	in := &certsFlags{}
	var list strings.Builder
	for _, name := range pki.RenewableNames() {
		fmt.Fprintf(&list, "\n  %-26s %s", name, pki.RenewableDoc(name))
	}
	cmd := &cobra.Command{
		Use:   "renew all|NAME...",
		Short: "Renew certificates, for the same validity period",
		Long: `Renew certificates, expired or not. Each gets a new key and keeps its subject,
names and usages. The rest of a kubeconfig does not change. CAs are not renewed.

The kubelet renews its own certificates. If a kubelet was offline until its client
certificate expired, run these commands on a control plane:

    rm /etc/kubernetes/kubelet.conf /var/lib/kubelet/pki/kubelet-client-current.pem
    ./install init phase kubeconfig kubelet
    systemctl restart kubelet

Names of certificates:` + list.String() + `

The components of the control plane use the old certificates until they are
restarted. The command prints which, and how to restart them. If the cluster has
several control planes, renew and restart one after the other.`,
		Example:   "  ./install certs renew all\n  ./install certs renew apiserver admin.conf",
		ValidArgs: append([]string{"all"}, pki.RenewableNames()...),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Usage, "see '"+cmd.CommandPath()+" --help' for the names", "certs renew requires 'all' or names of certificates")
			}
			for _, name := range args {
				if name == "all" && len(args) == 1 {
					continue
				}
				if !slices.Contains(pki.RenewableNames(), name) {
					return fault.New(fault.Usage, "known names: all, "+strings.Join(pki.RenewableNames(), ", "), "unknown certificate %q", name)
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return in.renew(cmd, args) },
	}
	in.bind(cmd.Flags())
	return cmd
}

// renew renews the named certificates. With "all", it skips certificates that
// do not exist or that only an external CA can sign, and prints a warning for
// each.
func (f *certsFlags) renew(cmd *cobra.Command, names []string) error {
	warn := warner(cmd)
	cfg, err := f.load(cmd.Context(), warn)
	if err != nil {
		return err
	}
	certs, _, err := pki.Expirations(cfg, f.root())
	if err != nil {
		return err
	}
	h, err := host.Open(f.rootfs)
	if err != nil {
		return err
	}
	if f.rootfs == "/" || h.Used() {
		var unlock func()
		if h, unlock, err = host.OpenLocked(f.rootfs); err != nil {
			return err
		}
		defer unlock()
	}
	if all := names[0] == "all"; all {
		names = nil
		for _, c := range certs {
			switch {
			case c.Missing:
				warn("%s does not exist: not renewed", c.File)
			case c.External:
				warn("%s is managed externally, because the key of the CA %q is not on this host: not renewed", c.File, c.CA)
			default:
				names = append(names, c.Name)
			}
		}
		if len(names) == 0 {
			return fault.New(fault.Failure, "set the right directory with --cert-dir, or copy the CA's key to it", "no certificate in this directory can be renewed")
		}
	}
	for _, name := range names {
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		made, err := pki.Renew(cfg, f.root(), time.Now(), name)
		if err != nil {
			return err
		}
		for _, file := range made.Files {
			if err := h.RenewFile(file.Path, file.Data, file.Mode); err != nil {
				return err
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s renewed: %s\n", name, made.Files[len(made.Files)-1].Path)
	}
	printRestart(cmd, names)
	return f.warnOfCAs(cfg, names, warn)
}

// warnOfCAs warns if a CA expires before a certificate that it has just signed.
// That certificate stops working with its CA, and renewing a CA takes more
// steps.
func (f *certsFlags) warnOfCAs(cfg *config.Config, names []string, warn warnFunc) error {
	certs, cas, err := pki.Expirations(cfg, f.root())
	if err != nil {
		return err
	}
	for _, ca := range cas {
		outlives := func(c pki.Expiration) bool {
			return c.CA == ca.Name && slices.Contains(names, c.Name) && c.NotAfter.After(ca.NotAfter)
		}
		if slices.ContainsFunc(certs, outlives) {
			warn("the CA %s expires on %s, before the certificates that it has just signed", ca.File, ca.NotAfter.Format(expirationLayout))
		}
	}
	return nil
}

// printRestart prints what the user must still do after a renewal.
func printRestart(cmd *cobra.Command, names []string) {
	out := cmd.OutOrStdout()
	if pods := pki.Restart(names...); len(pods) > 0 {
		fmt.Fprintf(out, `
These components use the old certificates until they are restarted: %s.
To restart them, move their files away and back, one after the other. The kubelet
stops and starts the static pods:

    cd %s && for pod in %s; do mv $pod.yaml .. && sleep 25 && mv ../$pod.yaml .; done
`, strings.Join(pods, ", "), config.ManifestsDir, strings.Join(pods, " "))
	}
	if slices.Contains(names, "admin.conf") || slices.Contains(names, "super-admin.conf") {
		fmt.Fprint(out, "\nCopies of the administrators' kubeconfigs, such as ~/.kube/config, are not renewed: copy them again.\n")
	}
}

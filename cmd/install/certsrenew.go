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
		Short: "Make certificates anew, for as long again",
		Long: `Make certificates anew, each with a new key, for the subject, names and usages
that it has now, whether it has expired or not. What a kubeconfig holds
otherwise stays as it is. CAs are not renewed, and neither is what the kubelet
renews itself. One that was off until its certificate ended gets a new one on a
control plane: remove /etc/kubernetes/kubelet.conf and
/var/lib/kubelet/pki/kubelet-client-current.pem, run 'install init phase
kubeconfig kubelet' and then 'systemctl restart kubelet'.

The names:` + list.String() + `

The control plane's programs go on with what they have read until they are
restarted: the command says which and how. On several control planes, renew and
restart one after the other.`,
		Example:   "  ./install certs renew all\n  ./install certs renew apiserver admin.conf",
		ValidArgs: append([]string{"all"}, pki.RenewableNames()...),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Usage, "see '"+cmd.CommandPath()+" --help' for the names", "certs renew needs 'all' or the names of certificates")
			}
			for _, name := range args {
				if name == "all" && len(args) == 1 {
					continue
				}
				if !slices.Contains(pki.RenewableNames(), name) {
					return fault.New(fault.Usage, "there are all, "+strings.Join(pki.RenewableNames(), ", "), "unknown certificate %q", name)
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
				warn("%s does not exist: left out", c.File)
			case c.External:
				warn("%s is managed externally, the key of the CA %q is not on this host: left out", c.File, c.CA)
			default:
				names = append(names, c.Name)
			}
		}
		if len(names) == 0 {
			return fault.New(fault.Failure, "give the right directory with --cert-dir, or provide the CA's key", "no certificate here can be renewed")
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
	sayRestart(cmd, names)
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
			warn("the CA %s itself ends on %s, before what it has just signed", ca.File, ca.NotAfter.Format(expirationLayout))
		}
	}
	return nil
}

// sayRestart prints what the user must still do after a renewal.
func sayRestart(cmd *cobra.Command, names []string) {
	out := cmd.OutOrStdout()
	if pods := pki.Restart(names...); len(pods) > 0 {
		fmt.Fprintf(out, `
These go on with the old ones until they are restarted: %s.
The kubelet stops a static pod whose file is gone, and starts it when the file is back:

    cd %s && for pod in %s; do mv $pod.yaml .. && sleep 25 && mv ../$pod.yaml .; done
`, strings.Join(pods, ", "), config.ManifestsDir, strings.Join(pods, " "))
	}
	if slices.Contains(names, "admin.conf") || slices.Contains(names, "super-admin.conf") {
		fmt.Fprint(out, "\nCopies of the administrators' kubeconfigs, such as ~/.kube/config, do not renew themselves: copy them again.\n")
	}
}

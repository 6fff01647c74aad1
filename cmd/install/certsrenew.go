package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/pods"
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
					return fault.New(fault.Usage, "unknown certificate %q", name).Hint("known names: all, " + strings.Join(pki.RenewableNames(), ", "))
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return in.renew(cmd, args) },
	}
	in.bind(cmd.Flags())
	cmd.Flags().BoolVar(&in.restart, "restart", false, "restart the components that use the renewed certificates, one after the other, and wait until each is healthy")
	cmd.Flags().BoolVar(&in.due, "due", false, "with all: renew only certificates that have less than a third of their validity period left")
	return cmd
}

// renew renews the named certificates. With "all", it skips certificates that
// do not exist or that only an external CA can sign, and prints a warning for
// each. It has the lock of the host before it reads them, and before it waits
// for the turn of this control plane.
func (f *certsFlags) renew(cmd *cobra.Command, names []string) error {
	if f.restart && f.rootfs != "/" {
		return fault.New(fault.Usage, "--restart restarts components of this host, and --rootfs %s is not this host", f.rootfs).Hint("remove one of them; renew in the directory, and restart on the host itself")
	}
	if f.due && names[0] != "all" {
		return fault.New(fault.Usage, "--due selects the certificates itself, and %s was given", strings.Join(names, ", ")).Hint("use 'certs renew all --due', or remove --due")
	}
	h, err := host.Open(f.rootfs)
	if err != nil {
		return err
	}
	if f.rootfs == "/" || h.Records().Used() {
		var unlock func()
		if h, unlock, err = host.OpenLocked(f.rootfs); err != nil {
			return err
		}
		defer unlock()
	}
	return f.renewLocked(cmd, h, names)
}

// renewLocked is renew with the lock of the host.
func (f *certsFlags) renewLocked(cmd *cobra.Command, h *host.Host, names []string) error {
	warn := warner(cmd)
	cfg, err := f.load(cmd.Context(), warn)
	if err != nil {
		return err
	}
	certs, _, err := pki.Expirations(cfg, f.root())
	if err != nil {
		return err
	}
	var staticPods *pods.StaticPods
	if f.restart {
		if staticPods, err = pods.NewStaticPods(cfg, h, console(cmd)); err != nil {
			return err
		}
		defer staticPods.Close()
	}
	var stale []string
	if f.due {
		if f.restart {
			if stale, err = staticPods.Stale(cmd.Context()); err != nil {
				warn("components whose restart was interrupted are not restarted now: %v", err)
			}
		}
		now, period := time.Now(), pki.ValidityPeriod(cfg)
		if certs = slices.DeleteFunc(certs, func(c pki.Expiration) bool { return c.Missing || c.External || !c.Due(now, period) }); len(certs)+len(stale) == 0 {
			fmt.Fprintln(cmd.OutOrStdout(), "no certificate is due: more than a third of the validity period is left")
			return nil
		}
	}
	return recorded(cmd, h, "", func() error {
		if f.restart && len(staticPods.Names()) > 0 {
			if err := f.takeTurn(cmd.Context(), staticPods, certs, slices.Concat(pki.Restart(selected(names, certs)...), stale)); err != nil {
				return fmt.Errorf("nothing was renewed: %w", err)
			}
		}
		return f.renewOn(cmd, h, staticPods, cfg, certs, names, stale, warn)
	})
}

// selected returns the names of the certificates to renew.
func selected(names []string, certs []pki.Expiration) (list []string) {
	if names[0] != "all" {
		return names
	}
	for _, c := range certs {
		if !c.Missing && !c.External {
			list = append(list, c.Name)
		}
	}
	return list
}

// renewOn renews the named certificates, or with "all" those of certs that can be renewed. With
// --restart, it also restarts the stale components.
func (f *certsFlags) renewOn(cmd *cobra.Command, h *host.Host, staticPods *pods.StaticPods, cfg *config.Config, certs []pki.Expiration, names, stale []string, warn warnFunc) error {
	all := names[0] == "all"
	var err error
	if all {
		for _, c := range certs {
			switch {
			case c.Missing:
				warn("%s does not exist: not renewed", c.File)
			case c.External:
				warn("%s is managed externally, because the key of the CA %q is not on this host: not renewed", c.File, c.CA)
			}
		}
		names = selected(names, certs)
		if len(names)+len(stale) == 0 {
			return fault.New(fault.Failure, "no certificate in this directory can be renewed").Hint("set the correct directory with --cert-dir, or copy the CA's key to it")
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
	kubelet := false
	if all {
		if kubelet, err = f.renewKubelet(cmd, cfg, h); err != nil {
			return err
		}
	}
	if f.restart {
		err = f.restartAfter(cmd, staticPods, kubelet, slices.Concat(pki.Restart(names...), stale))
	} else {
		printRestart(cmd, kubelet, names)
	}
	if err != nil {
		return err
	}
	printCopies(cmd, names)
	return f.warnOfCAs(cfg, names, warn)
}

// renewKubelet renews the kubelet's client certificate if it has expired. On a host without a
// kubelet there is nothing to renew.
func (f *certsFlags) renewKubelet(cmd *cobra.Command, cfg *config.Config, h *host.Host) (renewed bool, err error) {
	if _, err := os.Stat(h.Path(config.KubernetesDir + "/kubelet.conf")); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	made, err := pki.RenewKubelet(cfg, f.root(), time.Now())
	if err != nil {
		return false, err
	}
	for _, file := range made.Files {
		if file.Link != "" {
			err = h.RenewLink(file.Path, file.Link)
		} else {
			err = h.RenewFile(file.Path, file.Data, file.Mode)
		}
		if err != nil {
			return false, err
		}
	}
	if len(made.Files) == 0 {
		return false, nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "kubelet.conf renewed: %s\n", made.Files[len(made.Files)-1].Path)
	return true, nil
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

// restartAfter restarts the components that use renewed certificates. The kubelet comes first, because
// it starts the others.
func (f *certsFlags) restartAfter(cmd *cobra.Command, staticPods *pods.StaticPods, kubelet bool, use []string) error {
	if len(staticPods.Names()) > 0 {
		if err := f.takeTurnLate(cmd, staticPods); err != nil {
			return err
		}
	}
	restart := func(name string, do func() error) error {
		started := time.Now()
		if err := do(); err != nil {
			return fault.Wrap(fmt.Errorf("the certificates are renewed, but not all components use them: restarting %s: %w", name, err),
				fault.ExitCode(err), cmp.Or(fault.Hint(err), "run the same command again"))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s restarted, healthy after %s\n", name, time.Since(started).Round(100*time.Millisecond))
		return nil
	}
	if kubelet {
		if err := restart("kubelet", func() error { return staticPods.RestartKubelet(cmd.Context()) }); err != nil {
			return err
		}
	}
	for _, name := range staticPods.Names() {
		if !slices.Contains(use, name) {
			continue
		}
		if err := restart(name, func() error { return staticPods.Restart(cmd.Context(), name) }); err != nil {
			return err
		}
	}
	return nil
}

// printRestart prints what the user must still restart after a renewal.
func printRestart(cmd *cobra.Command, kubelet bool, names []string) {
	out := cmd.OutOrStdout()
	if kubelet {
		fmt.Fprint(out, "\nThe kubelet uses the old certificate until it is restarted:\n\n    systemctl restart kubelet\n")
	}
	if left := pki.Restart(names...); len(left) > 0 {
		fmt.Fprintf(out, `
These components use the old certificates until they are restarted: %s.
The same command with --restart renews once more and restarts them, one after the other.
`, strings.Join(left, ", "))
	}
}

func printCopies(cmd *cobra.Command, names []string) {
	if slices.Contains(names, "admin.conf") || slices.Contains(names, "super-admin.conf") {
		fmt.Fprint(cmd.OutOrStdout(), "\nCopies of the administrators' kubeconfigs, such as ~/.kube/config, are not renewed: copy them again.\n")
	}
}

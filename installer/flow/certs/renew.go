package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Options choose the certificates to renew.
type Options struct {
	// Names of the certificates, or "all": all certificates that exist and that a CA on this host
	// can sign.
	Names   []string
	Restart bool // the components that use the renewed certificates, one after the other
	Due     bool // of "all", only certificates with less than a third of their validity period left
}

// all reports whether the certificates are chosen by their state.
func (o *Options) all() bool { return o.Names[0] == "all" }

// Validate returns a usage error if the options do not fit together, or not to the host.
func (o *Options) Validate(s *Source) error {
	if o.Restart && s.Rootfs != "/" {
		return fault.New(fault.Usage, "--restart restarts components of this host, and --rootfs %s is not this host", s.Rootfs).Hint("remove one of them; renew in the directory, and restart on the host itself")
	}
	if o.Due && !o.all() {
		return fault.New(fault.Usage, "--due selects the certificates itself, and %s was given", strings.Join(o.Names, ", ")).Hint("use 'certs renew all --due', or remove --due")
	}
	return nil
}

// Renew renews certificates. It has the lock of the host before it reads them, and before it waits
// for the turn of this control plane. record runs what changes the host.
func Renew(ctx context.Context, s *Source, o Options, console *workflow.Console, record func(*host.Host, func() error) error) error {
	h, err := host.Open(s.Rootfs)
	if err != nil {
		return err
	}
	if s.Rootfs == "/" || h.Records().Used() {
		var unlock func()
		if h, unlock, err = node.OpenToChange(s.Rootfs); err != nil {
			return err
		}
		defer unlock()
	}
	r, err := newRenewal(ctx, s, o, h, console)
	if err != nil {
		return err
	}
	defer r.close()
	if o.Due && len(r.certs)+len(r.stale) == 0 {
		fmt.Fprintln(r.out, "no certificate is due: more than a third of the validity period is left")
		return nil
	}
	return record(h, func() error {
		if err := r.takeTurn(ctx); err != nil {
			return fmt.Errorf("nothing was renewed: %w", err)
		}
		return r.run(ctx)
	})
}

// A renewal is one run on a host.
type renewal struct {
	source  *Source
	options Options
	host    *host.Host
	out     io.Writer
	cfg     *config.Config
	certs   []pki.Expiration // with Due, the due certificates
	pods    *pods.StaticPods // nil without Restart
	stale   []string         // components whose restart was interrupted
}

func newRenewal(ctx context.Context, s *Source, o Options, h *host.Host, console *workflow.Console) (*renewal, error) {
	cfg, err := s.Load(ctx)
	if err != nil {
		return nil, err
	}
	r := &renewal{source: s, options: o, host: h, out: console.Out, cfg: cfg}
	if r.certs, _, err = pki.Expirations(cfg, s.FS()); err != nil {
		return nil, err
	}
	if o.Restart {
		if r.pods, err = pods.NewStaticPods(cfg, h, console); err != nil {
			return nil, err
		}
	}
	if !o.Due {
		return r, nil
	}
	if o.Restart {
		if r.stale, err = r.pods.Stale(ctx); err != nil {
			s.Warn("components whose restart was interrupted are not restarted now: %v", err)
		}
	}
	now, period := time.Now(), pki.ValidityPeriod(cfg)
	r.certs = slices.DeleteFunc(r.certs, func(c pki.Expiration) bool { return c.Missing || c.External || !c.Due(now, period) })
	return r, nil
}

func (r *renewal) close() {
	if r.pods != nil {
		r.pods.Close()
	}
}

// names returns the names of the certificates to renew.
func (r *renewal) names() (list []string) {
	if !r.options.all() {
		return r.options.Names
	}
	for _, c := range r.certs {
		if !c.Missing && !c.External {
			list = append(list, c.Name)
		}
	}
	return list
}

// run renews the certificates. With Restart, it also restarts the components that use them, and the stale ones.
func (r *renewal) run(ctx context.Context) error {
	names := r.names()
	if r.options.all() {
		r.warnOfOthers()
		if len(names)+len(r.stale) == 0 {
			return fault.New(fault.Failure, "no certificate in this directory can be renewed").Hint("set the correct directory with --cert-dir, or copy the CA's key to it")
		}
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.renew(name); err != nil {
			return err
		}
	}
	kubelet := false
	if r.options.all() {
		var err error
		if kubelet, err = r.renewKubelet(); err != nil {
			return err
		}
	}
	if r.options.Restart {
		if err := r.restart(ctx, kubelet, slices.Concat(pki.Restart(names...), r.stale)); err != nil {
			return err
		}
	} else {
		r.printRestart(kubelet, names)
	}
	if slices.Contains(names, "admin.conf") || slices.Contains(names, "super-admin.conf") {
		fmt.Fprint(r.out, "\nCopies of the administrators' kubeconfigs, such as ~/.kube/config, are not renewed: copy them again.\n")
	}
	return r.warnOfCAs(names)
}

// warnOfOthers warns of the certificates that "all" cannot renew.
func (r *renewal) warnOfOthers() {
	for _, c := range r.certs {
		switch {
		case c.Missing:
			r.source.Warn("%s does not exist: not renewed", c.File)
		case c.External:
			r.source.Warn("%s is managed externally, because the key of the CA %q is not on this host: not renewed", c.File, c.CA)
		}
	}
}

func (r *renewal) renew(name string) error {
	made, err := pki.Renew(r.cfg, r.source.FS(), time.Now(), name)
	if err != nil {
		return err
	}
	for _, file := range made.Files {
		if err := r.host.RenewFile(file.Path, file.Data, file.Mode); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.out, "%s renewed: %s\n", name, made.Files[len(made.Files)-1].Path)
	return nil
}

// renewKubelet renews the kubelet's client certificate if it has expired. On a host without a
// kubelet there is nothing to renew.
func (r *renewal) renewKubelet() (renewed bool, err error) {
	if _, err := os.Stat(r.host.Path(config.KubernetesDir + "/kubelet.conf")); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	made, err := pki.RenewKubelet(r.cfg, r.source.FS(), time.Now())
	if err != nil {
		return false, err
	}
	for _, file := range made.Files {
		if file.Link != "" {
			err = r.host.RenewLink(file.Path, file.Link)
		} else {
			err = r.host.RenewFile(file.Path, file.Data, file.Mode)
		}
		if err != nil {
			return false, err
		}
	}
	if len(made.Files) == 0 {
		return false, nil
	}
	fmt.Fprintf(r.out, "kubelet.conf renewed: %s\n", made.Files[len(made.Files)-1].Path)
	return true, nil
}

// DateLayout is kubeadm's layout for the end of a validity period.
const DateLayout = "Jan 02, 2006 15:04 MST"

// warnOfCAs warns if a CA expires before a certificate that it has just signed.
// That certificate stops working with its CA, and renewing a CA takes more
// steps.
func (r *renewal) warnOfCAs(names []string) error {
	certs, cas, err := pki.Expirations(r.cfg, r.source.FS())
	if err != nil {
		return err
	}
	for _, ca := range cas {
		outlives := func(c pki.Expiration) bool {
			return c.CA == ca.Name && slices.Contains(names, c.Name) && c.NotAfter.After(ca.NotAfter)
		}
		if slices.ContainsFunc(certs, outlives) {
			r.source.Warn("the CA %s expires on %s, before the certificates that it has just signed", ca.File, ca.NotAfter.Format(DateLayout))
		}
	}
	return nil
}

// restart restarts the components that use renewed certificates. The kubelet comes first, because
// it starts the others.
func (r *renewal) restart(ctx context.Context, kubelet bool, use []string) error {
	if len(r.pods.Names()) > 0 {
		if err := r.takeTurnLate(ctx); err != nil {
			return err
		}
	}
	if kubelet {
		if err := r.restartOne("kubelet", func() error { return r.pods.RestartKubelet(ctx) }); err != nil {
			return err
		}
	}
	for _, name := range r.pods.Names() {
		if !slices.Contains(use, name) {
			continue
		}
		if err := r.restartOne(name, func() error { return r.pods.Restart(ctx, name) }); err != nil {
			return err
		}
	}
	return nil
}

// restartOne restarts a component with do, and prints how long it took.
func (r *renewal) restartOne(name string, do func() error) error {
	started := time.Now()
	if err := do(); err != nil {
		return fault.Wrap(fmt.Errorf("the certificates are renewed, but not all components use them: restarting %s: %w", name, err),
			fault.ExitCode(err), cmp.Or(fault.Hint(err), "run the same command again"))
	}
	fmt.Fprintf(r.out, "%s restarted, healthy after %s\n", name, time.Since(started).Round(100*time.Millisecond))
	return nil
}

// printRestart prints what the user must still restart after a renewal.
func (r *renewal) printRestart(kubelet bool, names []string) {
	if kubelet {
		fmt.Fprint(r.out, "\nThe kubelet uses the old certificate until it is restarted:\n\n    systemctl restart kubelet\n")
	}
	if left := pki.Restart(names...); len(left) > 0 {
		fmt.Fprintf(r.out, `
These components use the old certificates until they are restarted: %s.
The same command with --restart renews once more and restarts them, one after the other.
`, strings.Join(left, ", "))
	}
}

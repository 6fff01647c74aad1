package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
)

// clusterTimeout bounds the question to the cluster what its settings are.
// Certificates must be renewable on a cluster that is down because of them.
const clusterTimeout = 5 * time.Second

func newCertsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "certs",
		Aliases: []string{"certificates"},
		Short:   "Look at and renew this control plane's certificates",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCertsExpirationCmd(), newCertsRenewCmd(), newCertificateKeyCmd(), newCSRCmd())
	return cmd
}

// warnFunc prints a line that a person should read, apart from the results.
type warnFunc func(format string, args ...any)

func warner(cmd *cobra.Command) warnFunc {
	return func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: "+format+"\n", args...)
	}
}

// certsFlags say which cluster's certificates are meant and where they are.
type certsFlags struct {
	configFile, kubeconfig, certDir, rootfs string
}

func (f *certsFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.certDir, "cert-dir", "", "where the certificates are (default: what the configuration says, or "+config.CertificatesDir+")")
	flags.StringVar(&f.configFile, "config", "", "kubeadm's configuration file (default: the cluster's own configuration)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", adminConf, "how to reach the cluster, to read its configuration")
	flags.StringVar(&f.rootfs, "rootfs", "/", "a folder to take for the host's root")
}

// load finds the cluster's settings: in the file, or else in the cluster. Where
// neither is to be had the defaults hold, and a warning says so.
func (f *certsFlags) load(ctx context.Context, warn warnFunc) (*config.Config, error) {
	cfg := &config.Config{}
	if f.configFile != "" {
		read, warnings, err := config.ReadInit(f.configFile)
		if err != nil {
			return nil, err
		}
		for _, w := range warnings {
			warn("%s", w)
		}
		cfg = read
	} else if c, err := f.fetch(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		warn("the cluster's configuration cannot be read, so kubeadm's defaults are taken: %v", err)
	} else {
		cfg.Cluster = c
	}
	if cfg.CertificatesDir == "" {
		cfg.Cluster.CertificatesDir = config.CertificatesDir
	}
	return cfg, f.placeCerts(cfg)
}

// placeCerts lets --cert-dir win.
func (f *certsFlags) placeCerts(cfg *config.Config) error {
	if f.certDir == "" {
		return nil
	}
	dir, err := filepath.Abs(f.certDir)
	if err != nil {
		return fmt.Errorf("finding --cert-dir %q: %w", f.certDir, err)
	}
	cfg.Cluster.CertificatesDir = dir
	return nil
}

func (f *certsFlags) fetch(ctx context.Context) (config.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	c, err := cluster.Load(filepath.Join(f.rootfs, f.kubeconfig), "")
	if err != nil {
		return config.Cluster{}, err
	}
	fetched, err := c.FetchConfig(ctx)
	if err != nil {
		return config.Cluster{}, err
	}
	return fetched.Cluster, nil
}

func (f *certsFlags) root() fs.FS { return os.DirFS(f.rootfs) }

func newCertsExpirationCmd() *cobra.Command {
	in := &certsFlags{}
	output := "text"
	cmd := &cobra.Command{
		Use:   "check-expiration",
		Short: "Show when the certificates and kubeconfigs end",
		Long: `Show when this control plane's certificates, kubeconfigs and CAs end, and which
of them are managed externally: signed by a CA whose key is not on this host.`,
		Example: "  ./install certs check-expiration\n  ./install certs check-expiration -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" && output != "yaml" {
				return fault.New(fault.Usage, "see '"+cmd.CommandPath()+" --help'", "unknown output format %q: there are text, json and yaml", output)
			}
			cfg, err := in.load(cmd.Context(), warner(cmd))
			if err != nil {
				return err
			}
			certs, cas, err := pki.Expirations(cfg, in.root())
			if err != nil {
				return err
			}
			now := time.Now()
			if output == "text" {
				return printExpirations(cmd, certs, cas, now)
			}
			return printInfo(cmd, output, expirationInfo(certs, cas, now))
		},
	}
	in.bind(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", output, "the format: text, json or yaml")
	return cmd
}

// expirations is what `kubeadm certs check-expiration -o json` prints, type by
// type (kubeadm's output API, v1alpha3).
type expirations struct {
	metav1.TypeMeta
	Certificates           []expiration `json:"certificates"`
	CertificateAuthorities []expiration `json:"certificateAuthorities"`
}

type expiration struct {
	Name              string      `json:"name"`
	ExpirationDate    metav1.Time `json:"expirationDate"`
	ResidualTime      int64       `json:"residualTime"` // seconds
	ExternallyManaged bool        `json:"externallyManaged"`
	CAName            string      `json:"caName,omitempty"`
	Missing           bool        `json:"missing"`
}

func expirationInfo(certs, cas []pki.Held, now time.Time) expirations {
	list := func(held []pki.Held) (rows []expiration) {
		for _, h := range held {
			row := expiration{Name: h.Name, Missing: h.Missing}
			if !h.Missing {
				row.ExpirationDate, row.ResidualTime = metav1.NewTime(h.NotAfter), int64(h.NotAfter.Sub(now)/time.Second)
				row.ExternallyManaged, row.CAName = h.External, h.CA
			}
			rows = append(rows, row)
		}
		return rows
	}
	return expirations{
		TypeMeta:     metav1.TypeMeta{APIVersion: "output.kubeadm.k8s.io/v1alpha3", Kind: "CertificateExpirationInfo"},
		Certificates: list(certs), CertificateAuthorities: list(cas),
	}
}

func printInfo(cmd *cobra.Command, format string, info expirations) error {
	encode := func() ([]byte, error) { return yaml.Marshal(info) }
	if format == "json" {
		encode = func() ([]byte, error) {
			data, err := json.MarshalIndent(info, "", "    ")
			return append(data, '\n'), err
		}
	}
	data, err := encode()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(data)
	return err
}

// expirationLayout is kubeadm's.
const expirationLayout = "Jan 02, 2006 15:04 MST"

func printExpirations(cmd *cobra.Command, certs, cas []pki.Held, now time.Time) error {
	yesNo := map[bool]string{true: "yes", false: "no"}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 10, 4, 3, ' ', 0)
	fmt.Fprintln(w, "CERTIFICATE\tEXPIRES\tRESIDUAL TIME\tCERTIFICATE AUTHORITY\tEXTERNALLY MANAGED")
	for _, h := range certs {
		if h.Missing {
			fmt.Fprintf(w, "!MISSING! %s\t\t\t\t\n", h.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", h.Name, h.NotAfter.Format(expirationLayout),
			residual(h.NotAfter, now), h.CA, yesNo[h.External])
	}
	fmt.Fprintln(w, "\nCERTIFICATE AUTHORITY\tEXPIRES\tRESIDUAL TIME\tEXTERNALLY MANAGED")
	for _, h := range cas {
		if h.Missing {
			fmt.Fprintf(w, "!MISSING! %s\t\t\t\n", h.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", h.Name, h.NotAfter.Format(expirationLayout), residual(h.NotAfter, now), yesNo[h.External])
	}
	return w.Flush()
}

// residual is the time left, as kubectl shows ages. kubeadm has "<invalid>"
// for what has expired.
func residual(end, now time.Time) string {
	if now.After(end) {
		return "<expired>"
	}
	return duration.HumanDuration(end.Sub(now))
}

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

// renew renews what is named. With "all", what does not exist and what only an
// external CA could sign is passed over and told of.
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
	if h.Used() {
		unlock, err := h.Lock()
		if err != nil {
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
			return fault.New(fault.Failure, "name the right folder with --cert-dir, or provide the CA's key", "no certificate here can be renewed")
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
			if err := replace(h, file); err != nil {
				return err
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s renewed: %s\n", name, made.Files[len(made.Files)-1].Path)
	}
	sayRestart(cmd, names)
	return f.warnOfCAs(cfg, names, warn)
}

// warnOfCAs tells of CAs that end before what they have just signed: that will
// be useless then, and a new CA takes more than a renewal.
func (f *certsFlags) warnOfCAs(cfg *config.Config, names []string, warn warnFunc) error {
	certs, cas, err := pki.Expirations(cfg, f.root())
	if err != nil {
		return err
	}
	for _, ca := range cas {
		outlives := func(c pki.Held) bool {
			return c.CA == ca.Name && slices.Contains(names, c.Name) && c.NotAfter.After(ca.NotAfter)
		}
		if slices.ContainsFunc(certs, outlives) {
			warn("the CA %s itself ends on %s, before what it has just signed", ca.File, ca.NotAfter.Format(expirationLayout))
		}
	}
	return nil
}

// sayRestart tells what is still to be done after a renewal.
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

// replace puts a renewed file in the old one's place, with its mode and owner.
// One that the installer wrote is recorded as before, so that reset knows it
// again; on a node that something else made, nothing is recorded.
func replace(h *host.Host, file pki.File) error {
	at := h.Path(file.Path)
	mode := file.Mode
	info, err := os.Stat(at)
	switch {
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("replacing %s: %w", file.Path, err)
	}
	if h.Wrote(file.Path) {
		if _, err := h.WriteFile(file.Path, file.Data, mode); err != nil {
			return err
		}
	} else if err := writeWhole(at, file.Data, mode); err != nil {
		return fmt.Errorf("replacing %s: %w", file.Path, err)
	}
	if owner, ok := ownerOf(info); ok {
		if err := os.Chown(at, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("giving %s back to its owner: %w", file.Path, err)
		}
	}
	return nil
}

func ownerOf(info fs.FileInfo) (*syscall.Stat_t, bool) {
	if info == nil {
		return nil, false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return owner, ok
}

// writeWhole writes a file in one step that a crash cannot split. A symbolic
// link stays one: what it points at is replaced.
func writeWhole(at string, data []byte, mode fs.FileMode) (err error) {
	if target, err := filepath.EvalSymlinks(at); err == nil {
		at = target
	}
	temp, err := os.CreateTemp(filepath.Dir(at), "."+filepath.Base(at)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	_, err = temp.Write(data)
	for _, step := range []func() error{func() error { return temp.Chmod(mode) }, temp.Sync, temp.Close} {
		if stepErr := step(); err == nil {
			err = stepErr
		}
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), at)
}

func newCertificateKeyCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "certificate-key",
		Short:   "Print a random key for the certificates that are stored in the cluster",
		Long:    "Print a random key that 'init --upload-certs --certificate-key KEY' encrypts the certificates with.",
		Example: "  ./install certs certificate-key",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), cluster.NewCertificateKey())
			return nil
		},
	}
}

func newCSRCmd() *cobra.Command {
	in := &certsFlags{}
	kubeconfigDir := config.KubernetesDir
	cmd := &cobra.Command{
		Use:   "generate-csr",
		Short: "Make keys and signing requests for a CA whose key is elsewhere",
		Long: `Make keys and certificate signing requests for all certificates that a control
plane needs, and kubeconfigs with a key but without a certificate, each with a
request beside it.

Have each NAME.csr signed and put the certificate beside it as NAME.crt; those
for kubeconfigs go, in base64, into the file's field client-certificate-data.
The requests do not say what a certificate may be used for: give the server
certificates (apiserver, etcd/server, etcd/peer) server authentication, and all
but apiserver's client authentication. etcd/* and apiserver-etcd-client are
signed by etcd's CA, front-proxy-client by the front proxy's, the others by the
cluster's.`,
		Example: "  ./install certs generate-csr --cert-dir /tmp/pki --kubeconfig-dir /tmp\n  ./install certs generate-csr --config kubeadm.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := in.describeNode(cmd.Context(), true, warner(cmd))
			if err != nil {
				return err
			}
			dir, err := filepath.Abs(kubeconfigDir)
			if err != nil {
				return fmt.Errorf("finding --kubeconfig-dir %q: %w", kubeconfigDir, err)
			}
			made, err := pki.Requests(cfg, in.root(), dir)
			if err != nil {
				return err
			}
			for _, file := range made.Files {
				at := filepath.Join(in.rootfs, file.Path)
				if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
					return fmt.Errorf("making a folder for the requests: %w", err)
				}
				if err := writeWhole(at, file.Data, file.Mode); err != nil {
					return fmt.Errorf("writing %s: %w", file.Path, err)
				}
				fmt.Fprintln(cmd.OutOrStdout(), file.Path)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.certDir, "cert-dir", "", "where the keys and requests go (default: what the configuration says, or "+config.CertificatesDir+")")
	f.StringVar(&in.configFile, "config", "", "kubeadm's configuration file")
	f.StringVar(&kubeconfigDir, "kubeconfig-dir", kubeconfigDir, "where the kubeconfigs and their requests go")
	f.StringVar(&in.rootfs, "rootfs", "/", "a folder to take for the host's root")
	return cmd
}

// describeNode is the configuration that init would go by on this host: the
// file's, completed from the bundle and, unless only the cluster's address is
// of interest and is in the file, from the host.
func (f *certsFlags) describeNode(ctx context.Context, whole bool, warn warnFunc) (*config.Config, error) {
	cfg := &config.Config{}
	if f.configFile != "" {
		read, warnings, err := config.ReadInit(f.configFile)
		if err != nil {
			return nil, err
		}
		for _, w := range warnings {
			warn("%s", w)
		}
		cfg = read
	}
	complete := cfg.LocalAPIEndpoint.AdvertiseAddress != "" && cfg.NodeRegistration.Name != ""
	if !complete && (whole || cfg.ControlPlaneEndpoint == "") {
		h, err := host.Open(f.rootfs)
		if err != nil {
			return nil, err
		}
		cfg.Facts, err = h.Detect(ctx, host.Options{
			NodeIP:      cfg.LocalAPIEndpoint.AdvertiseAddress,
			AddressFlag: "localAPIEndpoint.advertiseAddress in the file of --config",
			PodSubnet:   cfg.Networking.PodSubnet, ServiceSubnet: cfg.Networking.ServiceSubnet,
		})
		if err != nil {
			return nil, err
		}
	}
	if cfg.KubernetesVersion == "" {
		// Without a payload the oldest profile is taken.
		if b, err := openBundle(); err == nil {
			defer b.Close()
			m, err := b.Manifest()
			if err != nil {
				return nil, err
			}
			cfg.KubernetesVersion = m.KubernetesVersion
		}
	}
	cfg.CompleteInit()
	return cfg, f.placeCerts(cfg)
}

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/status"
)

// clusterTimeout limits the request for the cluster's configuration. Users must
// be able to renew certificates while the cluster is down because they expired.
const clusterTimeout = 5 * time.Second

func newCertsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "certs",
		Aliases: []string{"certificates"},
		Short:   "Show, renew and replace certificates and CAs",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCertsExpirationCmd(), newCertsRenewCmd(), newCertsAutoCmd(), newRotateCACmd(), newCertificateKeyCmd(), newCSRCmd())
	return cmd
}

// warnFunc prints a warning on standard error.
type warnFunc func(format string, args ...any)

func warner(cmd *cobra.Command) warnFunc {
	return func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: "+format+"\n", args...)
	}
}

// certsFlags are the flags that name the cluster and its certificates.
type certsFlags struct {
	configFile, kubeconfig, certDir, rootfs string
	restart, due                            bool // only of renew
}

func (f *certsFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.certDir, "cert-dir", "", "the `DIRECTORY` of the certificates (default: that of the configuration, or "+config.CertificatesDir+")")
	flags.StringVar(&f.configFile, "config", "", "kubeadm's configuration `FILE` (default: the configuration stored in the cluster)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` for reading the configuration from the cluster")
	flags.StringVar(&f.rootfs, "rootfs", "/", "the `DIRECTORY` to use as the host's root directory")
}

// readFile reads the configuration file. Without one it returns an empty
// Config.
func (f *certsFlags) readFile(warn warnFunc) (*config.Config, error) {
	if f.configFile == "" {
		return &config.Config{}, nil
	}
	cfg, warnings, err := config.ReadInit(f.configFile)
	for _, w := range warnings {
		warn("%s", w)
	}
	return cfg, err
}

// load reads the cluster's configuration from the file, or else from the
// cluster. If the cluster cannot be reached, it uses what the static pods show
// and the defaults, and prints a warning.
func (f *certsFlags) load(ctx context.Context, warn warnFunc) (*config.Config, error) {
	cfg, err := f.readFile(warn)
	if err != nil {
		return nil, err
	}
	if f.configFile == "" {
		switch cluster, err := f.fetch(ctx); {
		case err == nil:
			cfg.Cluster = cluster
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			cfg.Cluster = f.localCluster()
			warn("using the flags of this host's static pods and kubeadm's defaults, because the cluster's configuration cannot be read: %v", err)
		}
	}
	if cfg.CertificatesDir == "" {
		cfg.Cluster.CertificatesDir = config.CertificatesDir
	}
	return cfg, f.placeCerts(cfg)
}

// localCluster returns what this host's static pods show of the cluster. An etcd whose certificates are
// on this host counts as this host's: its manifest may be moved away.
func (f *certsFlags) localCluster() config.Cluster {
	c := status.PKIConfig(host.OpenDamaged(f.rootfs)).Cluster
	if _, err := os.Stat(filepath.Join(f.rootfs, c.CertificatesDir, "etcd/server.crt")); err == nil {
		c.Etcd.External = nil
	}
	return c
}

// placeCerts sets the certificates directory to --cert-dir, if given.
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

// kubeconfigFile is the path of the kubeconfig. With another root directory, it is below that.
func (f *certsFlags) kubeconfigFile() (string, error) {
	if filepath.Clean(f.rootfs) != "/" {
		return filepath.Join(f.rootfs, f.kubeconfig), nil
	}
	return absolute("--kubeconfig", f.kubeconfig)
}

// absolute returns the absolute path of a file that a flag names, for code that looks for it below
// the host's root directory. An empty one stays empty.
func absolute(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return "", fmt.Errorf("finding %s %q: %w", flag, file, err)
	}
	return path, nil
}

func (f *certsFlags) fetch(ctx context.Context) (config.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	c, err := f.client()
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

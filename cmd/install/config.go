package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"airlift/bundle"
	"airlift/fault"
	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/host/detection"
)

const configLong = `Print, validate and convert configuration files in kubeadm's format. These commands
do not change this host and do not need root.

They read kubeadm.k8s.io/v1beta3, v1beta4 and v1. They write the version that the
bundle's kubeadm would write: v1beta3 up to Kubernetes v1.30, v1beta4 since v1.31.
A file in a newer version keeps its version.`

func newConfigCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print, validate and convert configuration files",
		Long:  configLong,
		Example: `  ./install config print init-defaults > kubeadm.yaml
  ./install config validate --config kubeadm.yaml
  ./install config migrate --old-config old.yaml --new-config new.yaml
  ./install config images list`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().String("kubeconfig", adminConf, "has no effect, as in kubeadm: these commands do not connect to the cluster")
	cmd.AddCommand(newConfigPrintCmd(), newConfigValidateCmd(), newConfigMigrateCmd(), newConfigImagesCmd())
	return cmd
}

// newestKnown returns the newest Kubernetes minor version in the image catalog,
// with patch version 0.
func newestKnown() string { return release.Newest() + ".0" }

// bundledVersion returns the Kubernetes version that the config commands use.
// With a bundle it is the bundle's, and asked must match it. Without a bundle
// it is asked, or else the newest known version, and a note on standard error
// names it. m is the bundle's manifest, or nil.
func bundledVersion(cmd *cobra.Command, m *bundle.Manifest, asked string) (string, error) {
	if m != nil {
		return m.KubernetesVersion, config.CheckVersion(asked, m.KubernetesVersion)
	}
	taken := newestKnown()
	if v, err := utilversion.ParseSemantic(strings.TrimPrefix(asked, "v")); err == nil {
		taken = "v" + v.String()
		if c := (config.Cluster{KubernetesVersion: taken}); v.Major() != 1 || !slices.Contains(release.Known(), fmt.Sprintf("v1.%d", c.Minor())) {
			return "", fault.New(fault.Usage, "Kubernetes %s is not known to this installer", asked).Hint("known versions: " + strings.Join(release.Known(), ", "))
		}
	} else if err := config.CheckVersion(asked, taken); err != nil {
		return "", err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "note: this file contains no Kubernetes; assuming %s\n", taken)
	return taken, nil
}

// manifest returns the bundle's manifest, or nil if this installer has no
// payload.
func manifest() (*bundle.Manifest, error) {
	f, err := openBundle()
	if errors.Is(err, bundle.ErrNoPayload) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Manifest()
}

// anyHost returns facts for checking a file that may be for another host. The
// address is reserved for documentation (RFC 5737, RFC 3849), has the family of
// the cluster's ranges and is in none of them.
func anyHost(o detection.Options) config.Facts {
	f := config.Facts{Hostname: "node"}
	for _, ip := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1"} {
		addr := netip.MustParseAddr(ip)
		if _, taken := o.Networking.RangeOf(addr); !taken && fitsFamily(addr, o) {
			f.NodeIP = ip
			break
		}
	}
	return f
}

// fitsFamily reports whether an address has the family of the cluster's ranges.
func fitsFamily(addr netip.Addr, o detection.Options) bool {
	family := o.Networking.Family()
	return family == "" || family == config.FamilyOf(addr)
}

// thisHost returns facts about this host. If this host has no address, or
// several that qualify, it uses the address of anyHost.
func thisHost(o detection.Options) config.Facts {
	f := anyHost(o)
	if name, err := os.Hostname(); err == nil {
		f.Hostname = strings.ToLower(strings.TrimSpace(name))
	}
	if all, err := detection.Addresses(); err == nil {
		all = slices.DeleteFunc(all, func(a detection.Address) bool { return !fitsFamily(a.IP, o) })
		if a, err := detection.ChooseAddress(all, ""); err == nil {
			f.NodeIP = a.IP.String()
		}
	}
	return f
}

func newConfigValidateCmd() *cobra.Command {
	path := ""
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Validate a configuration file",
		Long: `Validate a configuration file. The command reports all unknown, misplaced and
repeated fields and all invalid values, with their lines. Warnings are printed to
standard error.`,
		Example: "  ./install config validate --config kubeadm.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return fault.New(fault.Usage, "--config is missing").Hint("./install config validate --config kubeadm.yaml")
			}
			if _, err := readWhole(cmd, path, anyHost); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
			return err
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the `FILE` to validate; - is standard input (required)")
	cmd.Flags().Bool("allow-deprecated-api", false, "has no effect: v1beta3, v1beta4 and v1 are always accepted")
	cmd.Flags().Bool("allow-experimental-api", false, "has no effect: v1beta3, v1beta4 and v1 are always accepted")
	return cmd
}

// readWhole reads a file with documents for any command, completes them for a
// host and validates them. It sets API to the version in which the file can be
// written.
func readWhole(cmd *cobra.Command, path string, facts func(detection.Options) config.Facts) (*config.File, error) {
	f, warnings, err := config.Read(path)
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w)
	}
	if err != nil {
		return nil, err
	}
	asked := ""
	if f.Init != nil {
		asked = f.Init.KubernetesVersion
	}
	m, err := manifest()
	if err != nil {
		return nil, err
	}
	version, err := bundledVersion(cmd, m, asked)
	if err != nil {
		return nil, err
	}
	cni := release.Flannel
	if m != nil {
		cni = m.CNI
	}
	f.API = config.NewerAPI(f.API, config.APIVersion(version))
	var problems []error
	if c := f.Init; c != nil {
		c.CNI, c.KubernetesVersion = cni, version
		c.Facts = facts(detection.Options{
			NodeIP: c.LocalAPIEndpoint.ChosenAddress(), ForOtherHost: true, Networking: c.Networking,
		})
		c.CompleteInit()
		for _, w := range c.Warnings() {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w)
		}
		problems = append(problems, c.ValidateInit())
	}
	if c := f.Join; c != nil {
		c.KubernetesVersion = version
		c.Facts = facts(detection.Options{NodeIP: c.LocalAPIEndpoint.ChosenAddress(), ForOtherHost: true})
		c.CompleteJoin()
		problems = append(problems, c.ValidateJoin())
	}
	if r := f.Reset; r != nil {
		r.Complete()
		problems = append(problems, r.ValidateReset())
	}
	if f.Upgrade != nil {
		problems = append(problems, f.Upgrade.Validate())
	}
	return f, errors.Join(problems...)
}

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"airlift/bundle"
	"airlift/fault"
	"airlift/images"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/render"
)

const configLong = `Print, check and convert configuration files, in kubeadm's own format. Nothing
here changes this host, and all but 'images list' work without root.

Files may be written in kubeadm.k8s.io/v1beta3, v1beta4 or v1. What is written
is in the version that the kubeadm of the bundle's Kubernetes writes: v1beta3 up
to v1.30, v1beta4 since. A file in a newer version keeps its own.`

func newConfigCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print, check and convert configuration files",
		Long:  configLong,
		Example: `  ./install config print init-defaults > kubeadm.yaml
  ./install config validate --config kubeadm.yaml
  ./install config migrate --old-config old.yaml --new-config new.yaml
  ./install config images list`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigPrintCmd(), newConfigValidateCmd(), newConfigMigrateCmd(), newConfigImagesCmd())
	return cmd
}

// newestKnown is the newest Kubernetes version that is known by name only.
func newestKnown() string {
	known := images.Known()
	return known[len(known)-1] + ".0"
}

// bundledVersion is the Kubernetes version whose kubeadm is followed: the
// bundle's, which has to be the one that is asked for. Where this file has no
// payload it is the one asked for, or the newest known; a note on standard
// error then says which.
func bundledVersion(cmd *cobra.Command, asked string) (string, error) {
	m, err := manifest()
	if err != nil {
		return "", err
	}
	if m != nil {
		return m.KubernetesVersion, config.CheckVersion(asked, m.KubernetesVersion)
	}
	taken := newestKnown()
	if v, err := utilversion.ParseSemantic(strings.TrimPrefix(asked, "v")); err == nil {
		taken = "v" + v.String()
		if c := (config.Cluster{KubernetesVersion: taken}); v.Major() != 1 || !slices.Contains(images.Known(), fmt.Sprintf("v1.%d", c.Minor())) {
			return "", fault.New(fault.Usage, "known versions: "+strings.Join(images.Known(), ", "), "Kubernetes %s is not known to this program", asked)
		}
	} else if err := config.CheckVersion(asked, taken); err != nil {
		return "", err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "note: this file brings no Kubernetes of its own; %s is assumed\n", taken)
	return taken, nil
}

// manifest is the bundle's, or nil where this program has no payload.
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

func newConfigPrintCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "print",
		Short:   "Print the default configuration of a command",
		Long:    "Print the default configuration of a command, as a file to start from. Values\nwhich differ from kubeadm's defaults are explained in it.",
		Example: "  ./install config print init-defaults --component-configs KubeletConfiguration\n  ./install config print join-defaults",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range []struct {
		name, short string
		make        func(version string) ([]byte, *config.Config, error)
	}{
		{"init-defaults", "Print what init takes where nothing else is said", initDefaults},
		{"join-defaults", "Print what join takes where nothing else is said", joinDefaults},
		{"reset-defaults", "Print what reset takes where nothing else is said", resetDefaults},
	} {
		var components []string
		asked := ""
		sub := &cobra.Command{
			Use:     c.name,
			Short:   c.short,
			Long:    c.short + ", as kubeadm's documents.\nTokens and addresses in it are examples.",
			Example: "  ./install config print " + c.name,
			Args:    noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				version, err := bundledVersion(cmd, asked)
				if err != nil {
					return err
				}
				data, cfg, err := c.make(version)
				if err != nil {
					return err
				}
				more, err := componentDefaults(cfg, components)
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(append(data, more...))
				return err
			},
		}
		if c.name == "init-defaults" { // a node that joins takes the cluster's
			sub.Flags().StringSliceVar(&components, "component-configs", nil, "also print KubeletConfiguration, KubeProxyConfiguration or both")
		}
		sub.Flags().StringVar(&asked, "kubernetes-version", "", "the Kubernetes version to print them for (default: the bundle's, and no other where there is a bundle)")
		cmd.AddCommand(sub)
	}
	return cmd
}

// example is a completed Config with kubeadm's example values.
func example(version string) *config.Config {
	c := &config.Config{CNI: "flannel", Facts: config.Facts{Hostname: "node", NodeIP: "1.2.3.4", CgroupDriver: "systemd"}}
	c.Images = map[string]string{"kube-proxy": config.DefaultImageRepository + "/kube-proxy:" + version}
	c.KubernetesVersion = version
	c.BootstrapTokens = []config.BootstrapToken{{Token: "abcdef.0123456789abcdef", TTL: config.DefaultTokenTTL}}
	c.CompleteInit()
	c.EncryptionAlgorithm = pki.DefaultAlgorithm
	c.NodeRegistration.Taints = nil
	return c
}

const initNote = `# Where this differs from kubeadm's defaults:
# - networking.podSubnet is set, for the bundle's pod network (flannel); kubeadm
#   has no default. Take it away with --cni none.
# - New keys are %s; kubeadm's are RSA-2048. encryptionAlgorithm, which
#   exists since v1beta4, chooses another.
`

func initDefaults(version string) ([]byte, *config.Config, error) {
	c := example(version)
	data, err := c.WriteInit(config.APIVersion(version))
	return append(fmt.Appendf(nil, initNote, pki.DefaultAlgorithm), data...), c, err
}

func joinDefaults(version string) ([]byte, *config.Config, error) {
	c := example(version)
	d := &c.Discovery
	d.Token, d.APIServerEndpoint, d.UnsafeSkipCAVerification = "abcdef.0123456789abcdef", "kube-apiserver:6443", true
	c.CompleteJoin()
	data, err := c.WriteJoin(config.APIVersion(version))
	return data, c, err
}

func resetDefaults(version string) ([]byte, *config.Config, error) {
	r := &config.Reset{}
	r.Complete()
	data, err := r.Write(config.APIVersion(version))
	return data, example(version), err
}

// componentDefaults are the documents that kubelet and kube-proxy would get.
func componentDefaults(c *config.Config, kinds []string) ([]byte, error) {
	var out bytes.Buffer
	for _, kind := range kinds {
		var (
			data []byte
			err  error
		)
		switch kind {
		case "KubeletConfiguration":
			data, err = render.KubeletConfig(c)
		case "KubeProxyConfiguration":
			data, err = kubeProxyConfig(c)
		default:
			return nil, fault.New(fault.Usage, "", "--component-configs %q is neither KubeletConfiguration nor KubeProxyConfiguration", kind)
		}
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes(), nil
}

// kubeProxyConfig takes the document out of the objects that kube-proxy is
// installed with.
func kubeProxyConfig(c *config.Config) ([]byte, error) {
	objects, err := render.KubeProxy(c)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if m, ok := o.(*corev1.ConfigMap); ok && m.Data["config.conf"] != "" {
			return []byte(m.Data["config.conf"]), nil
		}
	}
	return nil, errors.New("kube-proxy's objects have no configuration")
}

// anyHost stands for the host that a file is checked for, which need not be
// this one: its address is one for documentation (RFC 5737, RFC 3849) that is
// in none of the cluster's ranges.
func anyHost(o host.Options) config.Facts {
	f := config.Facts{Hostname: "node"}
	for _, ip := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1"} {
		free := true
		for _, s := range strings.Split(o.PodSubnet+","+o.ServiceSubnet, ",") {
			p, err := netip.ParsePrefix(s)
			free = free && (err != nil || !p.Contains(netip.MustParseAddr(ip)))
		}
		if free {
			f.NodeIP = ip
			break
		}
	}
	return f
}

// thisHost is the host that this runs on, with a stand-in's address where there
// is none or no telling which.
func thisHost(o host.Options) config.Facts {
	f := anyHost(o)
	if name, err := os.Hostname(); err == nil {
		f.Hostname = strings.ToLower(strings.TrimSpace(name))
	}
	if all, err := host.Addresses(); err == nil {
		if a, err := host.ChooseAddress(all, ""); err == nil {
			f.NodeIP = a.IP.String()
		}
	}
	return f
}

func newConfigValidateCmd() *cobra.Command {
	path := ""
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration file",
		Long: `Check a configuration file: that it can be read, has no unknown, misplaced or
repeated field, and that its values are valid. Every problem is named with its
line. Warnings go to standard error.`,
		Example: "  ./install config validate --config kubeadm.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return fault.New(fault.Usage, "./install config validate --config kubeadm.yaml", "the file to check is missing")
			}
			if _, err := readWhole(cmd, path, anyHost); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
			return err
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the file to check; - is standard input (required)")
	return cmd
}

func newConfigMigrateCmd() *cobra.Command {
	oldPath, newPath := "", ""
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Write a configuration file anew, in a current version of kubeadm's format",
		Long: `Write a configuration file anew, in a current version of kubeadm's format, with
everything that was left open filled in: this host's name and address among it.
That is the configuration that init, join or reset would take from the file on
this host. Comments are not kept. Documents of kubelet and kube-proxy stay as
they are.`,
		Example: "  ./install config migrate --old-config old.yaml --new-config new.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if oldPath == "" {
				return fault.New(fault.Usage, "./install config migrate --old-config old.yaml --new-config new.yaml", "the file to convert is missing")
			}
			data, err := migrate(cmd, oldPath)
			if err != nil {
				return err
			}
			if newPath == "" {
				_, err = cmd.OutOrStdout().Write(data)
				return err
			}
			// It may hold tokens.
			if err := os.WriteFile(newPath, data, 0o600); err != nil {
				return fmt.Errorf("writing the new configuration: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&oldPath, "old-config", "", "the file to convert; - is standard input (required)")
	cmd.Flags().StringVar(&newPath, "new-config", "", "where to write the result (default: standard output)")
	return cmd
}

func migrate(cmd *cobra.Command, path string) ([]byte, error) {
	f, err := readWhole(cmd, path, thisHost)
	if err != nil {
		return nil, err
	}
	var docs [][]byte
	add := func(data []byte, e error) {
		docs, err = append(docs, data), cmp.Or(err, e)
	}
	if f.Init != nil {
		if f.Init.EncryptionAlgorithm == "" {
			f.Init.EncryptionAlgorithm = pki.DefaultAlgorithm
		}
		add(f.Init.WriteInit(f.API))
	}
	if f.Join != nil {
		add(f.Join.WriteJoin(f.API))
	}
	if f.Reset != nil {
		add(f.Reset.Write(f.API))
	}
	if f.Upgrade != nil {
		add(f.Upgrade.Write(f.API))
	}
	if err != nil {
		return nil, err
	}
	return bytes.Join(append(docs, f.Components...), []byte("---\n")), nil
}

// readWhole reads a file with documents of any command, completed for a host,
// and validates it. API becomes the version to write it in.
func readWhole(cmd *cobra.Command, path string, facts func(host.Options) config.Facts) (*config.File, error) {
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
	version, err := bundledVersion(cmd, asked)
	if err != nil {
		return nil, err
	}
	cni := images.Flannel
	if m, err := manifest(); err == nil && m != nil {
		cni = m.CNI
	}
	f.API = config.NewerAPI(f.API, config.APIVersion(version))
	var problems []error
	if c := f.Init; c != nil {
		c.CNI, c.KubernetesVersion = cni, version
		c.Facts = facts(host.Options{
			NodeIP: c.LocalAPIEndpoint.AdvertiseAddress, Elsewhere: true, PodSubnet: c.Networking.PodSubnet, ServiceSubnet: c.Networking.ServiceSubnet,
		})
		c.CompleteInit()
		for _, w := range c.Warnings() {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w)
		}
		problems = append(problems, c.ValidateInit())
	}
	if c := f.Join; c != nil {
		c.KubernetesVersion = version
		c.Facts = facts(host.Options{NodeIP: c.LocalAPIEndpoint.AdvertiseAddress, Elsewhere: true})
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

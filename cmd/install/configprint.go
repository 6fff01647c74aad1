package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
)

func newConfigPrintCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "print",
		Short:   "Print the default configuration of a command",
		Long:    "Print the default configuration of a command, as a file to start from. Comments in\nit explain the values that differ from kubeadm's defaults.",
		Example: "  ./install config print init-defaults --component-configs KubeletConfiguration\n  ./install config print join-defaults",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range []struct {
		name, short string
		make        func(version string) ([]byte, *config.Config, error)
	}{
		{"init-defaults", "Print the default configuration of init", initDefaults},
		{"join-defaults", "Print the default configuration of join", joinDefaults},
		{"reset-defaults", "Print the default configuration of reset", resetDefaults},
		{"upgrade-defaults", "Print the default configuration of upgrade apply and upgrade node", upgradeDefaults},
	} {
		var components []string
		asked := ""
		sub := &cobra.Command{
			Use:     c.name,
			Short:   c.short,
			Long:    c.short + ", in kubeadm's format.\nTokens and addresses in it are examples.",
			Example: "  ./install config print " + c.name,
			Args:    noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				m, err := manifest()
				if err != nil {
					return err
				}
				version, err := bundledVersion(cmd, m, asked)
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
				_, err = verbatim(cmd).Write(append(data, more...))
				return err
			},
		}
		sub.Flags().StringSliceVar(&components, "component-configs", nil, "also print KubeletConfiguration, KubeProxyConfiguration or both; only init uses them")
		sub.Flags().StringVar(&asked, "kubernetes-version", "", "the Kubernetes version; with a bundle, only the bundle's is accepted")
		cmd.AddCommand(sub)
	}
	return cmd
}

// example returns a complete Config with kubeadm's example values.
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
# - networking.podSubnet is set for the bundle's pod network (flannel); kubeadm
#   has no default. With --cni none, remove it.
# - New keys are %s; kubeadm's are RSA-2048. To change that, set
#   encryptionAlgorithm (since v1beta4).
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

func upgradeDefaults(version string) ([]byte, *config.Config, error) {
	data, err := new(config.Upgrade).Write(config.APIVersion(version))
	return data, example(version), err
}

// componentDefaults returns the configuration documents for the kubelet and
// kube-proxy.
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
			return nil, fault.New(fault.Usage, "--component-configs %q: want KubeletConfiguration or KubeProxyConfiguration", kind)
		}
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes(), nil
}

// kubeProxyConfig returns the configuration document in kube-proxy's ConfigMap.
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

package configfile

import (
	"bytes"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// Defaults returns the default configuration of a command, and the Config for the defaults of the
// components.
type Defaults func(version string) ([]byte, *config.Config, error)

// Defaults returns the default configuration of a command, and of components: KubeletConfiguration,
// KubeProxyConfiguration. asked is the Kubernetes version, or "".
func (r *Reader) Defaults(of Defaults, asked string, components []string) ([]byte, error) {
	m, err := r.Bundle()
	if err != nil {
		return nil, err
	}
	version, err := r.version(m, asked)
	if err != nil {
		return nil, err
	}
	data, cfg, err := of(version)
	if err != nil {
		return nil, err
	}
	more, err := componentDefaults(cfg, components)
	return append(data, more...), err
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

// InitDefaults are the defaults of init.
func InitDefaults(version string) ([]byte, *config.Config, error) {
	c := example(version)
	data, err := c.WriteInit(config.APIVersion(version))
	return append(fmt.Appendf(nil, initNote, pki.DefaultAlgorithm), data...), c, err
}

// JoinDefaults are the defaults of join.
func JoinDefaults(version string) ([]byte, *config.Config, error) {
	c := example(version)
	d := &c.Discovery
	d.Token, d.APIServerEndpoint, d.UnsafeSkipCAVerification = "abcdef.0123456789abcdef", "kube-apiserver:6443", true
	c.CompleteJoin()
	data, err := c.WriteJoin(config.APIVersion(version))
	return data, c, err
}

// ResetDefaults are the defaults of reset.
func ResetDefaults(version string) ([]byte, *config.Config, error) {
	r := &config.Reset{}
	r.Complete()
	data, err := r.Write(config.APIVersion(version))
	return data, example(version), err
}

// UpgradeDefaults are the defaults of upgrade apply and upgrade node.
func UpgradeDefaults(version string) ([]byte, *config.Config, error) {
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

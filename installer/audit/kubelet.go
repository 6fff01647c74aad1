package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/kubeletcheck"
	"airlift/installer/node"
	"airlift/installer/preflight"
)

// A kubelet is the kubelet of this host.
type kubelet struct {
	config  kubeletv1.KubeletConfiguration // the effective one
	source  string                         // where config is from
	unclear string                         // why config is not known
	flags   []config.Arg
	version string
}

func (k *kubelet) flag(name string) string {
	v, _ := config.LastArg(k.flags, name)
	return v
}

// file is the kubelet's configuration file.
func (k *kubelet) file() string { return cmp.Or(k.flag("config"), config.KubeletConfigFile) }

// kubeconfig is the kubelet's kubeconfig.
func (k *kubelet) kubeconfig() string { return cmp.Or(k.flag("kubeconfig"), node.KubeletConf) }

// readKubelet asks the running kubelet for its configuration through the API server. Otherwise, it computes it as the kubelet
// does: the file, the drop-ins, the flags.
func readKubelet(ctx context.Context, f *facts, client *cluster.Client) (k kubelet) {
	k.flags = f.kubeletFlags()
	if client != nil {
		if n, err := cluster.GetNode(ctx, client.API, f.name); err == nil {
			k.version = n.Status.NodeInfo.KubeletVersion
		}
		found, err := configz(ctx, client, f.name)
		if err == nil {
			k.config, k.source = *found, "the running kubelet"
			k.complete()
			return k
		}
		f.cannotRead("the configuration of the running kubelet, so its files are judged", err)
	}
	k.source = k.file()
	if k.unclear = k.compute(f); k.unclear != "" {
		f.cannotRead("the kubelet's configuration", fmt.Errorf("%s", k.unclear))
	}
	return k
}

// configz returns the effective configuration of a running kubelet.
func configz(ctx context.Context, client *cluster.Client, name string) (*kubeletv1.KubeletConfiguration, error) {
	data, err := client.API.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", name, "proxy", "configz").DoRaw(ctx)
	var answer struct {
		Kubelet *kubeletv1.KubeletConfiguration `json:"kubeletconfig"`
	}
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err == nil && answer.Kubelet == nil {
		err = fmt.Errorf("the kubelet of %s returned no configuration", name)
	}
	return answer.Kubelet, err
}

// kubeletFlags returns the flags of the running kubelet, or else those in its environment files.
func (f *facts) kubeletFlags() []config.Arg {
	for _, file := range f.glob("/proc/[0-9]*/cmdline") {
		data, err := f.read(file)
		words := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
		if err == nil && path.Base(words[0]) == "kubelet" && len(words) > 1 {
			return kubeletcheck.ParseFlags(words[1:])
		}
	}
	var flags []config.Arg
	for _, one := range []struct{ file, variable string }{
		{config.KubeletFlagsFile, "KUBELET_KUBEADM_ARGS"}, {preflight.DefaultKubelet, "KUBELET_EXTRA_ARGS"}, {"/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS"},
	} {
		if data, err := f.read(one.file); err == nil {
			flags = append(flags, preflight.KubeletFlags(one.variable, data)...)
		}
	}
	return flags
}

// compute computes the effective configuration from files and flags. It returns why it cannot.
func (k *kubelet) compute(f *facts) string {
	document, err := f.read(k.file())
	switch {
	case os.IsNotExist(err) && k.flag("config") == "":
		k.config = withoutFile()
	case err != nil:
		return k.file() + " cannot be read"
	}
	var files []string
	err = nil
	if dir := k.flag("config-dir"); dir != "" {
		document, files, err = kubeletcheck.Merge(document, f.root, dir)
	}
	if err == nil {
		err = yaml.Unmarshal(document, &k.config)
	}
	if err != nil {
		return k.file() + " is damaged"
	}
	k.source = strings.Join(append([]string{k.file()}, files...), ", ")
	c := &k.config
	for _, a := range k.flags {
		b, _ := strconv.ParseBool(a.Value) // the kubelet would not start with another value
		n := int32(number(a.Value))
		switch strings.ReplaceAll(a.Name, "_", "-") {
		case "anonymous-auth":
			c.Authentication.Anonymous.Enabled = &b
		case "authorization-mode":
			c.Authorization.Mode = kubeletv1.KubeletAuthorizationMode(a.Value)
		case "client-ca-file":
			c.Authentication.X509.ClientCAFile = a.Value
		case "read-only-port":
			c.ReadOnlyPort = n
		case "streaming-connection-idle-timeout":
			_ = c.StreamingConnectionIdleTimeout.UnmarshalJSON([]byte(strconv.Quote(a.Value))) // the same
		case "make-iptables-util-chains":
			c.MakeIPTablesUtilChains = &b
		case "event-qps":
			c.EventRecordQPS = &n
		case "tls-cert-file":
			c.TLSCertFile = a.Value
		case "tls-private-key-file":
			c.TLSPrivateKeyFile = a.Value
		case "rotate-certificates":
			c.RotateCertificates = b
		case "rotate-server-certificates":
			c.ServerTLSBootstrap = b
		case "tls-cipher-suites":
			c.TLSCipherSuites = list(a.Value)
		case "tls-min-version":
			c.TLSMinVersion = a.Value
		case "pod-max-pids":
			limit := int64(number(a.Value))
			c.PodPidsLimit = &limit
		case "seccomp-default":
			c.SeccompDefault = &b
		case "feature-gates":
			for _, gate := range list(a.Value) {
				name, on, _ := strings.Cut(gate, "=")
				if c.FeatureGates == nil {
					c.FeatureGates = map[string]bool{}
				}
				c.FeatureGates[name] = on == "true"
			}
		}
	}
	k.complete()
	return ""
}

// withoutFile is what the kubelet uses if it has no configuration file.
func withoutFile() (c kubeletv1.KubeletConfiguration) {
	yes := true
	c.Authentication.Anonymous.Enabled = &yes
	c.Authorization.Mode = kubeletv1.KubeletAuthorizationModeAlwaysAllow
	c.ReadOnlyPort = 10255
	return c
}

// complete sets the kubelet's defaults.
func (k *kubelet) complete() {
	c := &k.config
	if c.Authentication.Anonymous.Enabled == nil {
		c.Authentication.Anonymous.Enabled = new(bool)
	}
	c.Authorization.Mode = cmp.Or(c.Authorization.Mode, kubeletv1.KubeletAuthorizationModeWebhook)
	if c.StreamingConnectionIdleTimeout == (metav1.Duration{}) {
		c.StreamingConnectionIdleTimeout.Duration = 4 * time.Hour
	}
	if c.MakeIPTablesUtilChains == nil {
		yes := true
		c.MakeIPTablesUtilChains = &yes
	}
	if c.EventRecordQPS == nil {
		fifty := int32(50)
		c.EventRecordQPS = &fifty
	}
	if c.PodPidsLimit == nil {
		none := int64(-1)
		c.PodPidsLimit = &none
	}
	if c.SeccompDefault == nil {
		c.SeccompDefault = new(bool)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// unitDirs are systemd's directories of units. An earlier one precedes the later ones.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// unitFiles are the kubelet's unit and its drop-ins.
func (f *facts) unitFiles() (files []string) {
	var names []string
	for _, pattern := range []string{"/kubelet.service", "/kubelet.service.d/*.conf"} {
		for _, dir := range unitDirs {
			for _, file := range f.glob(dir + pattern) {
				if !slices.Contains(names, path.Base(file)) {
					names, files = append(names, path.Base(file)), append(files, file)
				}
			}
		}
	}
	return files
}

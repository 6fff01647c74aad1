package render

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// KubeletConfig returns the KubeletConfiguration that all nodes share: the user's
// document with kubeadm's defaults, as stored in the ConfigMap kubelet-config.
func KubeletConfig(cfg *config.Config) ([]byte, error) {
	k := &kubeletv1.KubeletConfiguration{}
	if cfg.Kubelet != nil {
		k = cfg.Kubelet.DeepCopy()
	}
	k.APIVersion, k.Kind = kubeletv1.SchemeGroupVersion.String(), "KubeletConfiguration"
	dns, err := cfg.Networking.ServiceIP(config.DNSServiceIndex)
	if err != nil {
		return nil, err
	}
	if k.ClusterDNS == nil {
		k.ClusterDNS = []string{dns.String()}
	}
	fill(&k.StaticPodPath, config.ManifestsDir)
	fill(&k.ClusterDomain, cfg.Networking.DNSDomain)
	fill(&k.Authentication.X509.ClientCAFile, path.Join(cfg.CertificatesDir, "ca.crt"))
	fillPointer(&k.Authentication.Anonymous.Enabled, false)
	fillPointer(&k.Authentication.Webhook.Enabled, true)
	fill(&k.Authorization.Mode, kubeletv1.KubeletAuthorizationModeWebhook)
	fill(&k.HealthzBindAddress, "127.0.0.1")
	fillPointer(&k.HealthzPort, config.KubeletHealthzPort)
	fill(&k.CgroupDriver, "systemd")
	// As in kubeadm, even if the user sets false.
	k.RotateCertificates = true
	doc, err := explicit(k)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(doc)
}

// NodeKubeletConfig adds this host's own fields to the cluster's
// KubeletConfiguration. cluster is KubeletConfig's result, or on join the
// content of the ConfigMap; unknown fields are kept.
func NodeKubeletConfig(cfg *config.Config, cluster []byte) ([]byte, error) {
	var doc map[string]any
	if err := documents.Unmarshal(cluster, &doc); err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading the cluster's KubeletConfiguration: %w", err), fault.Failure,
			"correct it: kubectl edit configmap -n kube-system kubelet-config")
	}
	doc["cgroupDriver"] = cgroupDriver(cfg)
	if cfg.NodeLocalCRISocket() {
		doc["containerRuntimeEndpoint"] = cfg.NodeRegistration.CRISocket
	}
	if _, ok := doc["resolvConf"]; !ok && cfg.Facts.ResolvConf != defaultResolvConf {
		// With "", a pod that uses the host's resolver gets an empty
		// resolv.conf; with a path that does not exist, it does not start.
		doc["resolvConf"] = cfg.Facts.ResolvConf
	}
	if _, ok := doc["failSwapOn"]; !ok && cfg.Facts.SwapOn {
		// Preflight reports swap, earlier and more clearly than a kubelet
		// that does not start.
		doc["failSwapOn"] = false
	}
	if _, ok := doc["failCgroupV1"]; !ok && cfg.Facts.CgroupVersion == 1 && minor(cfg) >= cgroupV1RefusedFrom {
		doc["failCgroupV1"] = false
	}
	return yaml.Marshal(doc)
}

// defaultResolvConf is the kubelet's default for resolvConf.
const defaultResolvConf = "/etc/resolv.conf"

// KubeletInstanceConfigPath is kubeadm's file with the node's own fields of the
// KubeletConfiguration, which kubeadm upgrade reads.
const KubeletInstanceConfigPath = config.KubeletDir + "/instance-config.yaml"

// KubeletInstanceConfig returns that file, or nil if this Kubernetes version has
// none.
func KubeletInstanceConfig(cfg *config.Config) []byte {
	if !cfg.NodeLocalCRISocket() {
		return nil
	}
	return fmt.Appendf(nil, "containerRuntimeEndpoint: %q\n", cfg.NodeRegistration.CRISocket)
}

// cgroupDriver is the driver of both the kubelet and the container runtime.
func cgroupDriver(cfg *config.Config) string {
	if cfg.Kubelet != nil && cfg.Kubelet.CgroupDriver != "" {
		return cfg.Kubelet.CgroupDriver
	}
	return cfg.Facts.CgroupDriver
}

// KubeletFlags returns the environment file with the kubelet's flags for this node. A worker
// registers with its taints; the phase mark-control-plane sets a control plane's taints.
func KubeletFlags(cfg *config.Config, worker bool) ([]byte, error) {
	pause, err := image(cfg, "pause")
	if err != nil {
		return nil, err
	}
	node := cfg.NodeRegistration
	var args []config.Arg
	if !cfg.NodeLocalCRISocket() {
		args = append(args, config.Arg{Name: "container-runtime-endpoint", Value: node.CRISocket})
	}
	if minor(cfg) < PauseFlagGoneFrom {
		// Keeps the kubelet from collecting the image as garbage.
		args = append(args, config.Arg{Name: "pod-infra-container-image", Value: pause})
	}
	if worker && len(node.Taints) > 0 {
		var taints []string
		for _, t := range node.Taints {
			taints = append(taints, t.ToString())
		}
		args = append(args, config.Arg{Name: "register-with-taints", Value: strings.Join(taints, ",")})
	}
	if node.Name != cfg.Facts.Hostname {
		args = append(args, config.Arg{Name: "hostname-override", Value: node.Name})
	}
	if ips := cfg.NodeIPs(); len(ips) > 1 || len(ips) == 1 && (!cfg.Facts.DefaultRoute || cfg.Facts.NodeIPGiven || ips[0].Is6()) {
		// By default the kubelet uses only the default route's address, and prefers IPv4.
		args = append(args, config.Arg{Name: "node-ip", Value: joined(ips)})
	}
	return KubeletFlagsFile(cfg, args), nil
}

// KubeletFlagsFile returns the environment file with these flags and the user's.
func KubeletFlagsFile(cfg *config.Config, args []config.Arg) []byte {
	flags := strings.Join(command(cfg, "", args, cfg.NodeRegistration.KubeletExtraArgs), " ")
	return []byte("KUBELET_KUBEADM_ARGS=" + strconv.Quote(flags) + "\n")
}

// OwnKubeletFlags are the flags that KubeletFlags sets. All others are the user's.
var OwnKubeletFlags = []string{"container-runtime-endpoint", "pod-infra-container-image", "register-with-taints", "hostname-override", "node-ip"}

func joined(ips []netip.Addr) string {
	var list []string
	for _, ip := range ips {
		list = append(list, ip.String())
	}
	return strings.Join(list, ",")
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func fillPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

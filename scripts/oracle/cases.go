package oracle

import (
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/images/release"
	"airlift/installer/config"
)

// Version is the Kubernetes version that all components are built of; its
// kubeadm is the oldest oracle. Newest is the newest one's.
const (
	Version = "v1.29.15"
	Newest  = "v1.37.1"
)

// VersionsVariable names the environment variable with the versions, separated by spaces, whose
// kubeadm is the oracle instead of the oldest and the newest one's. Their kubeadm must be built.
const VersionsVariable = "AIRLIFT_ORACLES"

// Versions are the Kubernetes versions whose kubeadm is an oracle.
var Versions = versions()

func versions() []string {
	if list := strings.Fields(os.Getenv(VersionsVariable)); len(list) > 0 {
		return list
	}
	return []string{Version, Newest}
}

// A Case is the same configuration for kubeadm and for Airlift. The bodies
// are v1beta3, or v1beta4 if v1beta3 does not have the fields.
type Case struct {
	Name       string
	Cluster    string            // the body of kubeadm's ClusterConfiguration
	Init       string            // the body of its InitConfiguration, if not the plain one
	Components string            // the component configurations, whole documents
	Patches    map[string]string // the files in the patches directory
	Args       []string          // more arguments of kubeadm init
	Config     *config.Config    // the same, completed
	HostDirs   []string          // directories that exist on the host
	Minors     Minors            // whose kubeadm supports the case
}

// The bodies of the plain case.
const (
	plainInit = `
localAPIEndpoint: {advertiseAddress: 10.0.0.11}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
`
	plainCluster = `
networking: {podSubnet: 10.244.0.0/16}
`
)

// Documents are the case's documents for kubeadm, in the newest form that all
// commands of its version read.
func (c Case) Documents() string {
	first, cluster := c.kubeadm()
	return first + "\n---\n" + cluster + "\n---\n" + c.Components
}

// InitDocument is the InitConfiguration alone.
func (c Case) InitDocument() string {
	first, _ := c.kubeadm()
	return first
}

func (c Case) kubeadm() (first, cluster string) {
	apiVersion := "v1beta3"
	first, cluster = c.Init, c.Cluster
	if c.Config.Minor() >= config.V1Beta4From {
		apiVersion = "v1beta4"
		f, k := decodeBody(first), decodeBody(cluster)
		toV1Beta4(f, k)
		first, cluster = encodeBody(f), encodeBody(k)
	}
	head := func(kind string) string { return "apiVersion: kubeadm.k8s.io/" + apiVersion + "\nkind: " + kind + "\n" }
	return head("InitConfiguration") + first,
		head("ClusterConfiguration") + "kubernetesVersion: " + c.Config.KubernetesVersion + "\n" + cluster
}

// keysSince is the first minor version whose kubeadm can name the type of the keys and how long
// certificates are valid.
const keysSince = 34

// HasKeys reports whether a version's cases include "keys and validity periods".
func HasKeys(version string) bool {
	c := config.Cluster{KubernetesVersion: version}
	return c.Minor() >= keysSince
}

// Cases are the configurations that must give the same result as kubeadm. The
// first is the plain one.
func Cases(version string) []Case {
	with := func(change func(*config.Config)) *config.Config { return newConfig(version, change) }
	list := []Case{
		{Name: "plain"},
		{Name: "host CA directories", HostDirs: []string{"/etc/pki/ca-trust", "/etc/pki/tls/certs", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/etc/ca-certificates"}},
		{Name: "no pod network", Cluster: "networking: {}", Config: with(func(c *config.Config) { c.Networking.PodSubnet = config.ParseCIDRs("") })},
		{Name: "control-plane endpoint", Cluster: "controlPlaneEndpoint: k8s.example.com:8443", Config: with(func(c *config.Config) {
			c.ControlPlaneEndpoint = "k8s.example.com:8443"
		})},
		{Name: "control-plane endpoint without a port", Cluster: "controlPlaneEndpoint: 10.0.0.100", Config: with(func(c *config.Config) {
			c.ControlPlaneEndpoint = "10.0.0.100"
		})},
		{Name: "extra names", Cluster: `
apiServer: {certSANs: [api.example.com, "*.example.com", 192.0.2.7, 10.0.0.11, n1]}
etcd: {local: {serverCertSANs: [etcd.example.com, 192.0.2.8], peerCertSANs: [peer.example.com]}}
`, Config: with(func(c *config.Config) {
			c.APIServer.CertSANs = []string{"api.example.com", "*.example.com", "192.0.2.7", "10.0.0.11", "n1"}
			c.Etcd.Local.ServerCertSANs = []string{"etcd.example.com", "192.0.2.8"}
			c.Etcd.Local.PeerCertSANs = []string{"peer.example.com"}
		})},
		{Name: "extra args and volumes", Cluster: `
apiServer:
  timeoutForControlPlane: 2m35s
  extraArgs: {audit-log-path: /var/log/audit, authorization-mode: "Node,RBAC,Webhook", v: "4", allow-privileged: "false"}
  extraVolumes:
  - {name: audit, hostPath: /var/log/kubernetes, mountPath: /var/log/audit, pathType: DirectoryOrCreate}
  - {name: ca-certs, hostPath: /opt/certs, mountPath: /etc/ssl/certs, readOnly: true}
controllerManager:
  extraArgs: {bind-address: 0.0.0.0, flex-volume-plugin-dir: /opt/flex, node-cidr-mask-size: "25"}
  extraVolumes:
  - {name: cloud, hostPath: /etc/cloud.conf, mountPath: /etc/cloud.conf, readOnly: true, pathType: File}
scheduler:
  extraArgs: {bind-address: 10.0.0.11, config: /etc/kubernetes/scheduler.yaml}
etcd:
  local:
    dataDir: /data/etcd
    extraArgs: {listen-metrics-urls: "https://10.0.0.11:2399,http://127.0.0.1:2381", quota-backend-bytes: "8589934592", advertise-client-urls: "https://10.0.0.11:2379"}
`, Config: with(func(c *config.Config) {
			// v1beta3 and v1beta4 have it in different places.
			c.APIServer.TimeoutForControlPlane = 2*time.Minute + 35*time.Second
			c.Timeouts.ControlPlaneComponentHealthCheck = c.APIServer.TimeoutForControlPlane
			c.APIServer.ExtraArgs = []config.Arg{{Name: "allow-privileged", Value: "false"}, {Name: "audit-log-path", Value: "/var/log/audit"},
				{Name: "authorization-mode", Value: "Node,RBAC,Webhook"}, {Name: "v", Value: "4"}}
			c.APIServer.ExtraVolumes = []config.HostPathMount{
				{Name: "audit", HostPath: "/var/log/kubernetes", MountPath: "/var/log/audit", PathType: corev1.HostPathDirectoryOrCreate},
				{Name: "ca-certs", HostPath: "/opt/certs", MountPath: "/etc/ssl/certs", ReadOnly: true}}
			c.ControllerManager.ExtraArgs = []config.Arg{{Name: "bind-address", Value: "0.0.0.0"},
				{Name: "flex-volume-plugin-dir", Value: "/opt/flex"}, {Name: "node-cidr-mask-size", Value: "25"}}
			c.ControllerManager.ExtraVolumes = []config.HostPathMount{
				{Name: "cloud", HostPath: "/etc/cloud.conf", MountPath: "/etc/cloud.conf", ReadOnly: true, PathType: corev1.HostPathFile}}
			c.Scheduler.ExtraArgs = []config.Arg{{Name: "bind-address", Value: "10.0.0.11"}, {Name: "config", Value: "/etc/kubernetes/scheduler.yaml"}}
			c.Etcd.Local.DataDir = "/data/etcd"
			c.Etcd.Local.ExtraArgs = []config.Arg{{Name: "advertise-client-urls", Value: "https://10.0.0.11:2379"},
				{Name: "listen-metrics-urls", Value: "https://10.0.0.11:2399,http://127.0.0.1:2381"}, {Name: "quota-backend-bytes", Value: "8589934592"}}
		})},
		{Name: "other ranges and names", Cluster: `
clusterName: prod
certificatesDir: /srv/pki
networking: {podSubnet: 172.16.0.0/16, serviceSubnet: 172.30.0.0/16, dnsDomain: k8s.example.org}
`, Config: with(func(c *config.Config) {
			c.ClusterName, c.Cluster.CertificatesDir = "prod", "/srv/pki"
			c.Networking = config.Networking{PodSubnet: config.ParseCIDRs("172.16.0.0/16"), ServiceSubnet: config.ParseCIDRs("172.30.0.0/16"), DNSDomain: "k8s.example.org"}
		})},
		{Name: "dual-stack", Cluster: `
networking: {podSubnet: "10.244.0.0/16,fd00:10:244::/56", serviceSubnet: "10.96.0.0/16,fd00:10:96::/112"}
`, Config: with(func(c *config.Config) {
			c.Networking.PodSubnet, c.Networking.ServiceSubnet = config.ParseCIDRs("10.244.0.0/16,fd00:10:244::/56"), config.ParseCIDRs("10.96.0.0/16,fd00:10:96::/112")
			c.Facts.OtherIP = "fd77::11"
		})},
		{Name: "IPv6", Init: `
localAPIEndpoint: {advertiseAddress: "fd00::11"}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
`, Cluster: `
controlPlaneEndpoint: "[fd00::100]:6443"
networking: {podSubnet: "fd00:10:244::/56", serviceSubnet: "fd00:10:96::/112"}
`, Config: with(func(c *config.Config) {
			c.ControlPlaneEndpoint = "[fd00::100]:6443"
			c.LocalAPIEndpoint.AdvertiseAddress = "fd00::11"
			c.Networking.PodSubnet, c.Networking.ServiceSubnet = config.ParseCIDRs("fd00:10:244::/56"), config.ParseCIDRs("fd00:10:96::/112")
		})},
		{Name: "other registry and tags", Cluster: `
imageRepository: registry.example.com:5000/k8s
dns: {imageRepository: registry.example.com/dns, imageTag: v1.11.9}
etcd: {local: {imageRepository: registry.example.com/etcd, imageTag: 3.5.99-0}}
`, Config: with(func(c *config.Config) {
			c.ImageRepository = "registry.example.com:5000/k8s"
			c.DNS = config.DNS{ImageMeta: config.ImageMeta{ImageRepository: "registry.example.com/dns", ImageTag: "v1.11.9"}}
			c.Etcd.Local.ImageMeta = config.ImageMeta{ImageRepository: "registry.example.com/etcd", ImageTag: "3.5.99-0"}
			for name, ref := range c.Images {
				c.Images[name] = strings.Replace(ref, "registry.k8s.io", c.ImageRepository, 1)
			}
			c.Images["coredns"] = "registry.example.com/dns/coredns:v1.11.9"
			c.Images["etcd"] = "registry.example.com/etcd/etcd:3.5.99-0"
		})},
		{Name: "external etcd", Cluster: `
etcd: {external: {endpoints: ["https://10.0.0.21:2379", "https://10.0.0.22:2379"], caFile: /etc/etcd/certs/ca.crt, certFile: /etc/etcd/client.crt, keyFile: /opt/etcd/client.key}}
`, Config: with(func(c *config.Config) {
			c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://10.0.0.21:2379", "https://10.0.0.22:2379"},
				CAFile: "/etc/etcd/certs/ca.crt", CertFile: "/etc/etcd/client.crt", KeyFile: "/opt/etcd/client.key"}
		})},
		{Name: "the user's kubelet and kube-proxy documents", Components: `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
clusterDNS: [10.96.0.10, 192.0.2.53]
maxPods: 200
serializeImagePulls: false
failSwapOn: false
healthzPort: 0
rotateCertificates: false
systemReserved: {cpu: 200m, memory: 256Mi}
evictionHard: {memory.available: 5%}
nodeStatusUpdateFrequency: 20s
logging: {verbosity: 3}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
ipvs: {strictARP: true, scheduler: lc}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 2h}
bindAddress: 10.0.0.11
clusterCIDR: 10.244.0.0/17
`, Config: with(func(c *config.Config) {
			c.Kubelet = decode[kubeletv1.KubeletConfiguration](`
cgroupDriver: cgroupfs
clusterDNS: [10.96.0.10, 192.0.2.53]
maxPods: 200
serializeImagePulls: false
failSwapOn: false
healthzPort: 0
rotateCertificates: false
systemReserved: {cpu: 200m, memory: 256Mi}
evictionHard: {memory.available: 5%}
nodeStatusUpdateFrequency: 20s
logging: {verbosity: 3}
`)
			c.KubeProxy = decode[kubeproxyv1.KubeProxyConfiguration](`
mode: ipvs
ipvs: {strictARP: true, scheduler: lc}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 2h}
bindAddress: 10.0.0.11
clusterCIDR: 10.244.0.0/17
`)
		})},
		{Name: "node options", Init: `
localAPIEndpoint: {advertiseAddress: 10.0.0.11}
nodeRegistration:
  name: n1
  criSocket: unix:///run/containerd/containerd.sock
  taints: []
  kubeletExtraArgs: {v: "5", node-labels: "disk=ssd", container-runtime-endpoint: "unix:///run/other.sock"}
`, Config: with(func(c *config.Config) {
			c.NodeRegistration.Taints = []corev1.Taint{}
			c.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "container-runtime-endpoint", Value: "unix:///run/other.sock"},
				{Name: "node-labels", Value: "disk=ssd"}, {Name: "v", Value: "5"}}
		})},
		{Name: "other port", Init: `
localAPIEndpoint: {advertiseAddress: 10.0.0.11, bindPort: 8443}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
`, Config: with(func(c *config.Config) {
			c.LocalAPIEndpoint.BindPort = 8443
		})},
		{Name: "external etcd without TLS", Cluster: `
etcd: {external: {endpoints: ["http://10.0.0.21:2379"], caFile: "", certFile: "", keyFile: ""}}
`, Config: with(func(c *config.Config) {
			c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"http://10.0.0.21:2379"}}
		})},
		{Name: "external etcd with addresses for health checks", Minors: Minors{Since: 35}, Cluster: `
etcd: {external: {endpoints: ["https://10.0.0.21:2379"], httpEndpoints: ["http://10.0.0.21:2381"], caFile: /etc/etcd/ca.crt, certFile: /etc/etcd/client.crt, keyFile: /etc/etcd/client.key}}
`, Config: with(func(c *config.Config) {
			c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://10.0.0.21:2379"}, HTTPEndpoints: []string{"http://10.0.0.21:2381"},
				CAFile: "/etc/etcd/ca.crt", CertFile: "/etc/etcd/client.crt", KeyFile: "/etc/etcd/client.key"}
		})},
		{Name: "IPv6 without an endpoint", Init: `
localAPIEndpoint: {advertiseAddress: "fd00::11", bindPort: 7443}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
`, Cluster: `
networking: {podSubnet: "fd00:10:244::/56,10.244.0.0/16", serviceSubnet: "fd00:10:96::/112,10.96.0.0/16"}
`, Config: with(func(c *config.Config) {
			c.LocalAPIEndpoint = config.APIEndpoint{AdvertiseAddress: "fd00::11", BindPort: 7443}
			c.Networking.PodSubnet, c.Networking.ServiceSubnet = config.ParseCIDRs("fd00:10:244::/56,10.244.0.0/16"), config.ParseCIDRs("fd00:10:96::/112,10.96.0.0/16")
		})},
		{Name: "flags more than once, and variables", Minors: Minors{Since: 31}, Cluster: `
apiServer:
  extraArgs:
  - {name: service-account-issuer, value: https://second.example.com}
  - {name: service-account-issuer, value: https://kubernetes.default.svc.cluster.local}
  - {name: authorization-config, value: /etc/kubernetes/authz.yaml}
  - {name: audit-log-maxage, value: "30"}
  - {name: allow-privileged, value: ""}
  extraEnvs: [{name: HTTPS_PROXY, value: "http://192.0.2.1:3128"}, {name: OWN_IP, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}]
controllerManager: {extraEnvs: [{name: A, value: one}]}
scheduler: {extraEnvs: [{name: B, value: two}]}
etcd: {local: {extraArgs: [{name: log-level, value: warn}, {name: initial-cluster-state, value: new}], extraEnvs: [{name: ETCD_QUOTA, value: "3"}]}}
`, Init: `
localAPIEndpoint: {advertiseAddress: 10.0.0.11}
nodeRegistration:
  name: n1
  criSocket: unix:///run/containerd/containerd.sock
  kubeletExtraArgs: [{name: v, value: "5"}, {name: node-labels, value: z=1}, {name: node-labels, value: a=2}]
  imagePullPolicy: Never
  imagePullSerial: false
`, Config: with(func(c *config.Config) {
			c.APIServer.ExtraArgs = []config.Arg{{Name: "service-account-issuer", Value: "https://second.example.com"},
				{Name: "service-account-issuer", Value: "https://kubernetes.default.svc.cluster.local"},
				{Name: "authorization-config", Value: "/etc/kubernetes/authz.yaml"},
				{Name: "audit-log-maxage", Value: "30"}, {Name: "allow-privileged", Value: ""}}
			c.APIServer.ExtraEnvs = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://192.0.2.1:3128"},
				{Name: "OWN_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}}}
			c.ControllerManager.ExtraEnvs = []corev1.EnvVar{{Name: "A", Value: "one"}}
			c.Scheduler.ExtraEnvs = []corev1.EnvVar{{Name: "B", Value: "two"}}
			c.Etcd.Local.ExtraArgs = []config.Arg{{Name: "log-level", Value: "warn"}, {Name: "initial-cluster-state", Value: "new"}}
			c.Etcd.Local.ExtraEnvs = []corev1.EnvVar{{Name: "ETCD_QUOTA", Value: "3"}}
			c.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "v", Value: "5"}, {Name: "node-labels", Value: "z=1"}, {Name: "node-labels", Value: "a=2"}}
			c.NodeRegistration.ImagePullPolicy, c.NodeRegistration.ImagePullSerial = corev1.PullNever, new(false)
		})},
		{Name: "add-ons disabled", Minors: Minors{Since: 31}, Cluster: `
dns: {disabled: true}
proxy: {disabled: true}
`, Config: with(func(c *config.Config) {
			c.DNS.Disabled, c.Proxy.Disabled = true, true
		})},
		{Name: "timeouts", Minors: Minors{Since: 31}, Init: `
localAPIEndpoint: {advertiseAddress: 10.0.0.11}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
timeouts: {controlPlaneComponentHealthCheck: 9m55s, kubeletHealthCheck: 1m, kubernetesAPICall: 2m, etcdAPICall: 3m, tlsBootstrap: 4m, discovery: 6m, upgradeManifests: 7m}
`, Config: with(func(c *config.Config) {
			c.Timeouts = config.Timeouts{ControlPlaneComponentHealthCheck: 9*time.Minute + 55*time.Second, KubeletHealthCheck: time.Minute,
				KubernetesAPICall: 2 * time.Minute, EtcdAPICall: 3 * time.Minute, TLSBootstrap: 4 * time.Minute,
				Discovery: 6 * time.Minute, UpgradeManifests: 7 * time.Minute}
		})},
		{Name: "keys and validity periods", Minors: Minors{Since: keysSince}, Cluster: `
encryptionAlgorithm: ECDSA-P384
certificateValidityPeriod: 720h
caCertificateValidityPeriod: 43800h30m
`, Config: with(func(c *config.Config) {
			c.EncryptionAlgorithm = "ECDSA-P384"
			c.CertificateValidityPeriod, c.CACertificateValidityPeriod = 720*time.Hour, 43800*time.Hour+30*time.Minute
		})},
		{Name: "feature gates", Minors: Minors{Until: 30}, Cluster: `
featureGates: {PublicKeysECDSA: true, EtcdLearnerMode: false, UpgradeAddonsBeforeControlPlane: true}
`, Config: with(func(c *config.Config) {
			c.FeatureGates = map[string]bool{"EtcdLearnerMode": false, "UpgradeAddonsBeforeControlPlane": true}
		})},
		{Name: "certificates uploaded", Init: `
localAPIEndpoint: {advertiseAddress: 10.0.0.11}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
certificateKey: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
`, Args: []string{"--upload-certs"}, Config: with(func(c *config.Config) {
			c.UploadCerts = true
			c.CertificateKey = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
		})},
		{Name: "patches", Patches: patchFiles(version), Init: `
localAPIEndpoint: {advertiseAddress: 10.0.0.11}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
patches: {directory: /patches}
`},
	}
	return complete(version, list)
}

// PoorHosts are cases on hosts without what kubeadm requires, which need the
// Differences.
func PoorHosts(version string) []Case {
	with := func(change func(*config.Config)) *config.Config { return newConfig(version, change) }
	list := []Case{
		{Name: "isolated host on cgroup v1", Config: with(func(c *config.Config) {
			c.Facts.CgroupVersion, c.Facts.CgroupDriver = 1, "cgroupfs"
			c.Facts.DefaultRoute = false
			c.Facts.Nameservers = nil
			c.Facts.ConntrackWritable = false
			c.Facts.RestrictOOMScoreAdj = true
		})},
		{Name: "no resolver file, swap on", Config: with(func(c *config.Config) {
			c.Facts.ResolvConf, c.Facts.Nameservers = "", nil
			c.Facts.SwapOn = true
		})},
		{Name: "systemd-resolved", Config: with(func(c *config.Config) {
			c.Facts.ResolvConf = "/run/systemd/resolve/resolv.conf"
		})},
	}
	return complete(version, list)
}

// Plain is the Config of a version's plain case.
func Plain(version string) *config.Config { return newConfig(version, func(*config.Config) {}) }

func complete(version string, list []Case) []Case {
	minor := Plain(version).Minor()
	list = slices.DeleteFunc(list, func(c Case) bool {
		return !c.Minors.Have(version)
	})
	for i := range list {
		c := &list[i]
		if c.Config == nil {
			c.Config = Plain(version)
		}
		if c.Init == "" {
			c.Init = plainInit
		}
		if !strings.Contains(c.Cluster, "networking:") {
			c.Cluster += plainCluster
		}
		if c.Name == "plain" || strings.Contains(c.Cluster, "encryptionAlgorithm") {
			continue
		}
		// The plain case has kubeadm's RSA keys; the others use ECDSA keys,
		// which are faster to generate.
		c.Config.EncryptionAlgorithm = "ECDSA-P256"
		if minor >= 31 {
			c.Cluster += "\nencryptionAlgorithm: ECDSA-P256\n"
			continue
		}
		if !strings.Contains(c.Cluster, "featureGates") {
			c.Cluster += "\nfeatureGates: {PublicKeysECDSA: true}\n"
		}
		if c.Config.FeatureGates == nil {
			c.Config.FeatureGates = map[string]bool{}
		}
		c.Config.FeatureGates["PublicKeysECDSA"] = true
	}
	return list
}

// newConfig is the plain case's Config, changed.
func newConfig(version string, change func(*config.Config)) *config.Config {
	hostname, err := os.Hostname()
	if err != nil {
		panic(err)
	}
	c := &config.Config{
		CNI: "flannel",
		Facts: config.Facts{
			// kubeadm compares the node's name with the machine's.
			Hostname:          strings.ToLower(strings.TrimSpace(hostname)),
			CgroupVersion:     2,
			CgroupDriver:      "systemd",
			ConntrackWritable: true,
			ResolvConf:        "/etc/resolv.conf",
			Nameservers:       []string{"192.0.2.1"},
			NodeIP:            "10.0.0.11",
			Interface:         "eth0",
			MTU:               1500,
			DefaultRoute:      true,
		},
		Images: map[string]string{},
	}
	catalog, err := release.For(version, "amd64", "flannel", release.Versions{})
	if err != nil {
		panic(err)
	}
	for _, image := range catalog.Images {
		c.Images[image.Name] = image.Reference
	}
	c.KubernetesVersion = version
	c.EncryptionAlgorithm = "RSA-2048" // kubeadm's default, not Airlift's
	c.NodeRegistration.Name = "n1"
	c.CompleteInit()
	change(c)
	return c
}

func decode[T any](document string) *T {
	obj := new(T)
	if err := yaml.UnmarshalStrict([]byte(document), obj); err != nil {
		panic(err)
	}
	return obj
}

package oracle

import (
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
)

// Version is the Kubernetes version whose kubeadm is the oracle.
const Version = "v1.29.15"

// A Case is one and the same wish in kubeadm's language and in ours.
type Case struct {
	Name       string
	Cluster    string         // the body of kubeadm's ClusterConfiguration
	Init       string         // the body of its InitConfiguration, if not the plain one
	Components string         // the component configurations, whole documents
	Config     *config.Config // the same, completed
	HostDirs   []string       // folders that exist on the host
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

// Documents are the case's documents for kubeadm.
func (c Case) Documents() string {
	return "apiVersion: kubeadm.k8s.io/v1beta3\nkind: InitConfiguration\n" + c.Init +
		"\n---\napiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nkubernetesVersion: " + Version + "\n" + c.Cluster +
		"\n---\n" + c.Components
}

// Cases are the settings that must come out equal.
func Cases() []Case {
	list := []Case{
		{Name: "plain"},
		{Name: "host CA folders", HostDirs: []string{"/etc/pki", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/etc/ca-certificates"}},
		{Name: "no pod network", Cluster: "networking: {}", Config: with(func(c *config.Config) { c.Networking.PodSubnet = "" })},
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
			c.APIServer.TimeoutForControlPlane = 2*time.Minute + 35*time.Second
			c.APIServer.ExtraArgs = []config.Arg{{Name: "audit-log-path", Value: "/var/log/audit"},
				{Name: "authorization-mode", Value: "Node,RBAC,Webhook"}, {Name: "v", Value: "4"}, {Name: "allow-privileged", Value: "false"}}
			c.APIServer.ExtraVolumes = []config.HostPathMount{
				{Name: "audit", HostPath: "/var/log/kubernetes", MountPath: "/var/log/audit", PathType: corev1.HostPathDirectoryOrCreate},
				{Name: "ca-certs", HostPath: "/opt/certs", MountPath: "/etc/ssl/certs", ReadOnly: true}}
			c.ControllerManager.ExtraArgs = []config.Arg{{Name: "bind-address", Value: "0.0.0.0"},
				{Name: "flex-volume-plugin-dir", Value: "/opt/flex"}, {Name: "node-cidr-mask-size", Value: "25"}}
			c.ControllerManager.ExtraVolumes = []config.HostPathMount{
				{Name: "cloud", HostPath: "/etc/cloud.conf", MountPath: "/etc/cloud.conf", ReadOnly: true, PathType: corev1.HostPathFile}}
			c.Scheduler.ExtraArgs = []config.Arg{{Name: "bind-address", Value: "10.0.0.11"}, {Name: "config", Value: "/etc/kubernetes/scheduler.yaml"}}
			c.Etcd.Local.DataDir = "/data/etcd"
			c.Etcd.Local.ExtraArgs = []config.Arg{{Name: "listen-metrics-urls", Value: "https://10.0.0.11:2399,http://127.0.0.1:2381"},
				{Name: "quota-backend-bytes", Value: "8589934592"}, {Name: "advertise-client-urls", Value: "https://10.0.0.11:2379"}}
		})},
		{Name: "other ranges and names", Cluster: `
clusterName: prod
certificatesDir: /srv/pki
networking: {podSubnet: 172.16.0.0/16, serviceSubnet: 172.30.0.0/16, dnsDomain: k8s.example.org}
`, Config: with(func(c *config.Config) {
			c.ClusterName, c.Cluster.CertificatesDir = "prod", "/srv/pki"
			c.Networking = config.Networking{PodSubnet: "172.16.0.0/16", ServiceSubnet: "172.30.0.0/16", DNSDomain: "k8s.example.org"}
		})},
		{Name: "dual-stack", Cluster: `
networking: {podSubnet: "10.244.0.0/16,fd00:10:244::/56", serviceSubnet: "10.96.0.0/16,fd00:10:96::/112"}
`, Config: with(func(c *config.Config) {
			c.Networking.PodSubnet, c.Networking.ServiceSubnet = "10.244.0.0/16,fd00:10:244::/56", "10.96.0.0/16,fd00:10:96::/112"
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
			c.Networking.PodSubnet, c.Networking.ServiceSubnet = "fd00:10:244::/56", "fd00:10:96::/112"
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
			c.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "v", Value: "5"}, {Name: "node-labels", Value: "disk=ssd"},
				{Name: "container-runtime-endpoint", Value: "unix:///run/other.sock"}}
		})},
		{Name: "other port", Init: `
localAPIEndpoint: {advertiseAddress: 10.0.0.11, bindPort: 8443}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
`, Config: with(func(c *config.Config) {
			c.LocalAPIEndpoint.BindPort = 8443
		})},
	}
	complete(list)
	return list
}

// PoorHosts are hosts that lack what kubeadm takes for granted; there the
// Differences show.
func PoorHosts() []Case {
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
	complete(list)
	return list
}

func complete(list []Case) {
	for i := range list {
		c := &list[i]
		if c.Config == nil {
			c.Config = with(func(*config.Config) {})
		}
		if c.Init == "" {
			c.Init = plainInit
		}
		if !strings.Contains(c.Cluster, "networking:") {
			c.Cluster += plainCluster
		}
		if c.Name != "plain" {
			// The plain case has kubeadm's RSA keys; the others spare
			// the machine most of that work.
			c.Cluster += "\nfeatureGates: {PublicKeysECDSA: true}\n"
			c.Config.EncryptionAlgorithm, c.Config.FeatureGates = "ECDSA-P256", map[string]bool{"PublicKeysECDSA": true}
		}
	}
}

// with is the plain case's Config, changed.
func with(change func(*config.Config)) *config.Config {
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
		Images: map[string]string{
			"pause":   "registry.k8s.io/pause:3.9",
			"etcd":    "registry.k8s.io/etcd:3.5.16-0",
			"coredns": "registry.k8s.io/coredns/coredns:v1.11.1",
			"flannel": "ghcr.io/flannel-io/flannel:v0.28.4",
		},
	}
	c.KubernetesVersion = Version
	c.EncryptionAlgorithm = "RSA-2048" // kubeadm's default, not ours
	c.NodeRegistration.Name = "n1"
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		c.Images[component] = "registry.k8s.io/" + component + ":" + Version
	}
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

package cluster

import (
	"time"
)

// Names that kubeadm uses (cmd/kubeadm/app/constants, v1.29.15). Other tools
// depend on them.
const (
	kubeadmConfigMap = "kubeadm-config"
	kubeadmConfigKey = "ClusterConfiguration"
	kubeletConfigMap = "kubelet-config"
	// kubeProxyConfigMap has the configuration of kube-proxy.
	kubeProxyConfigMap = "kube-proxy"
	kubeletConfigKey   = "kubelet"

	certsSecret = "kubeadm-certs"
	// certsTokenTTL is the lifetime of uploaded certificates (kubeadm's
	// DefaultCertTokenDuration).
	certsTokenTTL = 2 * time.Hour

	criSocketAnnotation = "kubeadm.alpha.kubernetes.io/cri-socket"
	ControlPlaneLabel   = "node-role.kubernetes.io/control-plane"
	etcdURLsAnnotation  = "kubeadm.kubernetes.io/etcd.advertise-client-urls"
	APIServerAnnotation = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"
	noExternalLBLabel   = "node.kubernetes.io/exclude-from-external-load-balancers"
)

package node

import (
	"path"
	"strings"

	"airlift/bundle"
	"airlift/installer/config"
)

// Kubeconfig files, as kubeadm names them.
const (
	AdminConf      = config.KubernetesDir + "/admin.conf"
	SuperAdminConf = config.KubernetesDir + "/super-admin.conf"
	KubeletConf    = config.KubernetesDir + "/kubelet.conf"
	BootstrapConf  = config.KubernetesDir + "/bootstrap-kubelet.conf"
)

// Static pods that other steps look for.
var (
	EtcdManifest      = path.Join(config.ManifestsDir, "etcd.yaml")
	APIServerManifest = path.Join(config.ManifestsDir, "kube-apiserver.yaml")
)

// BinaryPath returns the path at which a binary of the bundle is installed, or "" for other
// entries. The directories come from the installation instructions of containerd and Kubernetes for
// hosts without a package manager.
func BinaryPath(entry string) string {
	switch {
	case entry == bundle.BinDir+"runc":
		return "/usr/local/sbin/runc"
	case strings.HasPrefix(entry, bundle.BinDir):
		return path.Join("/usr/local/bin", strings.TrimPrefix(entry, bundle.BinDir))
	case strings.HasPrefix(entry, bundle.CNIDir):
		return path.Join(config.CNIBinDir, strings.TrimPrefix(entry, bundle.CNIDir))
	}
	return ""
}

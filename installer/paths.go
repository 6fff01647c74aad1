package installer

import (
	"path"
	"strings"

	"airlift/bundle"
	"airlift/installer/config"
)

// Kubeconfig files, as kubeadm names them.
const (
	adminConf      = config.KubernetesDir + "/admin.conf"
	superAdminConf = config.KubernetesDir + "/super-admin.conf"
	kubeletConf    = config.KubernetesDir + "/kubelet.conf"
	bootstrapConf  = config.KubernetesDir + "/bootstrap-kubelet.conf"
)

// Static pods that other steps look for.
var (
	etcdManifest      = path.Join(config.ManifestsDir, "etcd.yaml")
	apiServerManifest = path.Join(config.ManifestsDir, "kube-apiserver.yaml")
)

// binaryPath returns the path at which a binary of the bundle is installed, or
// "" for other entries. The directories are those in the installation
// instructions of containerd and Kubernetes for hosts without a package
// manager.
func binaryPath(entry string) string {
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

package render

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/config"
)

// What kubeadm changed, by the first minor version that has it. Each was read
// in the sources of v1.29.15, v1.30.14, v1.31.14, v1.32.13, v1.33.13, v1.34.9,
// v1.35.6, v1.36.3 and v1.37.1 (cmd/kubeadm/app; the packages in parentheses).
const (
	// The ClusterConfiguration no longer contains the default authorization
	// mode, which is not set together with authorization-config
	// (phases/controlplane).
	authorizationUnrecordedFrom = 30
	// v1beta4, which has no apiServer.timeoutForControlPlane, is stored
	// (apis/kubeadm/v1beta4).
	timeoutUnrecordedFrom = 31
	// etcd is probed at /livez and /readyz (phases/etcd).
	etcdLivezFrom = 31
	// Only the directories with CA certificates in /etc/pki are mounted
	// (phases/controlplane).
	narrowPKIFrom = 31
	// A flag can be given more than once (apis/kubeadm/v1beta4). Its values are
	// sorted (util/arguments.go).
	repeatedArgsFrom = 31
	// The user's flags come after kubeadm's, in the user's order; before, all
	// flags were sorted (util/arguments.go).
	argsInOrderFrom = 32
	// The scheduler is probed at /livez and /readyz (phases/controlplane).
	schedulerLivezFrom = 32
	// The Corefile disables the cache for the cluster's own names
	// (phases/addons/dns).
	corednsUncachedFrom = 32
	// Probes use a named port (phases/controlplane, etcd, addons/dns).
	probePortFrom = 34
	// etcd 3.6 gets its own flags (phases/etcd).
	etcd36FlagsFrom = 34
	// etcd.external.httpEndpoints exists (apis/kubeadm/v1beta4).
	httpEndpointsFrom = 35
	// PauseFlagGoneFrom: the kubelet has no flag --pod-infra-container-image (phases/kubelet).
	PauseFlagGoneFrom = 35
	// The kubelet does not start on cgroup v1 unless failCgroupV1 is false
	// (pkg/kubelet/apis/config/v1beta1/defaults.go).
	cgroupV1RefusedFrom = 35
	// The controller manager does not mount the flex volume plugins
	// (phases/controlplane).
	flexVolumeGoneFrom = 36
	// kube-proxy's configuration sets its mode (componentconfigs).
	proxyModeFrom = 37
)

// minor is Kubernetes' minor version: 29 for "v1.29.15".
func minor(cfg *config.Config) int { return cfg.Cluster.Minor() }

// etcd36 reports whether etcd gets the flags of etcd 3.6. As in kubeadm, a
// pre-release of 3.6.0, such as the tag 3.6.0-0, does not.
func etcd36(cfg *config.Config) bool {
	if minor(cfg) < etcd36FlagsFrom {
		return false
	}
	if minor(cfg) > 35 { // always with etcd 3.6 or newer
		return true
	}
	ref, _, _ := strings.Cut(cfg.Images["etcd"], "@")
	v, err := version.ParseSemantic(ref[strings.LastIndex(ref, ":")+1:])
	return err == nil && v.AtLeast(version.MustParseSemantic("3.6.0"))
}

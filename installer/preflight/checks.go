package preflight

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/host"
)

// subject is the target with what the checks need to inspect it. Checks only
// read it.
type subject struct {
	Target
	host *host.Host
	now  func() time.Time
	// lookup resolves a name on this host.
	lookup func(ctx context.Context, name string) ([]string, error)
	// rules reads the packet filter rules.
	rules func() (rules, error)
}

// A check is one row of the table. run returns its findings, none if the check
// passed.
type check struct {
	name string
	run  func(context.Context) []finding
}

type finding struct {
	message, fix string
	warning      bool
	minor        bool // shown by init and join only with -v 1
}

func problem(fix, format string, args ...any) []finding {
	return []finding{{message: fmt.Sprintf(format, args...), fix: fix}}
}

func warning(fix, format string, args ...any) []finding {
	return []finding{{message: fmt.Sprintf(format, args...), fix: fix, warning: true}}
}

// kubeadm's requirements for a control plane (constants.go: ControlPlaneNumCPU,
// ControlPlaneMem).
const (
	controlPlaneCPUs     = 2
	controlPlaneMemoryMB = 1700
)

// checks is the table: kubeadm's checks in its order, then Airlift's own.
func (s *subject) checks() []check {
	c := s.Config
	list := []check{{"IsPrivilegedUser", s.privileged}}
	if s.Role.controlPlane() {
		list = append(list,
			check{"NumCPU", s.cpus},
			check{"Mem", s.memory},
			check{"KubernetesVersion", s.kubernetesVersion},
			s.port(int(c.LocalAPIEndpoint.BindPort), "kube-apiserver", c.APIServer.ExtraArgs...),
			s.port(config.SchedulerPort, "kube-scheduler", c.Scheduler.ExtraArgs...),
			s.port(config.ControllerManagerPort, "kube-controller-manager", c.ControllerManager.ExtraArgs...),
			s.fileAvailable(config.ManifestsDir+"/kube-apiserver.yaml"),
			s.fileAvailable(config.ManifestsDir+"/kube-controller-manager.yaml"),
			s.fileAvailable(config.ManifestsDir+"/kube-scheduler.yaml"),
			s.fileAvailable(config.ManifestsDir+"/etcd.yaml"),
			check{"HTTPProxy", s.proxyTo(c.LocalAPIEndpoint.AdvertiseAddress)},
			check{"HTTPProxyCIDR", s.proxyToRanges(c.Networking.ServiceSubnet, c.Networking.PodSubnet)},
			check{"ControlPlaneEndpoint", s.controlPlaneEndpoint},
		)
		if c.Etcd.External == nil {
			list = append(list,
				s.port(config.EtcdClientPort, "etcd"),
				s.port(config.EtcdPeerPort, "etcd"),
			)
		} else if s.Role == Init || c.CertificateKey == "" { // otherwise join downloads them later
			list = append(list,
				check{"ExternalEtcdClientCertificates", s.externalEtcdCertificates},
				check{"ExternalEtcdVersion", s.externalEtcdVersion},
			)
		}
	}
	if s.Role == Join {
		list = append(list, check{"KubernetesVersion", s.kubernetesVersion})
	}
	if s.Role != Init {
		list = append(list,
			s.fileAvailable(config.KubernetesDir+"/kubelet.conf"),
			s.fileAvailable(config.KubernetesDir+"/bootstrap-kubelet.conf"),
		)
		if s.Role == Join {
			list = append(list, s.fileAvailable(config.CertificatesDir+"/ca.crt"))
		}
		if h, _, err := net.SplitHostPort(c.Discovery.APIServerEndpoint); err == nil {
			list = append(list, check{"HTTPProxy", s.proxyTo(h)})
		}
		list = append(list, check{"NodeAddress", s.nodeAddress})
	}
	// An existing runtime that cannot be used is reported by CRI.
	for _, claim := range host.Claims(c, s.Role.controlPlane() && c.Etcd.External == nil, !s.RuntimeInUse && s.Runtime == nil) {
		list = append(list, s.dirAvailable(claim))
	}
	list = append(list,
		check{"CRI", s.runtime},
		check{"ContainerRuntimeVersion", s.runtimeVersion},
		check{"Firewalld", s.firewalld},
		check{"Swap", s.swap},
		s.needs("mount", "mounts volumes"),
		s.needs("umount", "unmounts volumes"),
		s.needs("losetup", "attaches block volumes"),
		check{"FileExisting-iptables", s.iptables},
	)
	for _, name := range extraBinaries {
		list = append(list, s.extraBinary(name))
	}
	list = append(list,
		check{"SystemVerification", s.system},
		check{"Hostname", s.hostname},
		check{"KubeletVersion", s.kubeletVersion},
		check{"Service-Kubelet", s.serviceKubelet},
		check{"Service-Containerd", s.serviceContainerd},
		s.port(config.KubeletPort, "kubelet"),
	)
	for _, name := range s.forwarding() {
		list = append(list, s.fileContent(name, "1"))
	}
	for _, name := range s.bridgeFilters() {
		list = append(list, s.bridgeFilter(name))
	}
	list = append(list, check{"ImagePull", s.images})
	if s.Role.controlPlane() {
		list = append(list, check{"Nameservers", s.nameservers})
	}
	list = append(list, s.kubeletRules()...)
	return append(list,
		check{"Systemd", s.systemd},
		check{"UserNamespace", s.userNamespace},
		check{"CRIPods", s.criPods},
		check{"KernelLog", s.kernelLog},
		check{"KernelTunables", s.kernelTunables},
		check{"Overlayfs", s.overlayfs},
		check{"DiskSpace", s.diskSpace},
		check{"DirOwner", s.dirOwner},
		check{"DirWritable", s.dirWritable},
		check{"Binaries", s.binaries},
		check{"PodNetwork", s.podNetwork},
		check{"Firewall", s.firewall},
		check{"Clock", s.clock},
	)
}

// dashed is a path in a check's name, as in kubeadm.
func dashed(path string) string { return strings.ReplaceAll(path, "/", "-") }

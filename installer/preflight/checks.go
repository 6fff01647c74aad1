package preflight

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"airlift/images"
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
	list := []check{{"IsPrivilegedUser", s.privileged}}
	switch s.Role {
	case Init:
		list = slices.Concat(list, s.controlPlaneChecks(), s.etcdChecks(false))
	case JoinControlPlane:
		list = slices.Concat(list, s.controlPlaneChecks(), s.etcdChecks(s.Config.CertificateKey != ""),
			s.joinChecks("kubelet.conf", "bootstrap-kubelet.conf"))
	case Join:
		list = append(list, check{"KubernetesVersion", s.kubernetesVersion})
		list = append(list, s.joinChecks("kubelet.conf", "bootstrap-kubelet.conf", "pki/ca.crt")...)
	}
	return append(list, s.nodeChecks()...)
}

// controlPlaneChecks are the checks of a node that will run a control plane.
func (s *subject) controlPlaneChecks() []check {
	c := s.Config
	return []check{
		{"NumCPU", s.cpus},
		{"Mem", s.memory},
		{"KubernetesVersion", s.kubernetesVersion},
		s.port(int(c.LocalAPIEndpoint.BindPort), "kube-apiserver", c.APIServer.ExtraArgs...),
		s.port(config.SchedulerPort, "kube-scheduler", c.Scheduler.ExtraArgs...),
		s.port(config.ControllerManagerPort, "kube-controller-manager", c.ControllerManager.ExtraArgs...),
		s.fileAvailable(config.ManifestsDir + "/kube-apiserver.yaml"),
		s.fileAvailable(config.ManifestsDir + "/kube-controller-manager.yaml"),
		s.fileAvailable(config.ManifestsDir + "/kube-scheduler.yaml"),
		s.fileAvailable(config.ManifestsDir + "/etcd.yaml"),
		{"HTTPProxy", s.proxyTo(c.LocalAPIEndpoint.AdvertiseAddress)},
		{"HTTPProxyCIDR", s.proxyToRanges(c.Networking.ServiceSubnet, c.Networking.PodSubnet)},
		{"ControlPlaneEndpoint", s.controlPlaneEndpoint},
		{"APIServerFlags", s.apiServerFlags},
	}
}

// etcdChecks are the checks of a control plane's etcd. The certificates of an external
// etcd cannot be checked before join downloads them.
func (s *subject) etcdChecks(downloaded bool) []check {
	switch {
	case s.runsEtcd():
		return []check{s.port(config.EtcdClientPort, "etcd"), s.port(config.EtcdPeerPort, "etcd")}
	case downloaded:
		return nil
	}
	return []check{
		{"ExternalEtcdClientCertificates", s.externalEtcdCertificates},
		{"ExternalEtcdVersion", s.externalEtcdVersion},
	}
}

// joinChecks are the checks of a node that joins a cluster. It writes the files, which
// are named relative to /etc/kubernetes.
func (s *subject) joinChecks(files ...string) (list []check) {
	for _, name := range files {
		list = append(list, s.fileAvailable(config.KubernetesDir+"/"+name))
	}
	if h, _, err := net.SplitHostPort(s.Config.Discovery.APIServerEndpoint); err == nil {
		list = append(list, check{"HTTPProxy", s.proxyTo(h)})
	}
	return append(list, check{"NodeAddress", s.nodeAddress})
}

// nodeChecks are the checks of every node.
func (s *subject) nodeChecks() (list []check) {
	// An existing runtime that cannot be used is reported by CRI.
	for _, claim := range host.Claims(s.Config, s.runsEtcd(), !s.RuntimeInUse && s.Runtime == nil) {
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
	if s.Ingress {
		for _, number := range images.IngressPorts {
			list = append(list, s.port(number, "traefik"))
		}
	}
	for _, name := range s.forwarding() {
		list = append(list, s.fileContent(name, "1"))
	}
	for _, name := range s.bridgeFilters() {
		list = append(list, s.bridgeFilter(name))
	}
	list = append(list, check{"ImagePull", s.images})
	if s.runsAPIServer() {
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
		check{"SiteFiles", s.siteFiles},
		check{"PodNetwork", s.podNetwork},
		check{"NetworkPolicy", s.networkPolicy},
		check{"Firewall", s.firewall},
		check{"Clock", s.clock},
	)
}

// dashed is a path in a check's name, as in kubeadm.
func dashed(path string) string { return strings.ReplaceAll(path, "/", "-") }

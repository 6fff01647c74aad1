package preflight

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
)

// subject is the target with what the checks need to inspect it. Checks only
// read it.
type subject struct {
	Target
	host *host.Host
	now  func() time.Time
	// lookup resolves a name on this host.
	lookup func(ctx context.Context, name string) ([]string, error)
	// encrypts reports whether a server that encrypts answers at an address, "host:port".
	encrypts func(ctx context.Context, address string) bool
	// run runs a command of the host and returns what it prints; errNoCommand if there is none.
	run func(ctx context.Context, name string, args ...string) ([]byte, error)
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
	list := []check{{"IsPrivilegedUser", s.systemChecks().privileged}}
	switch s.Role {
	case Init:
		list = slices.Concat(list, s.controlPlaneChecks(), s.etcdChecks(false))
	case JoinControlPlane:
		list = slices.Concat(list, s.controlPlaneChecks(), s.etcdChecks(s.Config.CertificateKey != ""),
			s.joinChecks("kubelet.conf", "bootstrap-kubelet.conf"))
	case Join:
		list = append(list, check{"KubernetesVersion", s.systemChecks().kubernetesVersion})
		list = append(list, s.joinChecks("kubelet.conf", "bootstrap-kubelet.conf", "pki/ca.crt")...)
	}
	return append(list, s.nodeChecks()...)
}

// controlPlaneChecks are the checks of a node that will run a control plane.
func (s *subject) controlPlaneChecks() []check {
	c := s.Config
	return []check{
		{"NumCPU", s.systemChecks().cpus},
		{"Mem", s.systemChecks().memory},
		{"KubernetesVersion", s.systemChecks().kubernetesVersion},
		s.networkChecks().port(int(c.LocalAPIEndpoint.BindPort), "kube-apiserver", c.APIServer.ExtraArgs...),
		s.networkChecks().port(config.SchedulerPort, "kube-scheduler", c.Scheduler.ExtraArgs...),
		s.networkChecks().port(config.ControllerManagerPort, "kube-controller-manager", c.ControllerManager.ExtraArgs...),
		s.fileChecks().fileAvailable(config.ManifestsDir + "/kube-apiserver.yaml"),
		s.fileChecks().fileAvailable(config.ManifestsDir + "/kube-controller-manager.yaml"),
		s.fileChecks().fileAvailable(config.ManifestsDir + "/kube-scheduler.yaml"),
		s.fileChecks().fileAvailable(config.ManifestsDir + "/etcd.yaml"),
		{"HTTPProxy", s.networkChecks().proxyTo(c.LocalAPIEndpoint.AdvertiseAddress)},
		{"HTTPProxyCIDR", s.networkChecks().proxyToRanges(c.Networking.ServiceSubnet, c.Networking.PodSubnet)},
		{"ControlPlaneEndpoint", s.networkChecks().controlPlaneEndpoint},
		{"ControlPlaneVIP", s.networkChecks().virtualAddresses},
		{"APIServerFlags", s.systemChecks().apiServerFlags},
	}
}

// etcdChecks are the checks of a control plane's etcd. The certificates of an external
// etcd cannot be checked before join downloads them.
func (s *subject) etcdChecks(downloaded bool) []check {
	switch {
	case s.runsEtcd():
		return []check{s.networkChecks().port(config.EtcdClientPort, "etcd"), s.networkChecks().port(config.EtcdPeerPort, "etcd")}
	case downloaded:
		return nil
	}
	return []check{
		{"ExternalEtcdClientCertificates", s.systemChecks().externalEtcdCertificates},
		{"ExternalEtcdVersion", s.systemChecks().externalEtcdVersion},
	}
}

// joinChecks are the checks of a node that joins a cluster. It writes the files, which
// are named relative to /etc/kubernetes.
func (s *subject) joinChecks(files ...string) (list []check) {
	for _, name := range files {
		list = append(list, s.fileChecks().fileAvailable(config.KubernetesDir+"/"+name))
	}
	if h, _, err := net.SplitHostPort(s.Config.Discovery.APIServerEndpoint); err == nil {
		list = append(list, check{"HTTPProxy", s.networkChecks().proxyTo(h)})
	}
	return append(list, check{"NodeAddress", s.networkChecks().nodeAddress})
}

// balancerChecks are the checks of a node that runs a balancer.
func (s *subject) balancerChecks() []check {
	if !s.Config.Endpoint.Balancer {
		return nil
	}
	return []check{s.networkChecks().port(config.BalancerPort, "install", config.Arg{Name: "bind-address", Value: s.Config.BalancerHost()})}
}

// registryChecks are the checks of a control plane that serves the embedded registry.
func (s *subject) registryChecks() []check {
	if !s.Config.Registry.Used || !s.runsAPIServer() {
		return nil
	}
	return []check{s.networkChecks().port(config.RegistryPort, "install")}
}

// endpointChecks are the checks of the endpoint alone.
func (s *subject) endpointChecks() []check {
	list := []check{{"ControlPlaneEndpoint", s.networkChecks().controlPlaneEndpoint}}
	if s.runsAPIServer() {
		list = append(list, check{"ControlPlaneVIP", s.networkChecks().virtualAddresses})
	}
	return append(list, s.balancerChecks()...)
}

// nodeChecks are the checks of every node.
func (s *subject) nodeChecks() (list []check) {
	// An existing runtime that cannot be used is reported by CRI.
	for _, claim := range ledger.Claims(s.Config, s.runsEtcd(), !s.RuntimeInUse && s.Runtime == nil) {
		list = append(list, s.fileChecks().dirAvailable(claim))
	}
	list = append(list,
		check{"CRI", s.systemChecks().runtime},
		check{"ContainerRuntimeVersion", s.systemChecks().runtimeVersion},
		check{"Firewalld", s.networkChecks().firewalld},
		check{"Swap", s.systemChecks().swap},
		s.fileChecks().needs("mount", "mounts volumes"),
		s.fileChecks().needs("umount", "unmounts volumes"),
		s.fileChecks().needs("losetup", "attaches block volumes"),
		check{"FileExisting-iptables", s.fileChecks().iptables},
	)
	list = slices.Concat(list, s.balancerChecks(), s.registryChecks())
	for _, name := range extraBinaries {
		list = append(list, s.kubeletChecks().extraBinary(name))
	}
	list = append(list,
		check{"SystemVerification", s.kernelChecks().system},
		check{"Hostname", s.networkChecks().hostname},
		check{"KubeletVersion", s.kubeletChecks().kubeletVersion},
		check{"Service-Kubelet", s.kubeletChecks().serviceKubelet},
		check{"Service-Containerd", s.kubeletChecks().serviceContainerd},
		s.networkChecks().port(config.KubeletPort, "kubelet"),
	)
	if s.Ingress {
		for _, number := range release.IngressPorts {
			list = append(list, s.networkChecks().port(number, "traefik"))
		}
	}
	for _, name := range s.kernelChecks().forwarding() {
		list = append(list, s.kernelChecks().fileContent(name, "1"))
	}
	for _, name := range s.kernelChecks().bridgeFilters() {
		list = append(list, s.kernelChecks().bridgeFilter(name))
	}
	list = append(list, check{"ImagePull", s.fileChecks().images})
	if s.runsAPIServer() {
		list = append(list, check{"Nameservers", s.networkChecks().nameservers})
	}
	list = append(list, s.kubeletChecks().kubeletRules()...)
	return append(list,
		check{"Systemd", s.systemChecks().systemd},
		check{"UserNamespace", s.kernelChecks().userNamespace},
		check{"CRIPods", s.kubeletChecks().criPods},
		check{"KernelLog", s.kernelChecks().kernelLog},
		check{"KernelTunables", s.kernelChecks().kernelTunables},
		check{"Overlayfs", s.kernelChecks().overlayfs},
		check{"DiskSpace", s.fileChecks().diskSpace},
		check{"DirOwner", s.fileChecks().dirOwner},
		check{"DirWritable", s.fileChecks().dirWritable},
		check{"Binaries", s.fileChecks().binaries},
		check{"SiteFiles", s.fileChecks().siteFiles},
		check{"PodNetwork", s.fileChecks().podNetwork},
		check{"NetworkPolicy", s.kernelChecks().networkPolicy},
		check{"Firewall", s.networkChecks().firewall},
		check{"Clock", s.systemChecks().clock},
	)
}

// dashed is a path in a check's name, as in kubeadm.
func dashed(path string) string { return strings.ReplaceAll(path, "/", "-") }

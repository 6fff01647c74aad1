package preflight

import (
	"context"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/gpucheck"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/runtimecheck"
	"airlift/internal/fault"
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

// A check is one row of the table. run returns its problems, none if the check
// passed; their Name is set after it.
type check struct {
	name string
	run  func(context.Context) []Problem
}

// Fail returns a problem.
func Fail(fix, format string, args ...any) []Problem {
	return []Problem{{Message: fmt.Sprintf(format, args...), Fix: fix}}
}

// Warn returns a problem that is only a warning.
func Warn(fix, format string, args ...any) []Problem {
	return []Problem{{Message: fmt.Sprintf(format, args...), Fix: fix, Warning: true}}
}

// when returns a check whose result is known without a look at the host.
func when(found bool, problems []Problem) func(context.Context) []Problem {
	return func(context.Context) []Problem {
		if !found {
			return nil
		}
		return problems
	}
}

// kubeadm's requirements for a control plane (constants.go: ControlPlaneNumCPU,
// ControlPlaneMem).
const (
	controlPlaneCPUs     = 2
	controlPlaneMemoryMB = 1700
)

// checks is the table: kubeadm's checks in its order, then Airlift's own.
func (s *subject) checks() []check {
	list := []check{{"IsPrivilegedUser", when(os.Geteuid() != 0, Fail("run it with sudo or as root", "the user is not root"))}}
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
		{"NumCPU", when(c.Facts.NumCPU < controlPlaneCPUs,
			Fail("give the host more CPUs", "the host has %d CPU(s), a control plane needs %d", c.Facts.NumCPU, controlPlaneCPUs))},
		{"Mem", when(c.Facts.MemoryBytes>>20 < controlPlaneMemoryMB,
			Fail("give the host more memory", "the host has %d MB of memory, a control plane needs %d", c.Facts.MemoryBytes>>20, controlPlaneMemoryMB))},
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
		{"ControlPlaneVIP", s.virtualAddresses},
		{"APIServerFlags", s.apiServerFlags},
	}
}

// etcdChecks are the checks of a control plane's etcd. The certificates of an external
// etcd cannot be checked before join downloads them.
func (s *subject) etcdChecks(downloaded bool) []check {
	switch {
	case s.runsEtcd():
		return []check{s.port(config.EtcdClientPort, "etcd"), s.port(config.EtcdPeerPort, "etcd"), {"EtcdUser", s.etcdUser}}
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

// ownName is the name of the processes of Airlift's services on a node.
var ownName = path.Base(host.CommandPath)

// balancerChecks are the checks of a node that runs a balancer.
func (s *subject) balancerChecks() []check {
	if !s.Config.Endpoint.Balancer {
		return nil
	}
	return []check{s.port(config.BalancerPort, ownName, config.Arg{Name: "bind-address", Value: s.Config.BalancerHost()})}
}

// registryChecks are the checks of a control plane that serves the embedded registry.
func (s *subject) registryChecks() []check {
	if !s.Config.Registry.Used || !s.runsAPIServer() {
		return nil
	}
	return []check{s.port(config.RegistryPort, ownName)}
}

// endpointChecks are the checks of the endpoint alone.
func (s *subject) endpointChecks() []check {
	list := []check{{"ControlPlaneEndpoint", s.endpointName}}
	if s.runsAPIServer() {
		list = append(list, check{"ControlPlaneVIP", s.virtualAddresses})
	}
	return append(list, s.balancerChecks()...)
}

// nodeChecks are the checks of every node.
func (s *subject) nodeChecks() (list []check) {
	// An existing runtime that cannot be used is reported by CRI.
	for _, claim := range ledger.Claims(s.Config, s.runsEtcd(), !s.RuntimeInUse && s.Runtime == nil) {
		list = append(list, s.dirAvailable(claim))
	}
	list = append(list,
		check{"CRI", when(s.Runtime != nil, Fail(fault.Hint(s.Runtime), "%v", s.Runtime))},
		check{"ContainerRuntimeVersion", s.runtimeVersion},
		check{"Firewalld", s.firewalld},
		check{"Swap", s.swap},
		s.needs("mount", "mounts volumes"),
		s.needs("umount", "unmounts volumes"),
		s.needs("losetup", "attaches block volumes"),
		check{"FileExisting-iptables", s.iptables},
	)
	list = slices.Concat(list, s.balancerChecks(), s.registryChecks())
	for _, name := range extraBinaries {
		list = append(list, s.extraBinary(name))
	}
	list = append(list,
		check{"SystemVerification", s.system},
		check{"Hostname", s.hostname},
		check{"KubeletVersion", s.kubeletVersion},
		check{"Service-Kubelet", func(ctx context.Context) []Problem { return s.service(ctx, "kubelet") }},
		check{"Service-Containerd", func(ctx context.Context) []Problem { return s.service(ctx, "containerd") }},
		s.port(config.KubeletPort, "kubelet"),
	)
	if s.Ingress {
		for _, number := range release.IngressPorts {
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
		list = append(list, check{"Nameservers", when(len(s.Config.Facts.Nameservers) == 0,
			Warn("no action needed if that is enough; otherwise add a nameserver to /etc/resolv.conf",
				"this host has no nameserver that pods can reach: the cluster's DNS will answer only names within the cluster"))})
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
		check{"Packages", s.packages},
		check{runtimecheck.Name, when(true, OfRuntime(s.ContainerdFiles))},
		check{gpucheck.Name, s.gpu},
		check{"PodNetwork", s.podNetwork},
		check{"NetworkPolicy", s.networkPolicy},
		check{"Firewall", s.firewall},
		check{"Clock", s.clock},
	)
}

// dashed is a path in a check's name, as in kubeadm.
func dashed(path string) string { return strings.ReplaceAll(path, "/", "-") }

package node

import (
	"context"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
	"airlift/installer/staticpod"
)

// Roles of a host.
const (
	ControlPlane = "control-plane"
	Worker       = "worker"
	NoNode       = "none"
)

// An Observation is what is on a host before a command changes it. Commands that show or judge a node begin with it.
type Observation struct {
	host *host.Host
	// Role and Name are of the node, as the files show it; Name is "" if no certificate has one.
	Role, Name string
	// Pods are the static pods, in order of their names. One that cannot be read has an Err.
	Pods []*staticpod.Pod
	// IsNode reports that an earlier run wrote at least a kubeconfig file: this one continues or repeats it.
	IsNode bool
	// KeepsRuntime reports that the container runtime of this host existed before Airlift. Its binaries,
	// configuration and directories are not changed.
	KeepsRuntime bool
	// KeepsPlugins reports that another tool installed the CNI plugins of this host: they are not changed.
	KeepsPlugins bool
	Runtime      *ExistingRuntime // that runtime; nil if there is none, or if it cannot be used
	RuntimeErr   error            // why it cannot be used
}

// Observe looks at the files of a host. The ledger has whose container runtime a node uses.
func Observe(h *host.Host) Observation {
	o := Observation{host: h, Role: NoNode, Name: pki.NodeName(os.DirFS(h.Path("/"))), KeepsRuntime: !h.Records().OwnsRuntime(), KeepsPlugins: h.Records().Adopted() != nil}
	o.Pods, _ = staticpod.All(h.Path(config.ManifestsDir)) // the pattern is valid
	switch {
	case o.Pod("kube-apiserver") != nil || o.Pod(EtcdPod) != nil:
		o.Role = ControlPlane
	case FileExists(h, KubeletConf):
		o.Role = Worker
	}
	o.IsNode = o.Role != NoNode
	return o
}

// ObserveRuntime looks at a host that becomes a node with the configuration c, and at its container runtime.
func ObserveRuntime(ctx context.Context, m *Machine, c *config.Config, isNode bool) Observation {
	o := Observe(m.Existing)
	o.IsNode = isNode
	o.Runtime, o.RuntimeErr = m.FindRuntime(ctx, c)
	o.KeepsRuntime = o.Runtime != nil || o.RuntimeErr != nil
	return o
}

// Pod returns a static pod, or nil.
func (o Observation) Pod(name string) *staticpod.Pod {
	if i := slices.IndexFunc(o.Pods, func(p *staticpod.Pod) bool { return p.Name == name }); i >= 0 {
		return o.Pods[i]
	}
	return nil
}

// PKI returns where the certificates of a control plane are, and whether its etcd is external, by
// the flags of its static pods. It has kubeadm's directory for a host without them.
func (o Observation) PKI() *config.Config {
	cfg := &config.Config{Cluster: config.Cluster{CertificatesDir: config.CertificatesDir}}
	api := o.Pod("kube-apiserver")
	if api == nil || api.Err != nil {
		return cfg
	}
	cfg.Cluster.CertificatesDir = certificatesDir(api.Flags)
	if o.Pod(EtcdPod) == nil {
		cfg.Etcd.External = &config.ExternalEtcd{
			Endpoints: strings.Split(api.Flags["etcd-servers"], ","), CAFile: api.Flags["etcd-cafile"], CertFile: api.Flags["etcd-certfile"], KeyFile: api.Flags["etcd-keyfile"],
		}
	}
	return cfg
}

// Identity returns which node of which cluster a host is. The error is why the CAs are not known.
func (o Observation) Identity() (ledger.Identity, error) {
	id := ledger.Identity{Node: o.Name, Role: o.Role}
	if manager := o.Pod(ControllerManager); manager != nil {
		id.Cluster = manager.Flags["cluster-name"]
	}
	ca, err := os.ReadFile(o.host.Path(path.Join(o.PKI().CertificatesDir, "ca.crt")))
	if err == nil {
		id.CAs, err = pki.CAHashes(ca)
	}
	return id, err
}

// ownFiles are the files that kubeadm gives to kube-apiserver from its directory of certificates, by their flags. Each flag may be
// set to a file of the site.
var ownFiles = map[string]string{
	"client-ca-file": "ca.crt", "tls-cert-file": "apiserver.crt", "tls-private-key-file": "apiserver.key",
	"service-account-key-file": "sa.pub", "service-account-signing-key-file": "sa.key",
	"kubelet-client-certificate": "apiserver-kubelet-client.crt", "proxy-client-cert-file": "front-proxy-client.crt", "requestheader-client-ca-file": "front-proxy-ca.crt",
}

// certificatesDir returns the directory of most of the files with kubeadm's names. Of two with as many, kubeadm's own counts, else
// the first by name.
func certificatesDir(flags map[string]string) string {
	files := map[string]int{}
	for flag, name := range ownFiles {
		if file := flags[flag]; path.IsAbs(file) && path.Base(file) == name {
			files[path.Dir(file)]++
		}
	}
	best := config.CertificatesDir
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		if files[dir] > files[best] {
			best = dir
		}
	}
	return best
}

// OSName is the name in os-release(5).
func OSName(h *host.Host) string {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		data, err := os.ReadFile(h.Path(file))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
				return strings.Trim(name, `"'`)
			}
		}
	}
	return ""
}

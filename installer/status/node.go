package status

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/pki"
	"airlift/installer/staticpod"
	"airlift/internal/fault"
)

// A Node is this host.
type Node struct {
	Name    string `json:"name"`
	Role    string `json:"role"`              // control-plane, worker, or none if it is not a node
	Version string `json:"version,omitempty"` // of its kubelet, as the cluster knows it
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"` // if it is not Ready, or why that is unknown

	Addresses     []string `json:"addresses"`
	OS            string   `json:"os"`
	Kernel        string   `json:"kernel"`
	Architecture  string   `json:"architecture"`
	UptimeSeconds int64    `json:"uptimeSeconds"`
	// Adopted is set if another tool made this node, and Airlift took it over.
	Adopted *Adoption `json:"adopted,omitempty"`
}

// nodeFiles is what the files of a host show about the node.
type nodeFiles struct {
	role string
	name string
	pods []*staticpod.Pod // of a control plane
}

const (
	kubeletConf = config.KubernetesDir + "/kubelet.conf"
	adminConf   = config.KubernetesDir + "/admin.conf"
)

func exists(h *host.Host, path string) bool {
	_, err := os.Stat(h.Path(path))
	return err == nil
}

func readNodeFiles(h *host.Host) nodeFiles {
	n := nodeFiles{role: NoNode, name: pki.NodeName(os.DirFS(h.Path("/")))}
	n.pods, _ = staticpod.All(h.Path(config.ManifestsDir))
	switch {
	case n.pod("kube-apiserver") != nil || n.pod("etcd") != nil:
		n.role = ControlPlane
	case exists(h, kubeletConf):
		n.role = Worker
	}
	return n
}

// pod returns a static pod, or nil.
func (n *nodeFiles) pod(name string) *staticpod.Pod {
	for _, p := range n.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (r *Reader) readNode(context.Context) (found result, err error) {
	n := Node{Name: r.node.name, Role: r.node.role, Architecture: runtime.GOARCH, Addresses: []string{}}
	if n.Name == "" {
		n.Name, _ = os.Hostname()
	}
	n.OS = r.osName()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err == nil {
		n.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	if data, err := os.ReadFile(r.Host.Path("/proc/uptime")); err == nil {
		seconds, _, _ := strings.Cut(string(data), ".")
		n.UptimeSeconds, _ = strconv.ParseInt(seconds, 10, 64)
	}
	addresses, err := detection.Addresses()
	for _, a := range addresses {
		n.Addresses = append(n.Addresses, a.IP.String())
	}
	if a := r.Host.Records().Adopted(); a != nil {
		n.Adopted = &Adoption{Maker: a.Maker, Kubernetes: a.Kubernetes, Time: a.Time, Notes: append([]string{}, a.Notes...)}
	}
	if file := KubeletConfigFile(r.Host); file != config.KubeletConfigFile {
		found.warn("", "the kubelet of this adopted node reads %s until its first upgrade: changes of the kubelet's configuration reach it then", file)
	}
	found.set = func(s *Status) { s.Node = n }
	if n.Role == NoNode {
		found.problem("to make it one: ./install init, or ./install join", "this host is not a node of a cluster")
	}
	return found, err
}

// osName is the name in os-release(5).
func (r *Reader) osName() string {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		data, err := os.ReadFile(r.Host.Path(file))
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

// requestTimeout limits one request to the API server.
const requestTimeout = 3 * time.Second

// connect connects to the API server: as the administrator on a control plane, as the kubelet
// on a worker.
func (r *Reader) connect(ctx context.Context) (*cluster.Client, error) {
	kubeconfig := r.Host.Path(adminConf)
	switch {
	case r.Kubeconfig != "":
		kubeconfig = r.Kubeconfig
	case r.node.role == NoNode:
		return nil, notHere{"this host is not a node of a cluster"}
	case !exists(r.Host, adminConf):
		kubeconfig = r.Host.Path(kubeletConf)
	}
	client, err := cluster.Load(kubeconfig, "")
	if err != nil {
		return nil, fault.Wrap(err, fault.Failure, "run it as root on a node, or set --kubeconfig")
	}
	client.SetTimeout(requestTimeout)
	if err := client.Reach(ctx); err != nil {
		return nil, fault.Wrap(err, fault.Failure, "see the API server's log below /var/log/pods on a control plane; more: ./install doctor")
	}
	return client, nil
}

// Connect connects to the API server, after Read.
func (r *Reader) Connect(ctx context.Context) (*cluster.Client, error) { return r.connect(ctx) }

// admin connects to the API server as an administrator.
func (r *Reader) admin() (*cluster.Client, error) {
	if r.Kubeconfig == "" && r.node.role == Worker && !exists(r.Host, adminConf) {
		return nil, notHere{"this host is a worker: run it on a control plane, or set --kubeconfig"}
	}
	return r.api()
}

// readAPI reads this node's state from the cluster, and which other nodes are not Ready.
func (r *Reader) readAPI(ctx context.Context) (found result, err error) {
	client, err := r.api()
	if err != nil {
		found.set = func(s *Status) { s.Node.Reason = "unknown: " + oneLine(err) }
		return found, err
	}
	var listing error
	if _, err := r.admin(); err == nil { // a kubelet may read only its own Node
		var nodes []cluster.NodeState
		nodes, listing = client.Nodes(ctx)
		for _, n := range nodes {
			if !n.Ready && n.Name != r.node.name {
				found.problem("on that host: ./install status", "the node %s is not Ready: %s", n.Name, n.Reason).Name = OtherNodeNotReady
			}
		}
	}
	if r.node.name == "" {
		return found, fault.New(fault.Failure, "%s does not have this node's name, or cannot be read", kubeletConf).Hint("run it with sudo or as root")
	}
	state, err := client.Node(ctx, r.node.name)
	if err != nil {
		found.set = func(s *Status) { s.Node.Reason = "unknown: " + oneLine(err) }
		return found, err
	}
	found.set = func(s *Status) {
		s.Node.Role, s.Node.Version, s.Node.Ready, s.Node.Reason = state.Role, state.Version, state.Ready, state.Reason
		if len(state.Addresses) > 0 {
			s.Node.Addresses = state.Addresses
		}
		s.Versions.Cluster = append(s.Versions.Cluster, NodeVersion{state.Name, state.Version})
	}
	if !state.Ready {
		found.problem("see the kubelet's log: journalctl -u kubelet -e", "the node is not Ready: %s", state.Reason).Name = NodeNotReady
	}
	return found, listing
}

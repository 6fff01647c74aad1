package status

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host/detection"
	"airlift/installer/node"
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

// An Adoption names the tool that made an adopted node.
type Adoption struct {
	Maker      string    `json:"maker"`
	Kubernetes string    `json:"kubernetes"` // the version when it was adopted
	Time       time.Time `json:"time"`
	Notes      []string  `json:"notes"` // what was odd
}

func (r *Reader) readNode(context.Context) (found result, err error) {
	n := Node{Name: r.node.Name, Role: r.node.Role, Architecture: runtime.GOARCH, Addresses: []string{}}
	if n.Name == "" {
		n.Name, _ = os.Hostname()
	}
	n.OS = node.OSName(r.Host)
	n.Kernel, _ = detection.Kernel()
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
	if file := node.KubeletConfigFile(r.Host); file != config.KubeletConfigFile {
		found.warn("", "the kubelet of this adopted node reads %s until its first upgrade: changes of the kubelet's configuration reach it then", file)
	}
	found.set = func(s *Status) { s.Node = n }
	if n.Role == node.NoNode {
		found.problem("to make it one: ./install init, or ./install join", "this host is not a node of a cluster")
	}
	return found, err
}

// requestTimeout limits one request to the API server.
const requestTimeout = 3 * time.Second

// connect connects to the API server: as the administrator on a control plane, as the kubelet
// on a worker.
func (r *Reader) connect(ctx context.Context) (*cluster.Client, error) {
	kubeconfig := r.Host.Path(node.AdminConf)
	switch {
	case r.Kubeconfig != "":
		kubeconfig = r.Kubeconfig
	case r.node.Role == node.NoNode:
		return nil, notHere{"this host is not a node of a cluster"}
	case !node.FileExists(r.Host, node.AdminConf):
		kubeconfig = r.Host.Path(node.KubeletConf)
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
	if r.Kubeconfig == "" && r.node.Role == node.Worker && !node.FileExists(r.Host, node.AdminConf) {
		return nil, notHere{"this host is a worker: run it on a control plane, or set --kubeconfig"}
	}
	return r.api()
}

// readAPI reads this node's state from the cluster, which other nodes are not Ready, and which runtime classes no node has.
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
		var classes []string
		if listing == nil {
			classes, listing = client.ClassesWithoutHandler(ctx, nodes)
		}
		for _, class := range classes {
			found.warn("on a node that is meant: containerd config dump | grep runtimes; ./install docs gpu", "no node has the handler of the runtime class %s: its pods do not start", class).Name = RuntimeClass
		}
		for _, n := range nodes {
			if !n.Ready && n.Name != r.node.Name {
				found.problem("on that host: ./install status", "the node %s is not Ready: %s", n.Name, n.Reason).Name = OtherNodeNotReady
			}
		}
		listing = errors.Join(listing, r.findUnrecorded(ctx, client, &found))
	}
	if r.node.Name == "" {
		return found, fault.New(fault.Failure, "%s does not have this node's name, or cannot be read", node.KubeletConf).Hint("run it with sudo or as root")
	}
	state, err := client.Node(ctx, r.node.Name)
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

// Package facts has what a host reports about itself: the JSON of the hidden command "cluster host facts".
package facts

import (
	"slices"
	"time"

	"airlift/installer/config"
)

// Facts of one host. Fields are only added. A saved plan is for the values of those with the tag plan, by that name. What a host cannot find out is in Unknown, and never a zero value that could
// be taken for an answer.
type Facts struct {
	Hostname  string    `json:"hostname"`
	MachineID string    `json:"machineID" plan:"machine-id"`
	MACs      []string  `json:"macs"`
	Addresses []string  `json:"addresses"`
	Time      time.Time `json:"time"`
	OS        string    `json:"os"`
	Arch      string    `json:"arch"` // GOARCH

	// Node is nil on a host that is no node.
	Node *Node `json:"node,omitempty"`
	// Was is the node that this host was before a reset that has begun to remove it, and has not finished.
	Was *Node `json:"was,omitempty"`
	// Cluster is what a control plane's API reports; nil on a worker and while the API is down.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Unfinished is the command whose run ended with an error or was killed; "" if there is none.
	Unfinished string `json:"unfinished,omitempty" plan:"unfinished command"`
	// Reconfiguring is the command reconfigure, or one below it, whose last run ended with an error or was killed, also if
	// another command ran since; "" if there is none.
	Reconfiguring string `json:"reconfiguring,omitempty" plan:"unfinished reconfiguration"`
	// Runs are the last commands that changed the host, the newest last.
	Runs []Run `json:"runs,omitempty"`
	// Leftovers are files of another installation that is no node of Airlift's.
	Leftovers []string `json:"leftovers,omitempty"`
	// Seed is the cluster of the seed that runs on the host, "" if none does.
	Seed string `json:"seed,omitempty" plan:"seed"`

	Unknown map[string]string `json:"unknown,omitempty"`
}

// A Run is a command that changed the host.
type Run struct {
	Command  string     `json:"command"`
	Version  string     `json:"version,omitempty"`
	Began    time.Time  `json:"began"`
	Ended    *time.Time `json:"ended,omitempty"`
	ExitCode *int       `json:"exitCode,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// A Node is what the files of a host say.
type Node struct {
	Name    string `json:"name" plan:"name"`
	Role    string `json:"role" plan:"role"` // control-plane or worker
	Airlift bool   `json:"airlift"`          // it has a ledger
	// Adopted reports whether another tool made the node, and Airlift manages it.
	Adopted bool `json:"adopted,omitempty"`
	// ClusterName is the name of the cluster in the files of a control plane, "" on a worker.
	ClusterName string `json:"clusterName,omitempty"`
	// CASHA256 is the sha256 of the certificate of the cluster's CA (kubeadm's discovery hash, sha256:hex).
	CASHA256 string `json:"caSHA256" plan:"CA"`
	// CASHA256s has all CAs while they are rotated, and is empty else.
	CASHA256s []string `json:"caSHA256s,omitempty"`
	// APIServer is the server in kubelet.conf.
	APIServer string `json:"apiServer"`
	Version   string `json:"version" plan:"version"` // of the installed kubelet, v1.37.1
	// Etcd reports whether this control plane has a stacked member.
	Etcd bool `json:"etcd,omitempty"`
	// KubeletRunning is the state of its unit.
	KubeletRunning bool `json:"kubeletRunning"`
	// KubeletConfig is the file that the kubelet of an adopted node reads until its first upgrade, "" if it reads Airlift's. Until then,
	// changes of the kubelet's configuration do not reach it.
	KubeletConfig string `json:"kubeletConfig,omitempty"`
	// Cordoned reports whether an upgrade of this node that is not finished made it unschedulable.
	Cordoned bool `json:"cordoned,omitempty" plan:"drained"`
	// NoRegistry reports whether this node is not configured for the embedded registry.
	NoRegistry bool `json:"noRegistry,omitempty" plan:"no registry"`
	// Timers are the commands that set the active timers of the host, by their names.
	Timers map[string]string `json:"timers,omitempty" plan:"timers"`
	// Registries are what it has of the registries that the site configures, without secrets; nil for nothing.
	Registries *config.RegistryRecord `json:"registries,omitempty" plan:"registries"`
	// OtherRuntime reports whether Airlift did not install its containerd, and does not change that one's configuration.
	OtherRuntime bool `json:"otherRuntime,omitempty" plan:"other runtime"`
	// Encryption is which keys for Secrets this control plane has; nil on a worker.
	Encryption *Encryption `json:"encryption,omitempty" plan:"keys of Secrets"`
}

// An Encryption is how far a control plane is from Secrets that are encrypted in etcd, and from Secrets that are not.
type Encryption struct {
	// Site is the configuration of the site with which the API server encrypts: then Airlift has no keys, and there are no steps.
	Site string `json:"site,omitempty"`
	// Steps is how often the keys have to change, on all control planes, by the command that does it. A command that must not run now is
	// not in it.
	Steps map[string]int `json:"steps"`
	// Began reports whether this host has begun such a change, and not finished it.
	Began bool `json:"began,omitempty"`
}

// A Cluster is the state of the cluster as one of its API servers has it.
type Cluster struct {
	Name                 string `json:"name" plan:"name"`
	Version              string `json:"version" plan:"version"` // of the stored ClusterConfiguration
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint,omitempty" plan:"endpoint"`
	// EndpointAddresses are the IP addresses of the endpoint, also if it is a name.
	EndpointAddresses []string      `json:"endpointAddresses,omitempty"`
	VIP               []string      `json:"vip,omitempty" plan:"virtual addresses"`
	Balancer          bool          `json:"balancer,omitempty" plan:"balancer"`
	EmbeddedRegistry  bool          `json:"embeddedRegistry,omitempty" plan:"registry"`
	Bundles           []string      `json:"bundles,omitempty"` // IDs of the files that the registry keeps
	Nodes             []ClusterNode `json:"nodes"`
	EtcdMembers       []EtcdMember  `json:"etcdMembers,omitempty"`
	// BlockedBy are PodDisruptionBudgets that allow no disruption now, by the node of a pod that they protect.
	BlockedBy map[string][]string `json:"blockedBy,omitempty"`
	// BarePods are the pods that no controller creates again, by node, as namespace/name.
	BarePods map[string][]string `json:"barePods,omitempty"`
	// Pods are what a drain of a node moves to other nodes, by node.
	Pods map[string][]PodGroup `json:"pods,omitempty"`
	// AddonsWait reports whether kube-proxy has an older version than the cluster: the add-ons wait for the images of all nodes.
	AddonsWait bool `json:"addonsWait,omitempty" plan:"add-ons wait"`
	// EndpointWaits reports whether kube-proxy and flannel do not use the endpoint yet after its last change.
	EndpointWaits bool `json:"endpointWaits,omitempty" plan:"endpoint waits"`
	// FormerEndpoint is the server, "host:port", that kube-proxy, flannel or nodes that are behind may still use after the last change
	// of the endpoint; "" for none.
	FormerEndpoint string `json:"formerEndpoint,omitempty" plan:"former endpoint"`
	// EndpointUndone reports whether the last change of the endpoint undid one.
	EndpointUndone bool `json:"endpointUndone,omitempty" plan:"endpoint undone"`
	// Profile is the profile with which its configuration was hardened, "" for none.
	Profile string `json:"profile,omitempty" plan:"profile"`
	// StaleSecrets is how many Secrets etcd has in another form than the API server of this host writes them.
	StaleSecrets int `json:"staleSecrets,omitempty"`
	// Gate is what the last batch of a roll still has to pass; nil if there is nothing.
	Gate *Gate `json:"gate,omitempty"`
	// Stored are the versions of the ConfigMaps with the configuration, by name. A value that no plan shows has another one, too.
	Stored map[string]string `json:"stored,omitempty"`
}

// A PodGroup is the pods of one workload on one node.
type PodGroup struct {
	Workload string `json:"workload"` // namespace/name
	Pods     int    `json:"pods"`
	// Only reports whether no other node has a pod of it: requests to it may fail until one is Ready there.
	Only bool `json:"only,omitempty"`
}

// A ClusterNode is a Node object.
type ClusterNode struct {
	Name          string            `json:"name"`
	ControlPlane  bool              `json:"controlPlane" plan:"control plane"`
	Ready         bool              `json:"ready"`
	Version       string            `json:"version" plan:"Node"`
	Unschedulable bool              `json:"unschedulable,omitempty" plan:"unschedulable"`
	Labels        map[string]string `json:"labels"`
	Taints        []string          `json:"taints"`
	// Addresses are its IP addresses in the cluster.
	Addresses []string `json:"addresses,omitempty"`
	// ManagedLabels and ManagedTaints are the keys that an earlier apply set: what is no longer in the file goes. Taints are
	// key:Effect; one that begins with - is kubeadm's taint of control planes, which apply removed.
	ManagedLabels []string `json:"managedLabels,omitempty"`
	ManagedTaints []string `json:"managedTaints,omitempty"`
	// EndpointBehind reports whether the node has not followed the last change of the endpoint.
	EndpointBehind bool `json:"endpointBehind,omitempty" plan:"endpoint behind"`
	// EndpointServes reports whether a control plane that is behind has done what it can alone: it serves the endpoint, and
	// follows the change when the other nodes have done the same.
	EndpointServes bool `json:"endpointServes,omitempty" plan:"serves the endpoint"`
	// ConfigurationBehind reports whether the node has not followed the last reconfiguration of the cluster.
	ConfigurationBehind bool `json:"configurationBehind,omitempty" plan:"configuration behind"`
}

// An EtcdMember is a member of the stacked etcd.
type EtcdMember struct {
	Name    string `json:"name"`
	Healthy bool   `json:"healthy"` // and votes: a learner is not
	// Learner reports whether it does not vote yet: it does not count for the quorum.
	Learner bool `json:"learner,omitempty"`
}

// MemberIsDown reports whether etcd has a member that does not serve.
func (c *Cluster) MemberIsDown(name string) bool {
	return slices.ContainsFunc(c.EtcdMembers, func(m EtcdMember) bool { return m.Name == name && !m.Healthy })
}

// Keeps reports whether the embedded registry keeps a file, by its ID.
func (c *Cluster) Keeps(id string) bool { return slices.Contains(c.Bundles, id) }

// Package diagnosis explains what a test of a cluster observed: it is a pure function from observations to findings. A finding
// names the layer that fails, the nodes, and what to type.
package diagnosis

// A Kind is what was observed.
type Kind string

// The kinds. From and To are names of nodes.
const (
	NodeReady   Kind = "node"         // From is Ready
	Component   Kind = "component"    // a pod of the system on From, whose name is Via, is ready
	PodRuns     Kind = "pod-start"    // a pod of the test started on From
	ProbeRuns   Kind = "probe"        // the pod that tests from From has reported
	Forwarding  Kind = "forwarding"   // the kernel of From forwards packets of the family Via
	Route       Kind = "route"        // From has a route to the pods of To
	ProxyHealth Kind = "proxy-health" // kube-proxy on From reports that it is healthy
	HostReach   Kind = "host"         // the host From reaches the host To
	HostLarge   Kind = "host-large"   // with packets of the interface's MTU
	PodReach    Kind = "pod"          // a pod on From reaches a pod on To
	PodHeard    Kind = "pod-heard"    // the pod on To received packets from From, whether or not answers arrive
	PodLarge    Kind = "pod-large"    // with packets of the interface's MTU
	PodBulk     Kind = "pod-bulk"     // with a TCP connection that transfers much
	HostPod     Kind = "host-pod"     // the host From reaches a pod on To
	DNSPods     Kind = "dns-pods"     // the cluster has a DNS pod that is ready
	DNSPod      Kind = "dns-pod"      // the DNS pod Via on To answers pods on From
	DNSService  Kind = "dns-service"  // the Service of DNS, at Via, answers pods on From
	Resolver    Kind = "resolver"     // a pod on From resolves a name as applications do
	Service     Kind = "service"      // a Service with pods on all nodes answers From
	LocalProxy  Kind = "local"        // a Service whose only pod for From is on From answers it
	NodePort    Kind = "node-port"    // a port of the host To leads From to a Service
	HostPort    Kind = "host-port"    // a port of the host To leads From to the pod on To
	Policy      Kind = "policy"       // the NetworkPolicy of the test holds back From at the pod on To
	Volume      Kind = "volume"       // a volume of the default StorageClass was created and written
	Pull        Kind = "pull"         // From pulled an image from the embedded registry
	Registry    Kind = "registry"     // From reaches the embedded registry of To
	API         Kind = "api"          // From reaches the API at Via; To is the node of that API server, "" if there are several
	// A Service of type LoadBalancer has an address of the family Via, or what keeps it from that: AddressPool, AddressPools, AddressDecider or AddressTable.
	AddressGiven Kind = "address"
	AddressNode  Kind = "address-node"  // the load balancer gave the address Via to a node, To
	AddressHeard Kind = "address-heard" // on the network of From, To answers for the address Via, and no other host does
	AddressReach Kind = "address-reach" // From reaches the Service at its address Via, through the kube-proxy of From
	Clock        Kind = "clock"         // the clocks of From and To agree
	Steady       Kind = "steady"        // no request of From to Via was lost while the test ran
)

// Kinds are all kinds, in the order in which people read them.
var Kinds = []Kind{
	NodeReady, Component, PodRuns, ProbeRuns, Clock, HostReach, HostLarge, Forwarding, Route, PodReach, PodHeard, PodLarge, PodBulk, HostPod,
	ProxyHealth, LocalProxy, Service, NodePort, HostPort, DNSPods, DNSPod, DNSService, Resolver, Policy, API, Registry, Pull, Volume,
	AddressGiven, AddressNode, AddressHeard, AddressReach, Steady,
}

// Via of an AddressGiven that failed.
const (
	AddressPools   = "pools"   // the ConfigMap is refused
	AddressPool    = "pool"    // the pool gives no address
	AddressDecider = "decider" // no node decides
	AddressTable   = "table"   // the assignments cannot be read
)

// NoNode and SeveralHosts are parts of Detail of an AddressHeard: a host that is no node answers, or several nodes do.
const (
	NoNode       = "which is no node of the cluster"
	SeveralHosts = "several nodes answer"
)

// Places from which a request was made.
const (
	FromPod  = "pod"
	FromHost = "host"
)

// An Observation is one thing that was tried, and whether it succeeded.
type Observation struct {
	Kind   Kind   `json:"kind"`
	From   string `json:"from,omitempty"`
	Place  string `json:"place,omitempty"` // FromPod, FromHost, or ""
	To     string `json:"to,omitempty"`
	Via    string `json:"via,omitempty"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // why it failed
}

// Facts are what findings name, and what is no observation.
type Facts struct {
	// Nodes are the names of all nodes, in the order in which texts list them.
	Nodes []string
	// Planes are the nodes with API servers.
	Planes []string
	// Tunnel is what carries packets between pods of different nodes, "UDP 8472 (vxlan)"; "" if that is not known.
	Tunnel string
	// Network is the namespace and the label of the pods of the pod network, "kube-flannel app=flannel"; "" if that is not known.
	Network string
}

// A Finding is one cause of failed observations. Its JSON is documented in docs/test.md: fields are only added.
type Finding struct {
	Name     string   `json:"name"` // for scripts
	Layer    string   `json:"layer"`
	Nodes    []string `json:"nodes"`
	Text     string   `json:"text"`
	Evidence []string `json:"evidence"` // at most maxEvidence failures that it explains, each another text
	Fix      string   `json:"fix"`      // what to type
	Explains int      `json:"explains"` // how many failed observations

	claims []int
}

// maxEvidence keeps a finding on a screen.
const maxEvidence = 3

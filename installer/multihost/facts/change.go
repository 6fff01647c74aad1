package facts

// A Change is what a host reports that a reconfiguration would change, without changing it: the JSON of
// "reconfigure --plan -o json" and "reconfigure node --plan -o json", as far as a plan needs it.
type Change struct {
	// Nodes are all nodes, the host's own first; on a worker, only that one.
	Nodes   []ChangedNode `json:"nodes"`
	Changes []FileChange  `json:"changes"`
	// Certificates are certificates of the host that get other names.
	Certificates []CertificateChange `json:"certificates"`
	// Marks are labels and taints of the node.
	Marks []string `json:"marks"`
	// AddOns are workloads whose pods are replaced on all nodes.
	AddOns []string `json:"addOns"`
	// Images reports whether images of this node get other names.
	Images   bool      `json:"images"`
	Refused  []Refusal `json:"refused"`
	Warnings []Finding `json:"warnings"`
	Errors   []Finding `json:"errors"`
}

// A ChangedNode is a node with what restarts there, in order. Command is what to run there, "" for nothing.
type ChangedNode struct {
	Name     string   `json:"name"`
	Restarts []string `json:"restarts"`
	Command  string   `json:"command"`
}

// A FileChange is a file of the host, or an object of the cluster, with its unified diff. Diff is "" if it has secrets.
type FileChange struct {
	Name    string `json:"name"`
	Diff    string `json:"diff"`
	Removed bool   `json:"removed,omitempty"` // the file is removed
}

// Instead returns what a plan prints where there is no diff, "" if there is one.
func (f FileChange) Instead() string {
	switch {
	case f.Removed:
		return "the file is removed"
	case f.Diff == "":
		return "its contents are not shown"
	}
	return ""
}

// A CertificateChange is a certificate with its names that are new and those that go.
type CertificateChange struct {
	File    string   `json:"file"`
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
}

// A Refusal is a value that a running cluster cannot change: why, and what is needed instead.
type Refusal struct {
	Field  string `json:"field"` // ClusterConfiguration.networking.podSubnet, with its place in the file in front
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
	Needed string `json:"needed"`
}

// A Finding is what a check found.
type Finding struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

package ledger

// Names of entries of the kind Reset.
const (
	Node   = "node"   // this host's member has left etcd
	Traces = "traces" // another tool made the node, and reset assumed what the other entries list
	Disown = "disown" // the adoption of the node ends, and the node stays
)

// Ends are the records of commands that end a node or its adoption, and have not finished.
type Ends struct{ records *Records }

// Ends returns the records of commands that have not finished.
func (r *Records) Ends() Ends { return Ends{r} }

func (e Ends) began(name string) bool {
	_, ok := e.records.Find(Reset, name)
	return ok
}

// An Identity is what a node is. "" and nil are not known.
type Identity struct {
	Node    string   `json:"node,omitempty"`    // its name
	Role    string   `json:"role,omitempty"`    // control-plane or worker
	Cluster string   `json:"cluster,omitempty"` // the name of its cluster; a worker does not know it
	CAs     []string `json:"cas,omitempty"`     // hashes of the public keys of the cluster's CAs, sha256:hex
}

// BeginReset records that reset begins to remove a node: this host's member has left etcd. A later reset finds only a part of
// the node, so the first record stays.
func (e Ends) BeginReset(of Identity) error {
	if was := e.Was(); was != nil {
		of = *was
	}
	return e.records.Record(Entry{Kind: Reset, Name: Node, Of: &of})
}

// Was returns the node that reset began to remove; nil if none has begun, or an older installer began it.
func (e Ends) Was() *Identity {
	entry, _ := e.records.Find(Reset, Node)
	return entry.Of
}

// ResetBegan reports whether reset began to remove the node, and has not finished.
func (e Ends) ResetBegan() bool { return e.began(Node) }

// AssumedTraces reports whether reset began to remove a node that Airlift did not install, and has not finished.
func (e Ends) AssumedTraces() bool { return e.began(Traces) }

// BeginDisown records that the adoption ends and the node stays. It is one write, which also drops what reset would restore.
func (e Ends) BeginDisown() error {
	r := e.records
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLedger(Path, []Entry{{Kind: Reset, Name: Disown}})
}

// DisownBegan reports whether the adoption is ending, and has not ended: reset may have ended it, to remove the node.
func (e Ends) DisownBegan() bool { return e.records.Adopted() != nil && e.began(Disown) }

// Forget forgets that a reset has begun: this host becomes a node.
func (e Ends) Forget() error {
	for _, name := range []string{Node, Traces} {
		if err := e.records.Forget(Reset, name); err != nil {
			return err
		}
	}
	return nil
}

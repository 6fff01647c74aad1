package ledger

// Names of entries of the kind Reset.
const (
	Node   = "node"   // this host's member has left etcd
	Traces = "traces" // another tool made the node, and reset assumed what the other entries list
	Disown = "disown" // the adoption of the node ends, and the node stays
)

func (r *Records) began(name string) bool {
	_, ok := r.Find(Reset, name)
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
func (r *Records) BeginReset(of Identity) error {
	if was := r.Was(); was != nil {
		of = *was
	}
	return r.Record(Entry{Kind: Reset, Name: Node, Of: &of})
}

// Was returns the node that reset began to remove; nil if none has begun, or an older installer began it.
func (r *Records) Was() *Identity {
	entry, _ := r.Find(Reset, Node)
	return entry.Of
}

// ResetBegan reports whether reset began to remove the node, and has not finished.
func (r *Records) ResetBegan() bool { return r.began(Node) }

// AssumedTraces reports whether reset began to remove a node that Airlift did not install, and has not finished.
func (r *Records) AssumedTraces() bool { return r.began(Traces) }

// BeginDisown records that the adoption ends and the node stays. It is one write, which also drops what reset would restore.
func (r *Records) BeginDisown() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLedger(Path, []Entry{{Kind: Reset, Name: Disown}})
}

// DisownBegan reports whether the adoption is ending, and has not ended: reset may have ended it, to remove the node.
func (r *Records) DisownBegan() bool { return r.Adopted() != nil && r.began(Disown) }

// ForgetReset forgets that a reset has begun: this host becomes a node.
func (r *Records) ForgetReset() error {
	for _, name := range []string{Node, Traces} {
		if err := r.Forget(Reset, name); err != nil {
			return err
		}
	}
	return nil
}

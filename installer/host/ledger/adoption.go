package ledger

import (
	"slices"
	"time"
)

// An Adoption records that another tool made this node, and what Airlift found when it adopted the node.
type Adoption struct {
	Maker      string         `json:"maker"`      // the tool that made the node, as kubeadm or KubeKey
	Kubernetes string         `json:"kubernetes"` // the kubelet's version at that time, v1.29.15
	Time       time.Time      `json:"time"`
	Kubelet    AdoptedKubelet `json:"kubelet"`
	// Files has the sha256 of the node's files that commands may replace, by their path.
	Files map[string]string `json:"files,omitempty"`
	// Keeps are the add-ons that upgrades do not change, because the node's maker installs them in another way: "coredns",
	// "kube-proxy".
	Keeps []string `json:"keeps,omitempty"`
	// Notes are what was odd, a line each.
	Notes []string `json:"notes,omitempty"`
}

// An AdoptedKubelet is the kubelet that ran when the node was adopted.
type AdoptedKubelet struct {
	Binary string   `json:"binary"`           // path
	Args   []string `json:"args,omitempty"`   // without the name of the binary
	Config string   `json:"config,omitempty"` // path of its configuration file
}

// Found reports whether adopt found a file with this sha256 at the path. a may be nil: then it found nothing.
func (a *Adoption) Found(path, sum string) bool { return a != nil && sum != "" && a.Files[path] == sum }

// Adopted returns what adopt found on this node; nil if Airlift installed it. It must not be changed.
func (r *Records) Adopted() *Adoption {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.document.Adopted
}

// Adopt records that Airlift takes over a node that another tool made. It is one write.
func (r *Records) Adopt(a Adoption) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeDocument(Path, Document{Entries: r.document.Entries, Adopted: &a})
}

// EndAdoption makes the node one that Airlift installed, in memory: reset is about to remove it. The entries of these files
// go, too. Commit writes that, or the next change of the ledger.
func (r *Records) EndAdoption(files []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.document.Adopted, r.assumed = nil, true
	r.document.Entries = slices.DeleteFunc(slices.Clone(r.document.Entries), func(e Entry) bool { return e.Kind == File && slices.Contains(files, e.Name) })
}

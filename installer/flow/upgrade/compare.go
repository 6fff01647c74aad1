package upgrade

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/reconfiguration"
	"airlift/installer/workflow"
)

// Edits are what was edited by hand on a node and is kept.
type Edits struct {
	List     []AdoptedEdit
	Instance []byte   // KubeletInstanceConfigPath with the fields of this node, nil if it stays
	Claims   []string // files of this node whose contents the ledger takes over
}

// An AdoptedEdit is a file that was edited by hand, and where the edit is kept.
type AdoptedEdit struct {
	File string `json:"file"`
	To   string `json:"to"` // "ClusterConfiguration.apiServer", "this node"
}

// A Comparison is what a node and the cluster have, and what the stored configuration gives them.
type Comparison struct {
	Files   []ComparedFile        // the files that reconfigure --restore writes
	Objects []*cluster.Difference // the objects that it changes
	Client  *cluster.Client
	Config  *config.Config // of this node, complete
	Kubelet []byte         // the KubeletConfiguration of all nodes
	// Instance are the fields of it that only this node has, nil for none.
	Instance []byte
	// Follows reports whether this node has followed the last reconfiguration; Unfinished, whether one on this node was interrupted.
	Follows, Unfinished bool
}

// A ComparedFile is a file of a node.
type ComparedFile struct {
	Path        string
	Wanted, Now []byte // Now is nil if it does not exist
	// Edited reports whether the file was edited or removed since Airlift wrote it, and is not as the stored configuration gives it;
	// Claimable, whether it has other contents than Airlift wrote.
	Edited, Claimable bool
	Carried           bool // a reconfiguration brought it
	Secret            bool // its contents must not be shown
}

// Compare compares this node and the cluster with what the stored configuration gives, for a Reconfigure with the option Restore.
func (r *Reconfigure) Compare(ctx context.Context) (*Comparison, error) {
	u, c := r.run, r.change
	if err := u.learn(ctx); err != nil {
		return nil, err
	}
	if err := r.checkHost(); err != nil {
		return nil, err
	}
	p := &Comparison{Client: u.facts.api.Client, Config: c.former, Unfinished: u.record.unfinished()}
	self, err := p.Client.Node(ctx, p.Config.NodeRegistration.Name)
	if err != nil {
		return nil, err
	}
	p.Follows = u.facts.stored.Cluster.Reconfiguration.Follows(self.Reconfiguration, c.isControlPlane())
	wants, err := workflow.Desired(ctx, r.Steps())
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(wants.Files, func(f pki.File) bool { return f.Path == config.KubeletFlagsFile }) { // the cluster does not store its contents
		wants.Files = append(wants.Files, pki.File{Path: config.KubeletFlagsFile})
	}
	for _, f := range wants.Files {
		one := ComparedFile{Path: f.Path, Wanted: f.Data, Secret: u.isSecret(f.Path)}
		one.Carried = slices.ContainsFunc(c.carried.files, func(k reconfiguration.File) bool { return k.Path == f.Path })
		if one.Now, err = u.facts.node.Present(f.Path); err != nil {
			return nil, err
		}
		if one.Claimable, err = u.facts.editedByHand(f.Path); err != nil {
			return nil, err
		}
		_, recorded := u.facts.node.Existing.Records().Find(ledger.File, f.Path)
		one.Edited = !bytes.Equal(one.Now, f.Data) && (one.Claimable && !c.isConfigured(f.Path, one.Now) || recorded && one.Now == nil)
		p.Files = append(p.Files, one)
	}
	if p.Objects, err = u.compared(ctx, wants.Objects); err != nil {
		return nil, err
	}
	if p.Kubelet, err = u.kubelet.shared(); err != nil {
		return nil, err
	}
	s, err := u.kubelet.settings(c.former)
	p.Instance = s.instance
	return p, err
}

// Gives returns the manifests of the static pods and the kubelet's configuration that a configuration of this node gives, by path,
// after Compare. edits may be nil.
func (r *Reconfigure) Gives(c config.Config, edits *Edits) (map[string][]byte, error) {
	r.change.options.Edits = edits
	plan, err := r.run.facts.complete(&c)
	if err != nil {
		return nil, err
	}
	s, err := r.run.kubelet.settings(plan.Config)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{config.KubeletConfigFile: s.data}
	if !r.change.isControlPlane() {
		return files, nil
	}
	pods, err := r.run.controlPlane.rendered(plan.Config, func(string, []string) {})
	for name, manifest := range pods {
		files[node.ManifestPath(name)] = manifest
	}
	return files, err
}

// isEdit reports whether a file was edited since Airlift wrote it, and is not as the stored configuration gives it.
func (c *change) isEdit(file string) (bool, error) {
	edited, err := c.run.facts.editedByHand(file)
	if err != nil || !edited {
		return false, err
	}
	now, err := c.run.facts.node.Present(file)
	if err != nil {
		return false, err
	}
	return !c.isConfigured(file, now), nil
}

// isConfigured reports whether the stored configuration gives a file its contents. It is false if that cannot be computed.
func (c *change) isConfigured(file string, now []byte) bool {
	if c.former == nil || now == nil {
		return false
	}
	if slices.ContainsFunc(c.carried.before, func(f reconfiguration.File) bool { return f.Path == file && bytes.Equal(f.Data, now) }) {
		return true
	}
	switch {
	case file == config.KubeletConfigFile:
		s, err := c.run.kubelet.settings(c.former)
		return err == nil && reconfiguration.SameDocument(now, s.data)
	case path.Dir(file) == config.ManifestsDir && c.isControlPlane():
		was, err := c.run.controlPlane.rendered(c.former, func(string, []string) {})
		return err == nil && reconfiguration.SamePod(now, was[strings.TrimSuffix(path.Base(file), ".yaml")])
	}
	return false
}

// takeOver records that files which were edited by hand, and are as this run wants them, are Airlift's from now on. Undo of this
// run takes that back.
func (c *change) takeOver() error {
	files, err := c.localFiles()
	if err != nil {
		return err
	}
	n, r, list := c.run.facts.node, c.run.record, []string{}
	if c.options.Edits != nil {
		list = append(list, c.options.Edits.Claims...)
	}
	for _, f := range files {
		now, err := n.Present(f.Path)
		if err != nil {
			return err
		}
		if bytes.Equal(now, f.Data) {
			list = append(list, f.Path)
		}
	}
	for _, file := range list {
		edited, err := c.run.facts.editedByHand(file)
		if err != nil {
			return err
		}
		if !edited {
			continue
		}
		if c.options.Edits != nil {
			if err := r.begin(); err != nil {
				return err
			}
		}
		if r.unfinished() {
			if err := r.state.TakeOver(n.Host, file); err != nil {
				return err
			}
		}
		now, err := n.Present(file)
		if err == nil {
			err = node.RecordWritten(n.Host, file, filesystem.Digest(now))
		}
		if err != nil {
			return err
		}
		n.Console.Note("%s stays as it was edited", file)
	}
	return nil
}

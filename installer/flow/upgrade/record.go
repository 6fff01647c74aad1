package upgrade

import (
	"slices"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// A record is this host's record of an upgrade, or of a reconfiguration. Undo and a run that continues it read it.
type record struct {
	machine *node.Machine
	bundle  *payload.Bundle
	from    string             // the version of this node's kubelet when the run began
	state   *node.UpgradeState // nil if there is nothing to upgrade

	reconfigures   bool
	change         string                     // of a reconfiguration, see node.UpgradeState
	parts, readers []string                   // of a reconfiguration, see node.UpgradeState
	followers      string                     // of a reconfiguration, see node.UpgradeState
	last           config.Reconfiguration     // of the cluster
	followed       int                        // the number that this node follows when a reconfiguration begins
	readersOf      func(path string) []string // of a reconfiguration: what must restart to read a file
	begun          bool                       // this run has begun
	resumes        bool                       // this run continues one that was interrupted
}

// read reads the record on this host.
func (r *record) read() (err error) {
	read := node.ReadUpgradeState
	if r.reconfigures {
		read = node.ReadReconfigureState
	}
	r.state, err = read(r.machine.Existing)
	r.resumes = r.resumes || !r.begun && r.unfinished()
	return err
}

// write writes the record to this host.
func (r *record) write() error { return r.state.Write(r.machine.Host) }

// unfinished reports whether an upgrade has begun, and not all of its steps have run.
func (r *record) unfinished() bool { return r.state != nil && !r.state.Finished }

// files are the files of the upgrade or of the reconfiguration.
func (r *record) files() host.Upgrades {
	if r.reconfigures {
		return r.machine.Host.Upgrades().Reconfigurations()
	}
	return r.machine.Host.Upgrades()
}

// former returns the files from before the upgrade of this node.
func (r *record) former() host.Kept { return r.state.Kept(r.machine.Host) }

// attempt returns the files from before this attempt.
func (r *record) attempt() host.Kept { return r.files().Kept(node.AttemptName) }

// begin records the upgrade of this node, or another attempt, before its first change. The run may
// be interrupted after each change: until the new state is written, the previous upgrade can still
// be undone.
func (r *record) begin() error {
	if r.unfinished() {
		r.begun = true
		return r.checkGoal()
	}
	if err := r.attempt().Remove(); err != nil {
		return err
	}
	r.begun = true
	if r.state != nil && r.isGoal() && (!r.reconfigures || !r.state.Overtaken(r.last)) {
		// Undo still returns to the version before this one, and to its data.
		r.state.Finished = false
		r.state.Parts, r.state.Readers = union(r.state.Parts, r.parts), union(r.state.Readers, r.readers)
		return r.write()
	}
	s := &node.UpgradeState{From: r.from, To: r.bundle.KubernetesVersion(), Bundle: r.bundle.ID(), Change: r.change, Parts: r.parts, Readers: r.readers, Followers: r.followers}
	if r.state != nil {
		s.Pending = r.state.Pending
	}
	s.Number, s.Stored, s.Began, s.Followed = r.last.Number, r.last.Stored, r.last, r.followed
	if r.state != nil && r.state.FormerName() == s.FormerName() { // undo of it is refused: the cluster was reconfigured since
		if err := r.former().Remove(); err != nil {
			return err
		}
	}
	if err := s.Write(r.machine.Host); err != nil {
		return err
	}
	r.state = s
	return r.files().RemoveKept(s.FormerName())
}

// endOvertaken ends a reconfiguration that was finished once, if the cluster was reconfigured since: undo of it is refused.
func (r *record) endOvertaken() {
	if r.unfinished() && r.state.WasFinished && r.state.Overtaken(r.last) {
		r.state.Finished, r.resumes = true, false
	}
}

func union(a, b []string) []string {
	return append(slices.Clip(a), slices.DeleteFunc(slices.Clone(b), func(s string) bool { return slices.Contains(a, s) })...)
}

// isGoal reports whether the record is of an upgrade to this version, or of a reconfiguration with this configuration.
func (r *record) isGoal() bool {
	return r.state.To == r.bundle.KubernetesVersion() && r.state.Change == r.change
}

// checkGoal refuses to continue the upgrade to another version, or a reconfiguration with another configuration.
func (r *record) checkGoal() error {
	switch {
	case !r.unfinished():
		return nil
	case r.reconfigures && r.state.Overtaken(r.last) && r.state.WasFinished:
		return fault.New(fault.Preflight, "the last run of this node's reconfiguration was not finished, and the cluster was reconfigured since").
			Hint("follow the cluster: ./install reconfigure node")
	case r.reconfigures && r.state.Overtaken(r.last):
		return fault.New(fault.Preflight, "a reconfiguration of this node was not finished, and the cluster was reconfigured since").
			Hint("undo it on this node: ./install reconfigure undo; then follow the cluster: ./install reconfigure node")
	case r.isGoal():
		return nil
	case r.reconfigures:
		return fault.New(fault.Preflight, "a reconfiguration of this node with another configuration was not finished").
			Hint("finish it with that configuration, or undo it: ./install reconfigure undo")
	}
	return fault.New(fault.Preflight, "an upgrade of this node to %s was not finished", r.state.To).Hint("finish it with that file, or undo it: ./install upgrade undo")
}

// finish records that all steps have run, and removes what only they needed.
func (r *record) finish() error {
	if r.unfinished() {
		if err := r.files().RemoveKept(r.state.FormerName()); err != nil {
			return err
		}
		r.state.Finished = true
		if err := r.write(); err != nil {
			return err
		}
		r.machine.Changed(true)
	}
	if r.reconfigures {
		return nil
	}
	if err := r.endReconfiguration(); err != nil {
		return err
	}
	return r.files().RemoveStaged()
}

// endReconfiguration removes what undo of a reconfiguration with another file would restore: its manifests have the images of that
// file.
func (r *record) endReconfiguration() error {
	s, err := node.ReadReconfigureState(r.machine.Existing)
	if err != nil || s == nil || s.To == r.bundle.KubernetesVersion() && s.Bundle == r.bundle.ID() {
		return err
	}
	return r.machine.Host.Upgrades().Reconfigurations().RemoveUpgrade()
}

// restarted records that a component has read what this record wrote.
func (r *record) restarted(name string) error { return r.state.SetRestarted(r.machine.Host, name) }

// startEtcd records the image of the new etcd before the kubelet can start it.
func (r *record) startEtcd(image string) error {
	next := *r.state
	next.EtcdStarted = image
	if err := next.Write(r.machine.Host); err != nil {
		return err
	}
	r.state = &next
	return nil
}

// writeKept writes files, and keeps the previous ones for undo. It reports whether one changed.
func (r *record) writeKept(files ...pki.File) (changed bool, err error) {
	differ, err := r.machine.Differing(files...)
	if err != nil {
		return false, err
	}
	for _, f := range differ {
		if err := r.begin(); err != nil {
			return changed, err
		}
		if err := r.former().Keep(f.Path); err != nil {
			return changed, err
		}
		if r.readersOf != nil {
			if err := r.state.Pend(r.machine.Host, r.readersOf(f.Path)...); err != nil {
				return changed, err
			}
		}
		before := r.machine.Changes
		if err := r.machine.Write(f.File); err != nil {
			return changed, err
		}
		changed = changed || r.machine.Changes > before
	}
	return changed, nil
}

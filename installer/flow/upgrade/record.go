package upgrade

import (
	"bytes"

	"airlift/fault"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pki"
)

// A record is this host's record of an upgrade. Undo and a run that continues the upgrade read it.
type record struct {
	machine *node.Machine
	bundle  *payload.Bundle
	from    string             // the version of this node's kubelet when the run began
	state   *node.UpgradeState // nil if there is nothing to upgrade
}

// read reads the record on this host.
func (r *record) read() (err error) {
	r.state, err = node.ReadUpgradeState(r.machine.Existing)
	return err
}

// write writes the record to this host.
func (r *record) write() error { return r.state.Write(r.machine.Host) }

// unfinished reports whether an upgrade has begun, and not all of its steps have run.
func (r *record) unfinished() bool { return r.state != nil && !r.state.Finished }

// former returns the files from before the upgrade of this node.
func (r *record) former() host.Kept { return r.machine.Host.Upgrades().Kept(r.state.FormerName()) }

// begin records the upgrade of this node, or another attempt, before its first change. The run may
// be interrupted after each change: until the new state is written, the previous upgrade can still
// be undone.
func (r *record) begin() error {
	if r.unfinished() {
		return r.checkVersion()
	}
	if err := r.machine.Host.Upgrades().Kept(node.AttemptName).Remove(); err != nil {
		return err
	}
	if r.state != nil && r.state.To == r.bundle.KubernetesVersion() {
		// Undo still returns to the version before this one, and to its data.
		r.state.Finished = false
		return r.write()
	}
	s := &node.UpgradeState{From: r.from, To: r.bundle.KubernetesVersion(), Bundle: r.bundle.ID()}
	if err := s.Write(r.machine.Host); err != nil {
		return err
	}
	r.state = s
	return r.machine.Host.Upgrades().RemoveKept(s.FormerName())
}

// checkVersion refuses to continue the upgrade to another version.
func (r *record) checkVersion() error {
	if !r.unfinished() || r.state.To == r.bundle.KubernetesVersion() {
		return nil
	}
	return fault.New(fault.Preflight, "an upgrade of this node to %s was not finished", r.state.To).Hint("finish it with that file, or undo it: ./install upgrade undo")
}

// finish records that all steps have run, and removes what only they needed.
func (r *record) finish() error {
	if r.unfinished() {
		if err := r.machine.Host.Upgrades().RemoveKept(r.state.FormerName()); err != nil {
			return err
		}
		r.state.Finished = true
		if err := r.write(); err != nil {
			return err
		}
		r.machine.Changed(true)
	}
	return r.machine.Host.Upgrades().RemoveStaged()
}

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
	for _, f := range files {
		now, err := r.machine.Present(f.Path)
		if err != nil {
			return changed, err
		}
		if bytes.Equal(now, f.Data) && r.machine.Exists(f.Path) {
			continue
		}
		if err := r.begin(); err != nil {
			return changed, err
		}
		if err := r.former().Keep(f.Path); err != nil {
			return changed, err
		}
		before := r.machine.Changes
		if err := r.machine.Write(f); err != nil {
			return changed, err
		}
		changed = changed || r.machine.Changes > before
	}
	return changed, nil
}

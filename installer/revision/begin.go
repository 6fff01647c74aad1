package revision

import (
	"slices"

	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// readRecord reads the record on this host.
func (r *Revision) readRecord() (err error) {
	r.Record, err = Read(r.Existing, r.Options.Kind)
	r.Resumes = r.Resumes || !r.Began && r.Unfinished()
	return err
}

// WriteRecord writes the record to this host.
func (r *Revision) WriteRecord() error { return r.Record.Write(r.Host) }

// Unfinished reports whether the revision has begun, and not all of its steps have run.
func (r *Revision) Unfinished() bool { return r.Record != nil && !r.Record.Finished }

// former returns the files from before the revision of this node.
func (r *Revision) former() host.Kept { return r.Record.Kept(r.Host) }

// attempt returns the files from before this attempt.
func (r *Revision) attempt() host.Kept { return r.Options.Kind.Files(r.Host).Kept(attemptName) }

// Begin records the revision of this node, or another attempt, before its first change. The run may be interrupted after each
// change: until the new record is written, the previous revision can still be undone.
func (r *Revision) Begin() error {
	if r.Unfinished() {
		r.Began = true
		return r.CheckGoal()
	}
	if err := r.attempt().Remove(); err != nil {
		return err
	}
	r.Began = true
	if r.Record != nil && r.IsGoal() && !r.overtaken() {
		// Undo still returns to the version before this one, and to its data.
		r.Record.Finished = false
		r.Record.Parts, r.Record.Readers = union(r.Record.Parts, r.Goal.Parts), union(r.Record.Readers, r.Goal.Readers)
		return r.WriteRecord()
	}
	next := r.Goal
	next.Kind, next.To, next.Bundle = r.Options.Kind, r.Bundle.KubernetesVersion(), r.Bundle.ID()
	next.Number, next.Stored = next.Began.Number, next.Began.Stored
	if r.Record != nil {
		next.Pending = r.Record.Pending
		if r.Record.FormerName() == next.FormerName() { // undo of it is refused: the cluster was reconfigured since
			if err := r.former().Remove(); err != nil {
				return err
			}
		}
	}
	if err := next.Write(r.Host); err != nil {
		return err
	}
	r.Record = &next
	return r.Options.Kind.Files(r.Host).RemoveKept(next.FormerName())
}

// overtaken reports whether the cluster was reconfigured since the recorded reconfiguration.
func (r *Revision) overtaken() bool {
	return r.Options.Kind == Reconfigure && r.Record.Overtaken(r.Goal.Began)
}

// EndOvertaken ends a reconfiguration that was finished once, if the cluster was reconfigured since: undo of it is refused.
func (r *Revision) EndOvertaken() {
	if r.Unfinished() && r.Record.WasFinished && r.overtaken() {
		r.Record.Finished, r.Resumes = true, false
	}
}

func union(a, b []string) []string {
	return append(slices.Clip(a), slices.DeleteFunc(slices.Clone(b), func(s string) bool { return slices.Contains(a, s) })...)
}

// IsGoal reports whether the record is of a revision to this version and configuration.
func (r *Revision) IsGoal() bool {
	return r.Record.To == r.Bundle.KubernetesVersion() && r.Record.Change == r.Goal.Change
}

// CheckGoal refuses to continue the revision to another version or configuration.
func (r *Revision) CheckGoal() error {
	if !r.Unfinished() {
		return nil
	}
	undo := r.Options.Kind.undo()
	switch overtaken := r.overtaken(); {
	case overtaken && r.Record.WasFinished:
		return fault.New(fault.Preflight, "the last run of this node's reconfiguration was not finished, and the cluster was reconfigured since").
			Hint("follow the cluster: ./install reconfigure node")
	case overtaken:
		return fault.New(fault.Preflight, "a reconfiguration of this node was not finished, and the cluster was reconfigured since").
			Hint("undo it on this node: " + undo + "; then follow the cluster: ./install reconfigure node")
	case r.IsGoal():
		return nil
	case r.Options.Kind == Reconfigure:
		return fault.New(fault.Preflight, "a reconfiguration of this node with another configuration was not finished").
			Hint("finish it with that configuration, or undo it: " + undo)
	}
	return fault.New(fault.Preflight, "%s was not finished", r.Record.describe()).Hint("finish it with that file, or undo it: " + undo)
}

// Finish records that all steps have run, and removes what only they needed.
func (r *Revision) Finish() error {
	if !r.Unfinished() {
		return nil
	}
	if err := r.Options.Kind.Files(r.Host).RemoveKept(r.Record.FormerName()); err != nil {
		return err
	}
	r.Record.Finished = true
	if err := r.WriteRecord(); err != nil {
		return err
	}
	r.Changed(true)
	return nil
}

// Restarted records that a component has read what this revision wrote.
func (r *Revision) Restarted(name string) error { return r.Record.SetRestarted(r.Host, name) }

// Keep keeps the previous version of a file for undo, before this run changes it.
func (r *Revision) Keep(path string) error {
	if err := r.Begin(); err != nil {
		return err
	}
	return r.former().Keep(path)
}

// WriteKept writes files, and keeps the previous ones for undo. It reports whether one changed.
func (r *Revision) WriteKept(files ...pki.File) (changed bool, err error) {
	differ, err := r.Differing(files...)
	if err != nil {
		return false, err
	}
	for _, f := range differ {
		if err := r.Keep(f.Path); err != nil {
			return changed, err
		}
		if err := r.Record.Pend(r.Host, r.Change.ReadersOf(f.Path)...); err != nil {
			return changed, err
		}
		before := r.Changes
		if err := r.Write(f.File); err != nil {
			return changed, err
		}
		changed = changed || r.Changes > before
	}
	return changed, nil
}

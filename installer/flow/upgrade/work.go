package upgrade

import "airlift/installer/payload"

// work is the work of this run.
type work struct {
	options      Options
	bundle       *payload.Bundle
	facts        *knowledge
	record       *record
	binaries     *binaries
	controlPlane *controlPlane
}

// remains reports whether this node has something to upgrade, or to finish.
func (w *work) remains() (bool, error) {
	if w.record.unfinished() {
		return true, nil
	}
	if w.facts.change != nil {
		return w.facts.change.remains()
	}
	if !w.options.Node && w.facts.stored.Cluster.KubernetesVersion != w.bundle.KubernetesVersion() {
		return true, nil
	}
	pending, err := w.binaries.pending(all)
	if err != nil || len(pending) > 0 {
		return true, err
	}
	if stale, err := w.binaries.staleStub(); err != nil || stale {
		return true, err
	}
	for name := range w.controlPlane.plans {
		changed, err := w.controlPlane.replaces(name)
		if err != nil || changed {
			return changed, err
		}
	}
	return false, nil
}

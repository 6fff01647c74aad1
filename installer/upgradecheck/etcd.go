package upgradecheck

import (
	"slices"
	"strings"

	"airlift/installer/etcd"
	"airlift/installer/preflight"
)

// etcdHealth checks that the members of etcd are healthy voters without an alarm. Another member
// may be unhealthy if etcd keeps its quorum while this host's member restarts.
func (t *Target) etcdHealth() (found []preflight.Problem) {
	if t.Etcd == nil {
		return nil
	}
	if t.Etcd.Err != nil {
		return preflight.Fail("see the log of etcd below /var/log/pods", "etcd cannot be checked: %v", t.Etcd.Err)
	}
	spares := t.Etcd.sparesOwn()
	for _, m := range t.Etcd.Members {
		switch {
		case slices.Contains(m.Alarms, "NOSPACE"):
			found = append(found, preflight.Fail("./install etcd defrag", "etcd's member %s has the alarm NOSPACE: its database has reached its maximum size, and etcd accepts no writes", m.Member)...)
		case len(m.Alarms) > 0:
			found = append(found, preflight.Fail("restore that member from another one or from a snapshot", "etcd's member %s has the alarm %s", m.Member, strings.Join(m.Alarms, ", "))...)
		case m.Learner:
			found = append(found, preflight.Fail(m.LearnerHint(), "etcd's member %s is a learner: it has no vote yet", m.Member)...)
		case m.Err != nil && m.ID == t.Etcd.Own:
			found = append(found, preflight.Fail("start that control plane, this host: systemctl start kubelet; see the log of etcd below /var/log/pods", "etcd's member %s is not healthy: %v", m.Member, m.Err)...)
		case m.Err != nil && spares:
			found = append(found, preflight.Warn(m.RestoreHint(), "etcd's member %s is not healthy: %v", m.Member, m.Err)...)
		case m.Err != nil:
			found = append(found, preflight.Fail(m.RestoreHint(), "etcd's member %s is not healthy, and etcd would have no quorum while the member of this host restarts: %v", m.Member, m.Err)...)
		}
	}
	return found
}

// sparesOwn reports whether etcd has a quorum without the member of this host.
func (e *Etcd) sparesOwn() bool {
	var states []etcd.State
	for _, m := range e.Members {
		states = append(states, etcd.State{Member: m.Member, Err: m.Err})
	}
	return etcd.Spares(states, e.Own)
}

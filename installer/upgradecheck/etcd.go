package upgradecheck

import (
	"slices"
	"strings"
)

// etcdHealth checks that all members of etcd are healthy voters without an alarm. A member that
// restarts during an upgrade must not cost the quorum.
func (t *Target) etcdHealth() (found []finding) {
	if t.Etcd == nil {
		return nil
	}
	if t.Etcd.Err != nil {
		return []finding{problem("see the log of etcd below /var/log/pods", "etcd cannot be checked: %v", t.Etcd.Err)}
	}
	for _, m := range t.Etcd.Members {
		switch {
		case slices.Contains(m.Alarms, "NOSPACE"):
			found = append(found, problem("./install etcd defrag", "etcd's member %s has the alarm NOSPACE: its database has reached its maximum size, and etcd accepts no writes", m.Member))
		case len(m.Alarms) > 0:
			found = append(found, problem("restore that member from another one or from a snapshot", "etcd's member %s has the alarm %s", m.Member, strings.Join(m.Alarms, ", ")))
		case m.Err != nil:
			found = append(found, problem("start that control plane; if it is lost permanently, remove its member: ./install etcd member remove ID", "etcd's member %s is not healthy: %v", m.Member, m.Err))
		case m.Learner:
			found = append(found, problem("finish the join of that control plane: run its join command again; or remove the member: ./install etcd member remove ID", "etcd's member %s is a learner: it has no vote yet", m.Member))
		}
	}
	return found
}

package status

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"airlift/installer/etcd"
	"airlift/installer/node"
)

// Etcd is the cluster's stacked etcd.
type Etcd struct {
	Members []EtcdMember `json:"members"`
}

// An EtcdMember is one member of etcd.
type EtcdMember struct {
	Name    string `json:"name"`
	ID      string `json:"id"` // hexadecimal, as etcdctl prints it
	URL     string `json:"url,omitempty"`
	Version string `json:"version,omitempty"`
	Leader  bool   `json:"leader"`
	Learner bool   `json:"learner"`
	Healthy bool   `json:"healthy"`
	Reason  string `json:"reason,omitempty"` // if it is not healthy
	Bytes   int64  `json:"bytes,omitempty"`  // size of its database
	InUse   int64  `json:"inUse,omitempty"`  // the rest is free after a defragmentation
}

// etcdQuota is the default maximum size of etcd's database (its DefaultQuotaBytes).
const etcdQuota = 2 << 30

// quota returns the maximum size of etcd's database, by the flags of its static pod.
func quota(flags map[string]string) int64 {
	if n, err := strconv.ParseInt(flags["quota-backend-bytes"], 10, 64); err == nil && n > 0 {
		return n
	}
	return etcdQuota
}

func (r *Reader) readEtcd(ctx context.Context) (found result, err error) {
	if r.node.Role == node.Worker {
		return found, notHere{"this host is a worker"}
	}
	p := r.node.Pod("etcd")
	if p == nil {
		return found, notHere{"the cluster has an external etcd"}
	}
	if p.Err != nil {
		return found, p.Err
	}
	members, err := node.EtcdMembers(ctx, r.Host, partTimeout)
	if err != nil {
		return found, err
	}
	e := &Etcd{Members: make([]EtcdMember, len(members))}
	for i, s := range members {
		m := &e.Members[i]
		*m = EtcdMember{Name: s.Name, ID: fmt.Sprintf("%x", s.ID), Learner: s.Learner, Healthy: s.Err == nil,
			Version: s.Version, Leader: s.Leader, Bytes: s.DBSize, InUse: s.DBInUse}
		if len(s.ClientURLs) > 0 {
			m.URL = s.ClientURLs[0]
		}
		if s.Err != nil {
			m.Reason = oneLine(s.Err)
		}
	}
	found.set = func(s *Status) { s.Etcd = e }
	limit := quota(p.Flags)
	for i, m := range e.Members {
		switch {
		case errors.Is(members[i].Err, etcd.ErrNoSpace):
			found.problem("./install etcd defrag", "etcd's member %s: %s", m.Name, m.Reason)
		case !m.Healthy:
			found.problem("start that control plane; see etcd's log below /var/log/pods there", "etcd's member %s is not healthy: %s", m.Name, m.Reason)
		case m.Learner:
			found.warn("it becomes a voter when its join ends: run that join again", "etcd's member %s is a learner", m.Name)
		case m.Bytes > limit/10*8:
			found.warn("./install etcd defrag", "the database of etcd's member %s has %s, its limit is %s", m.Name, bytes(m.Bytes), bytes(limit))
		}
	}
	return found, nil
}

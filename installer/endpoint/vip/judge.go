package vip

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"airlift/installer/etcd"
)

// etcd's election timeout is one second, in kubeadm's manifests too: a leader that lost its majority
// steps down within two.
const (
	// staleAfter is how long a confirmed leader is certainly the only one: no member votes for
	// another within etcd's election timeout.
	staleAfter = time.Second
	// grace is how long the holder keeps the address without an answer from etcd. It survives a disk
	// that stalls for two seconds.
	grace = 2500 * time.Millisecond
	// failures is how often in a row an API server must not answer. With one lost answer in
	// twenty, two in a row would happen each minute.
	failures = 3
	// linger is how long the former holder keeps the address until the next one announces it.
	linger = time.Second
	// settle is how long other hosts may announce the address after this host took it.
	settle = 2 * time.Second
	// absence is how long after a handover this host takes the address only if nobody else can.
	absence = 3 * time.Second
	// vacancy is how long no host announces the address until another control plane than the leader
	// looks for it. The holder announces it every second.
	vacancy = 3 * time.Second
)

// facts are all that decides whether this host should have the address.
type facts struct {
	role      etcd.Role // as of the last answer
	roleErr   error     // why the last question had no answer
	confirmed time.Time // a majority confirmed this host's member as the leader after this time
	elected   time.Time // when this host saw that the leader has changed
	api       apiServer
	away      time.Time // until then the address should be on another host
	alone     bool      // the last search found no ready API server on another host
	carrier   error     // why this host cannot send packets from the address; nil if it can
	held      bool
	taken     time.Time // when held became true
	foreign   time.Time // when another host last announced the address
}

// apiServer is the health of the local API server.
type apiServer struct {
	asked  bool // there was an answer
	ready  bool
	failed int   // questions in a row that were not answered well
	err    error // the last answer
}

// answer records the answer to one question. A server that refuses connections has ended.
func (s *apiServer) answer(err error) {
	s.asked, s.err = true, err
	if err == nil {
		s.ready, s.failed = true, 0
		return
	}
	s.failed++
	if errors.Is(err, syscall.ECONNREFUSED) || s.failed >= failures {
		s.ready = false
	}
}

// setRole records the answer to a question that was asked at a time.
func (f *facts) setRole(role etcd.Role, err error, asked, now time.Time) {
	if f.roleErr = err; err != nil {
		return
	}
	if role.Leader != f.role.Leader {
		f.elected = now
	}
	if role.Leads() {
		f.confirmed = asked
	} else {
		f.alone = false
	}
	f.role = role
}

// setForeign records that another host announced the address. It reports whether that is a conflict.
func (f *facts) setForeign(now time.Time) (conflict bool) {
	f.foreign = now
	return f.held && f.leads(now, staleAfter) && now.Sub(f.taken) > settle
}

// leads reports whether a majority confirmed this host's member as the leader within a time. The only
// member stays the leader, also while it does not answer.
func (f *facts) leads(now time.Time, within time.Duration) bool {
	return f.role.Leads() && (now.Sub(f.confirmed) < within || len(f.role.Members) == 1)
}

// fit reports whether this host can serve the address.
func (f *facts) fit(now time.Time) bool {
	return f.api.ready && f.carrier == nil && !now.Before(f.away)
}

// judge returns whether this host should have the address, and why.
func (f *facts) judge(now time.Time) (hold bool, reason string) {
	within := staleAfter
	if f.held {
		within = grace
	}
	switch {
	case f.carrier != nil:
		return false, f.carrier.Error()
	case !f.leads(now, within):
		if f.lingers(now) {
			return true, "the next holder has not announced it yet"
		}
		return false, f.whyNotLeader()
	case f.held && !f.leads(now, staleAfter) && f.foreign.Sub(f.confirmed) > staleAfter:
		return false, "another host announces it, and etcd does not answer here"
	case f.fit(now):
		return true, "the etcd member of this host is the leader, and its API server is ready"
	case f.alone:
		return true, "the etcd member of this host is the leader, and no API server of another control plane is ready"
	}
	return f.held, "the API server of this host is not ready; looking for a control plane with a ready one"
}

// lingers reports whether the former holder should wait for the next one, which etcd knows.
func (f *facts) lingers(now time.Time) bool {
	return f.held && f.api.ready && f.roleErr == nil && f.role.Leader != 0 && !f.role.Leads() &&
		now.Sub(f.elected) < linger && !f.foreign.After(f.elected)
}

func (f *facts) whyNotLeader() string {
	switch {
	case f.roleErr != nil:
		return f.roleErr.Error()
	case f.role.Self == 0:
		return "etcd has not answered yet"
	case f.role.Leader == 0:
		return "etcd has no leader"
	case f.role.Leads():
		return "etcd has not confirmed for a second that its member on this host is the leader"
	}
	return fmt.Sprintf("etcd's leader is %s", f.leaderName())
}

// leaderName returns the name of the leader's host; "" if there is no leader.
func (f *facts) leaderName() string {
	for _, m := range f.role.Members {
		if m.ID == f.role.Leader && m.Name != "" {
			return m.Name
		}
	}
	if f.role.Leader == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", f.role.Leader)
}

// mustMove reports whether the leadership should be on another host.
func (f *facts) mustMove(now time.Time) bool {
	return f.leads(now, staleAfter) && f.api.asked && !f.fit(now)
}

// vacant reports whether the leader seems not to take the address, which this host could: an agent may
// hang, and a control plane that joined without Airlift has none.
func (f *facts) vacant(now time.Time) bool {
	last := f.elected
	if f.foreign.After(last) {
		last = f.foreign
	}
	return !f.held && f.roleErr == nil && f.role.Leader != 0 && !f.role.Leads() && f.fit(now) && now.Sub(last) > vacancy
}

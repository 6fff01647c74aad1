package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"airlift/internal/dialer"
	"airlift/internal/fault"
)

// probeTimeout limits the health check of one member. On a slow host, the TLS
// handshakes of a check take a second.
const probeTimeout = 10 * time.Second

// ErrNoSpace is the error of a member that is unhealthy only because of the alarm NOSPACE. etcd
// raises it for the whole cluster.
var ErrNoSpace = errors.New("it has the alarm NOSPACE: its database has reached its maximum size, and etcd accepts no writes")

// A State is the health of a member.
type State struct {
	Member
	// Err is why the member is unhealthy; nil if it is healthy.
	Err error
}

// Health checks all members in parallel, each at its own URLs.
func (c *Client) Health(ctx context.Context, members []Member) []State {
	states := make([]State, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { states[i] = State{m, c.probe(ctx, m.ClientURLs)} })
	}
	wg.Wait()
	return states
}

// probe checks one member: it must answer and have a leader.
func (c *Client) probe(ctx context.Context, urls []string) error {
	if len(urls) == 0 {
		return errors.New("it has not started yet")
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var failed error
	for _, u := range urls {
		if failed = c.reach(ctx, u); failed != nil {
			continue
		}
		var status *clientv3.StatusResponse
		if status, failed = c.api.Status(ctx, u); failed != nil {
			continue
		}
		switch {
		case len(status.Errors) > 0 && status.Leader != 0:
			return reported(status.Errors)
		case status.Leader == 0:
			return errors.New("it has no leader")
		}
		return nil
	}
	return failed
}

// reported returns the error for the alarms that a member with a leader reports, for example
// "memberID:42 alarm:NOSPACE".
func reported(list []string) error {
	if !slices.ContainsFunc(list, func(one string) bool { return !strings.Contains(one, "alarm:NOSPACE") }) {
		return ErrNoSpace
	}
	return errors.New(strings.Join(list, "; "))
}

// reach opens a separate connection, because gRPC's errors only report a
// timeout.
func (c *Client) reach(ctx context.Context, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	conn, err := dialer.Dial(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.tls == nil || u.Scheme == "http" {
		return nil
	}
	server := c.tls.Clone()
	server.ServerName = u.Hostname()
	return tls.Client(conn, server).HandshakeContext(ctx)
}

// chooseEndpoints limits the client to voting members that answer. If there are
// none, the error lists the error of each endpoint.
func (c *Client) chooseEndpoints(ctx context.Context, endpoints []string) error {
	var mu sync.Mutex
	var good []string
	failures := make([]string, len(endpoints))
	var wg sync.WaitGroup
	for i, e := range endpoints {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			err := c.reach(ctx, e)
			if err == nil {
				var status *clientv3.StatusResponse
				if status, err = c.api.Status(ctx, e); err == nil && status.IsLearner {
					err = errors.New("it is a learner")
				}
			}
			if err != nil {
				failures[i] = fmt.Sprintf("%s: %v", e, err)
				return
			}
			mu.Lock()
			good = append(good, e)
			mu.Unlock()
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(good) == 0 {
		return fmt.Errorf("connecting to etcd: no member answers: %s", strings.Join(failures, "; "))
	}
	c.api.SetEndpoints(good...)
	return nil
}

// CheckHealthy fails if a member is unhealthy, because then the membership
// should not be changed. The member with the peer URL except, which is being
// added, may be unhealthy.
func (c *Client) CheckHealthy(ctx context.Context, except string) error {
	return c.checkMembers(ctx, func(s State) bool { return s.HasPeer(except) })
}

// CheckDefrag is CheckHealthy before and after the defragmentation of a member. The alarm NOSPACE is
// a reason to defragment.
func (c *Client) CheckDefrag(ctx context.Context) error {
	return c.checkMembers(ctx, func(s State) bool { return errors.Is(s.Err, ErrNoSpace) })
}

// CheckNoLearner fails if a control plane joins, or has not finished its join.
func (c *Client) CheckNoLearner(ctx context.Context) error {
	members, err := c.Members(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(members, func(m Member) bool { return m.Learner })
	if i < 0 {
		return nil
	}
	return fault.New(fault.Preflight, "etcd's member %s is a learner: a control plane joins the cluster", members[i]).Hint(members[i].LearnerHint())
}

// LearnerHint is the hint of an error about a learner.
func (m Member) LearnerHint() string {
	return "finish the join of that control plane: run its join command again; or remove the member: " + m.RemoveCommand()
}

// checkMembers fails if a member is unhealthy that may not be.
func (c *Client) checkMembers(ctx context.Context, mayBe func(State) bool) error {
	members, err := c.Members(ctx)
	if err != nil {
		return err
	}
	var unhealthy []State
	hint := "./install etcd defrag"
	for _, s := range c.Health(ctx, members) {
		if s.Err == nil || mayBe(s) {
			continue
		}
		unhealthy = append(unhealthy, s)
		if !errors.Is(s.Err, ErrNoSpace) {
			hint = s.RestoreHint()
		}
	}
	if len(unhealthy) > 0 {
		return fault.New(fault.Failure, "etcd is not healthy:\n  - %s", listed(unhealthy)).Hint(hint)
	}
	return nil
}

// RestoreHint is the hint for an unhealthy member.
func (m Member) RestoreHint() string {
	return "start that control plane; if it is lost permanently, remove its member: " + m.RemoveCommand()
}

// RemoveCommand is the command that removes the member, on another control plane.
func (m Member) RemoveCommand() string {
	return fmt.Sprintf("./install etcd member remove %016x", m.ID)
}

// CheckRemove fails if the cluster would lose its quorum without member m. The
// error lists the unhealthy members. The last member may always be removed.
func (c *Client) CheckRemove(ctx context.Context, m Member) error {
	members, err := c.Members(ctx)
	if err != nil {
		return err
	}
	_, err = Without(c.Health(ctx, members), m)
	return err
}

// CheckRestart fails if the cluster would lose its quorum while the member with a peer URL restarts,
// because others are unhealthy. The restart of a healthy member of one or two interrupts etcd in any
// case. If that member is unhealthy, or etcd has no quorum now, the restart loses nothing.
func (c *Client) CheckRestart(ctx context.Context, peerURL string) error {
	members, err := c.Members(ctx)
	if err != nil {
		return err
	}
	m, found := Find(members, peerURL)
	if !found || m.Learner {
		return nil
	}
	return checkRestart(c.Health(ctx, members), m)
}

func checkRestart(states []State, m Member) error {
	v := countVotes(states, m)
	if len(v.unhealthy) == 0 || !v.self.votes() || v.healthy+1 < v.quorum() || v.healthy >= v.quorum() {
		return nil
	}
	return fault.New(fault.Failure, "etcd would have no quorum while its member %s restarts: %d of the %d other voting members are healthy, %d are needed:\n  - %s",
		m, v.healthy, v.others, v.quorum(), listed(v.unhealthy)).
		Hint(v.unhealthy[0].RestoreHint())
}

// Spares reports whether the cluster has a quorum without the member with an ID, for as long as that
// member restarts.
func Spares(states []State, id uint64) bool {
	i := slices.IndexFunc(states, func(s State) bool { return s.ID == id })
	if i < 0 {
		return false
	}
	v := countVotes(states, states[i].Member)
	return v.healthy >= v.quorum()
}

// votes reports whether a member counts for the quorum: also with the alarm NOSPACE.
func (s State) votes() bool { return !s.Learner && (s.Err == nil || errors.Is(s.Err, ErrNoSpace)) }

// votes are the voting members, as one of them sees them.
type votes struct {
	self            State
	others, healthy int
	unhealthy       []State // of the others
}

func countVotes(states []State, m Member) votes {
	v := votes{self: State{m, errors.New("it is not a member")}}
	for _, s := range states {
		switch {
		case s.ID == m.ID:
			v.self = s
		case s.Learner:
		case s.votes():
			v.others, v.healthy = v.others+1, v.healthy+1
		default:
			v.others, v.unhealthy = v.others+1, append(v.unhealthy, s)
		}
	}
	return v
}

// quorum is how many members must be healthy as long as this one is a member.
func (v votes) quorum() int { return (v.others+1)/2 + 1 }

// listed lists members and why they are unhealthy, for messages.
func listed(states []State) string {
	var lines []string
	for _, s := range states {
		lines = append(lines, fmt.Sprintf("%s: %v", s.Member, s.Err))
	}
	return strings.Join(lines, "\n  - ")
}

// Rest is the cluster without one of its members. All are numbers of voting members.
type Rest struct {
	Members, Healthy int
	Quorum           int // how many must be healthy
}

// Without returns the cluster without the member gone. It fails if etcd would have no quorum then, or has
// none to agree on the removal. The error lists the unhealthy members. The last member may always be removed.
func Without(states []State, gone Member) (Rest, error) {
	v := countVotes(states, gone)
	return Rest{Members: v.others, Healthy: v.healthy, Quorum: v.others/2 + 1}, checkQuorum(v, gone)
}

// checkQuorum fails if the members other than gone would have no quorum.
func checkQuorum(v votes, gone Member) error {
	if v.others == 0 || gone.Learner {
		return nil
	}
	const hint = "restore those members first; or use --force, and repair the cluster afterwards"
	now, unhealthy := v.healthy, v.unhealthy
	if v.self.votes() {
		now++
	} else {
		unhealthy = append(unhealthy, v.self)
	}
	if now < v.quorum() {
		return fault.New(fault.Failure, "etcd has no quorum now: %d of its %d voting members are healthy, %d are needed:\n  - %s",
			now, v.others+1, v.quorum(), listed(unhealthy)).
			Hint(hint)
	}
	if quorum := v.others/2 + 1; v.healthy < quorum {
		return fault.New(fault.Failure, "without this member, etcd would lose its quorum: %d of the %d other voting members are healthy, %d are needed:\n  - %s",
			v.healthy, v.others, quorum, listed(v.unhealthy)).
			Hint(hint)
	}
	return nil
}

package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"airlift/fault"
)

// probeTimeout bounds the question to one member whether it is well.
const probeTimeout = 3 * time.Second

// A State is how a member is.
type State struct {
	Member
	// Err says what is wrong with it; nil is healthy.
	Err error
}

// Health asks each member itself, all at once.
func (c *Client) Health(ctx context.Context, members []Member) []State {
	states := make([]State, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { states[i] = State{m, c.probe(ctx, m.ClientURLs)} })
	}
	wg.Wait()
	return states
}

// probe asks one member: it has to answer, and know a leader.
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
			return errors.New(strings.Join(status.Errors, "; "))
		case status.Leader == 0:
			return errors.New("it knows no leader")
		}
		return nil
	}
	return failed
}

// reach makes a connection of its own, because gRPC's errors say only that time
// ran out.
func (c *Client) reach(ctx context.Context, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	if c.tls == nil || u.Scheme == "http" {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	conn, err := (&tls.Dialer{Config: c.tls}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	return conn.Close()
}

// chooseEndpoints narrows the client to members that answer and vote. When
// none does, the error says what each of them said.
func (c *Client) chooseEndpoints(ctx context.Context, endpoints []string) error {
	var mu sync.Mutex
	var good []string
	said := make([]string, len(endpoints))
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
				said[i] = fmt.Sprintf("%s: %v", e, err)
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
		return fmt.Errorf("connecting to etcd: no member answers: %s", strings.Join(said, "; "))
	}
	c.api.SetEndpoints(good...)
	return nil
}

// CheckHealthy fails when a member is not well: a bad moment to change the
// membership. The member that is being added, at the peer URL except, need not
// be.
func (c *Client) CheckHealthy(ctx context.Context, except string) error {
	members, err := c.Members(ctx)
	if err != nil {
		return err
	}
	var sick []string
	for _, s := range c.Health(ctx, members) {
		if s.Err != nil && s.PeerURL != except {
			sick = append(sick, fmt.Sprintf("%s: %v", s.Member, s.Err))
		}
	}
	if len(sick) > 0 {
		return fault.New(fault.Failure, "start the control plane that it is on, or, if that is gone for good, remove its member (etcdctl member remove)",
			"etcd is not healthy:\n  - %s", strings.Join(sick, "\n  - "))
	}
	return nil
}

// CheckRemove fails when the cluster would not survive to lose a member: its
// remaining voters would be too few to agree on anything. The error says how
// many there are and what is wrong with the others. The last member of all
// takes nothing from nobody.
func (c *Client) CheckRemove(ctx context.Context, m Member) error {
	members, err := c.Members(ctx)
	if err != nil {
		return err
	}
	return survives(c.Health(ctx, members), m)
}

// survives is CheckRemove's arithmetic.
func survives(states []State, gone Member) error {
	voters, others, well := 0, 0, 0
	var sick []string
	var self error
	for _, s := range states {
		switch {
		case s.Learner:
			continue
		case s.ID == gone.ID:
			self = s.Err
		default:
			others++
			if s.Err == nil {
				well++
			} else {
				sick = append(sick, fmt.Sprintf("%s: %v", s.Member, s.Err))
			}
		}
		voters++
	}
	if others == 0 || gone.Learner {
		return nil
	}
	const hint = "bring those back first; --force goes on all the same, and then the cluster has to be restored by hand"
	now, quorum := well, voters/2+1
	if self == nil && voters > others {
		now++
	}
	if now < quorum {
		return fault.New(fault.Failure, hint,
			"etcd has no quorum as it is: %d of its %d voting members are healthy, %d are needed:\n  - %s",
			now, voters, quorum, strings.Join(sick, "\n  - "))
	}
	if quorum = others/2 + 1; well < quorum {
		return fault.New(fault.Failure, hint,
			"without this member etcd would lose its quorum: of the %d others %d are healthy, %d are needed:\n  - %s",
			others, well, quorum, strings.Join(sick, "\n  - "))
	}
	return nil
}

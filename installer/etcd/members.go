package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Member is one member of the cluster.
type Member struct {
	ID uint64
	// Name is empty until the member has started for the first time.
	Name       string
	PeerURL    string
	ClientURLs []string
	// Learner follows without a vote.
	Learner bool
}

// String is for people: the name, and what the others reach it at.
func (m Member) String() string {
	if m.Name == "" {
		return fmt.Sprintf("%016x (%s, not started yet)", m.ID, m.PeerURL)
	}
	return fmt.Sprintf("%s (%s)", m.Name, m.PeerURL)
}

// Members lists the cluster's members, from any one of them: also while the
// cluster has lost its quorum.
func (c *Client) Members(ctx context.Context) (members []Member, err error) {
	err = c.try(ctx, "listing etcd's members", func(ctx context.Context) (err error) {
		members, err = c.list(ctx, clientv3.WithSerializable())
		return err
	})
	return members, err
}

// agreed lists the members as the quorum sees them.
func (c *Client) agreed(ctx context.Context) ([]Member, error) { return c.list(ctx) }

func (c *Client) list(ctx context.Context, opts ...clientv3.OpOption) ([]Member, error) {
	resp, err := c.api.MemberList(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return ours(resp.Members), nil
}

func ours(list []*etcdserverpb.Member) []Member {
	var members []Member
	for _, m := range list {
		member := Member{ID: m.ID, Name: m.Name, ClientURLs: m.ClientURLs, Learner: m.IsLearner}
		if len(m.PeerURLs) > 0 {
			member.PeerURL = m.PeerURLs[0]
		}
		members = append(members, member)
	}
	return members
}

// Find picks the member with a peer URL out of a list.
func Find(members []Member, peerURL string) (Member, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.PeerURL == peerURL })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// AddLearner lets a new member in that has no vote yet, and so takes nothing
// from a cluster that it does not come up in. A member with that peer URL,
// learner or not, is left as it is. It returns all members, the new one among
// them. While another learner is in the cluster, that is, while another control
// plane is joining, it waits.
func (c *Client) AddLearner(ctx context.Context, peerURL string) (members []Member, added bool, err error) {
	err = c.try(ctx, "adding this host to etcd as a learner", func(ctx context.Context) error {
		var err error
		if members, err = c.agreed(ctx); err != nil {
			return err
		}
		if _, there := Find(members, peerURL); there {
			return nil
		}
		resp, err := c.api.MemberAddAsLearner(ctx, []string{peerURL})
		if err != nil {
			return err
		}
		members, added = ours(resp.Members), true
		return nil
	})
	return members, added, err
}

// Promote gives a learner its vote as soon as it has caught up with the rest.
// One that votes already is left as it is.
func (c *Client) Promote(ctx context.Context, peerURL string) (changed bool, err error) {
	err = c.try(ctx, "waiting for this host's etcd to catch up and get its vote", func(ctx context.Context) error {
		members, err := c.agreed(ctx)
		if err != nil {
			return err
		}
		m, there := Find(members, peerURL)
		switch {
		case !there:
			return fmt.Errorf("no member has the peer URL %s any more", peerURL)
		case !m.Learner:
			return nil
		}
		_, err = c.api.MemberPromote(ctx, m.ID)
		changed = changed || err == nil
		return err
	})
	return changed, err
}

// Remove takes a member out of the cluster. One that is gone is fine. The others
// are asked to, where any answers: a member that is asked to remove itself stops
// before it can say that it has.
func (c *Client) Remove(ctx context.Context, m Member) (changed bool, err error) {
	members, err := c.Members(ctx)
	if err != nil {
		return false, err
	}
	var others []string
	for _, o := range members {
		if o.ID != m.ID && !o.Learner {
			others = append(others, o.ClientURLs...)
		}
	}
	if len(others) > 0 {
		if err := c.chooseEndpoints(ctx, others); err != nil {
			return false, fmt.Errorf("removing etcd's member %s: %w", m, err)
		}
	}
	err = c.try(ctx, fmt.Sprintf("removing etcd's member %s", m), func(ctx context.Context) error {
		_, err := c.api.MemberRemove(ctx, m.ID)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil
		}
		changed = changed || err == nil
		return err
	})
	return changed, err
}

// mayHeal says whether an error may go away by itself: an election, a member
// that is starting, a learner that is behind or another one in the way.
func mayHeal(err error) bool {
	for _, healing := range []error{
		rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrTooManyLearners,
		rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotEnoughStarted,
		rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrNotLeader,
		rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost,
		rpctypes.ErrTooManyRequests, rpctypes.ErrStopped,
		context.DeadlineExceeded,
	} {
		if errors.Is(err, healing) {
			return true
		}
	}
	code := status.Code(err)
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		code = known.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

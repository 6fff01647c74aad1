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
	// Learner members replicate data and have no vote.
	Learner bool

	peerURLs []string // etcd sorts them: PeerURL may be another one than the first that the member announces
}

// String is the name and peer URL, for messages.
func (m Member) String() string {
	if m.Name == "" {
		return fmt.Sprintf("%016x (%s, not started yet)", m.ID, m.PeerURL)
	}
	return fmt.Sprintf("%s (%s)", m.Name, m.PeerURL)
}

// Members lists the cluster's members as one member knows them, which also works
// without a quorum.
func (c *Client) Members(ctx context.Context) (members []Member, err error) {
	err = c.try(ctx, "listing etcd's members", func(ctx context.Context) (err error) {
		members, err = c.list(ctx, clientv3.WithSerializable())
		return err
	})
	return members, err
}

// agreed lists the members with a linearizable read, which needs a quorum.
func (c *Client) agreed(ctx context.Context) ([]Member, error) { return c.list(ctx) }

func (c *Client) list(ctx context.Context, opts ...clientv3.OpOption) ([]Member, error) {
	resp, err := c.api.MemberList(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return toMembers(resp.Members), nil
}

func toMembers(list []*etcdserverpb.Member) []Member {
	var members []Member
	for _, m := range list {
		member := Member{ID: m.ID, Name: m.Name, ClientURLs: m.ClientURLs, Learner: m.IsLearner, peerURLs: m.PeerURLs}
		if len(m.PeerURLs) > 0 {
			member.PeerURL = m.PeerURLs[0]
		}
		members = append(members, member)
	}
	return members
}

// HasPeer reports whether a peer URL is the member's.
func (m Member) HasPeer(url string) bool { return m.PeerURL == url || slices.Contains(m.peerURLs, url) }

// Find picks the member with a peer URL out of a list.
func Find(members []Member, peerURL string) (Member, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.HasPeer(peerURL) })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// AddLearner adds a member without a vote, so that the quorum does not change if
// the member never starts. An existing member with that peer URL is not changed.
// It returns all members, including the new one. While the cluster has another
// learner, because another control plane is joining, it waits.
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
		members, added = toMembers(resp.Members), true
		return nil
	})
	return members, added, err
}

// Promote makes a learner a voting member as soon as it is in sync. A voting
// member is not changed.
func (c *Client) Promote(ctx context.Context, peerURL string) (changed bool, err error) {
	err = c.try(ctx, "promoting this host's etcd member from learner to voter", func(ctx context.Context) error {
		members, err := c.agreed(ctx)
		if err != nil {
			return err
		}
		m, there := Find(members, peerURL)
		switch {
		case !there:
			return fmt.Errorf("no member has the peer URL %s", peerURL)
		case !m.Learner:
			return nil
		}
		_, err = c.api.MemberPromote(ctx, m.ID)
		changed = changed || err == nil
		return err
	})
	return changed, err
}

// Remove removes a member from the cluster; the member may already be removed. The request goes to
// the other members if there are any, because a member that removes itself may stop before it
// answers.
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

// retryable reports whether an error may be temporary: an election, a member
// that is starting, a learner that is not in sync yet, another learner.
func retryable(err error) bool {
	for _, temporary := range []error{
		rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrTooManyLearners,
		rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotEnoughStarted,
		rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrNotLeader,
		rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost,
		rpctypes.ErrTooManyRequests, rpctypes.ErrStopped,
		context.DeadlineExceeded,
	} {
		if errors.Is(err, temporary) {
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

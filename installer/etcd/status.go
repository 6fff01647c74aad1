package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Status is the state of a member.
type Status struct {
	Member
	// Err is why the member is unhealthy; nil if it is healthy. If it did not answer, the
	// fields below are zero.
	Err     error
	Version string
	Leader  bool
	// DBSize is the size of the database, DBInUse the part of it that has data.
	DBSize, DBInUse                  int64
	Revision                         int64
	RaftTerm, RaftIndex, RaftApplied uint64
	// Alarms are "NOSPACE" and "CORRUPT".
	Alarms []string
}

// Status returns the state of all members, and the ID of the cluster.
func (c *Client) Status(ctx context.Context) (list []Status, clusterID uint64, err error) {
	members, err := c.Members(ctx)
	if err != nil {
		return nil, 0, err
	}
	alarms := c.alarms(ctx)
	list = make([]Status, len(members))
	ids := make([]uint64, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			list[i] = Status{Member: m, Err: c.probe(ctx, m.ClientURLs), Alarms: alarms[m.ID]}
			if r := c.status(ctx, m.ClientURLs); r != nil {
				s := &list[i]
				ids[i] = r.Header.GetClusterId()
				s.Version, s.Leader = r.Version, r.Leader == m.ID
				s.DBSize, s.DBInUse = r.DbSize, r.DbSizeInUse
				s.Revision, s.RaftTerm, s.RaftIndex, s.RaftApplied = r.Header.GetRevision(), r.RaftTerm, r.RaftIndex, r.RaftAppliedIndex
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		clusterID = max(clusterID, id)
	}
	return list, clusterID, nil
}

// status returns a member's answer, or nil.
func (c *Client) status(ctx context.Context, urls []string) *clientv3.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for _, u := range urls {
		if r, err := c.api.Status(ctx, u); err == nil {
			return r
		}
	}
	return nil
}

// alarms returns the alarms by member. Without a quorum there are none to read.
func (c *Client) alarms(ctx context.Context) map[uint64][]string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list := map[uint64][]string{}
	if r, err := c.api.AlarmList(ctx); err == nil {
		for _, a := range r.Alarms {
			list[a.GetMemberID()] = append(list[a.GetMemberID()], a.GetAlarm().String())
		}
	}
	return list
}

// DefragTimeout limits the defragmentation of one member, which rewrites its database.
const DefragTimeout = 5 * time.Minute

// Defrag defragments the database of one member. The member answers no request meanwhile.
func (c *Client) Defrag(ctx context.Context, m Member) error {
	if len(m.ClientURLs) == 0 {
		return fmt.Errorf("defragmenting etcd's member %s: it has not started yet", m)
	}
	ctx, cancel := context.WithTimeout(ctx, DefragTimeout)
	defer cancel()
	if _, err := c.api.Defragment(ctx, m.ClientURLs[0]); err != nil {
		return fmt.Errorf("defragmenting etcd's member %s: %w", m, err)
	}
	return nil
}

// DisarmNoSpace removes the alarm NOSPACE of all members, so that etcd accepts writes again. It
// raises the alarm again at the next write if the database is still too large.
func (c *Client) DisarmNoSpace(ctx context.Context) (disarmed bool, err error) {
	err = c.try(ctx, "removing etcd's alarm NOSPACE", func(ctx context.Context) error {
		list, err := c.api.AlarmList(ctx)
		if err != nil {
			return err
		}
		for _, a := range list.Alarms {
			if a.GetAlarm() != etcdserverpb.AlarmType_NOSPACE {
				continue
			}
			if _, err := c.api.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
				return err
			}
			disarmed = true
		}
		return nil
	})
	return disarmed, err
}

// WaitDefragmented waits until all members are as CheckDefrag wants them.
func (c *Client) WaitDefragmented(ctx context.Context) error {
	deadline := time.Now().Add(c.Timeout)
	for {
		err := c.CheckDefrag(ctx)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// An Election is the local member's view of etcd's election of a leader. It reads the certificates
// again when a file changes, so that a process can keep it for years. Close ends its connection.
type Election struct {
	endpoint string    // the local member's client URL
	files    [3]string // CA, certificate, key

	mu     sync.Mutex
	conn   *grpc.ClientConn
	read   [3]fileState // of the files when conn was created
	last   Role         // without a leader after a failure
	listed time.Time    // when the members in last were read
}

// fileState detects that a file was replaced.
type fileState struct {
	size     int64
	modified time.Time
}

// NewElection returns the view of the member with a client URL ("https://127.0.0.1:2379"). The PEM
// files are the same as for TLS. It does not connect.
func NewElection(endpoint, caFile, certFile, keyFile string) *Election {
	return &Election{endpoint: endpoint, files: [3]string{caFile, certFile, keyFile}}
}

// Close ends the connection. A later call opens another.
func (e *Election) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == nil {
		return nil
	}
	conn := e.conn
	e.conn = nil
	return conn.Close()
}

// A Role is what the local member is in its cluster.
type Role struct {
	// Self is the local member's ID. Leader is the leader's ID; 0 if there is none.
	Self, Leader uint64
	// Members are the voting members, including the local one. A learner, and a member that never
	// saw a list, has none.
	Members []Member
}

// Leads reports whether the local member is the leader.
func (r Role) Leads() bool { return r.Leader != 0 && r.Leader == r.Self }

// Peers returns the other voting members.
func (r Role) Peers() []Member {
	return slices.DeleteFunc(slices.Clone(r.Members), func(m Member) bool { return m.ID == r.Self })
}

// Host returns the address of the member's host, from its peer URL; "" if there is none.
func (m Member) Host() string {
	u, err := url.Parse(m.PeerURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Role returns the role of the local member. If it is the leader, a majority of the members
// confirmed that after the call began: no member can win an election until etcd's election
// timeout, counted from then, is over. The status alone may be old, for example while the
// disk of the member does not answer. The time of the call is limited by ctx only.
func (e *Election) Role(ctx context.Context) (Role, error) {
	role, err := e.role(ctx)
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.last.Leader = 0 // a leader that stepped down does not confirm that it is none
		return Role{}, fmt.Errorf("asking etcd's member at %s for the leader: %w", e.endpoint, err)
	}
	return role, nil
}

func (e *Election) role(ctx context.Context) (Role, error) {
	conn, err := e.connection()
	if err != nil {
		return Role{}, err
	}
	e.mu.Lock()
	last, listed := e.last, e.listed
	e.mu.Unlock()
	status, members, err := readStatus(ctx, conn, last.Leads())
	if err != nil {
		return Role{}, err
	}
	role := Role{Self: status.Header.GetMemberId(), Leader: status.Leader, Members: last.Members}
	switch {
	case members != nil:
		role.Members, listed = members, time.Now()
	case status.IsLearner || role.Leader == last.Leader && time.Since(listed) < listInterval:
	default:
		if members, err := listMembers(ctx, conn, false); err == nil {
			role.Members, listed = members, time.Now()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last, e.listed = role, listed
	return role, nil
}

// readStatus returns the status of the local member. If it is the leader, it was confirmed before, and
// members is the list of that confirmation. leading is a guess, which saves a call.
func readStatus(ctx context.Context, conn *grpc.ClientConn, leading bool) (status *etcdserverpb.StatusResponse, members []Member, err error) {
	for range 2 {
		if leading {
			if members, err = listMembers(ctx, conn, true); err != nil {
				return nil, nil, err
			}
		}
		// Only a status that was read after the confirmation is about the same leader.
		status, err = etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
		if err != nil || leading || status.Leader != status.Header.GetMemberId() {
			break
		}
		leading = true
	}
	return status, members, err
}

// listInterval is how often a follower lists the members.
const listInterval = 5 * time.Second

// listMembers returns the voting members. A linearizable list needs a majority.
func listMembers(ctx context.Context, conn *grpc.ClientConn, linearizable bool) ([]Member, error) {
	r, err := etcdserverpb.NewClusterClient(conn).MemberList(ctx, &etcdserverpb.MemberListRequest{Linearizable: linearizable})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(toMembers(r.Members), func(m Member) bool { return m.Learner }), nil
}

// Move makes the member with an ID the leader. The request goes to the present leader, which may
// be on another host. It returns when the member is the leader.
func (e *Election) Move(ctx context.Context, id uint64) error {
	if err := e.move(ctx, id); err != nil {
		return fmt.Errorf("moving etcd's leadership to member %016x: %w", id, err)
	}
	return nil
}

func (e *Election) move(ctx context.Context, id uint64) error {
	role, err := e.role(ctx)
	if err != nil {
		return err
	}
	conn, err := e.connection()
	if err != nil {
		return err
	}
	if !role.Leads() {
		i := slices.IndexFunc(role.Members, func(m Member) bool { return m.ID == role.Leader })
		if i < 0 || len(role.Members[i].ClientURLs) == 0 {
			return errors.New("there is no leader")
		}
		if conn, err = e.dial(role.Members[i].ClientURLs[0]); err != nil {
			return err
		}
		defer conn.Close()
	}
	_, err = etcdserverpb.NewMaintenanceClient(conn).MoveLeader(ctx, &etcdserverpb.MoveLeaderRequest{TargetID: id})
	return err
}

// connection returns the connection to the local member. It opens another when the files have
// changed; files that cannot be used, because another process is writing them, change nothing.
func (e *Election) connection() (*grpc.ClientConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, err := e.stat()
	if e.conn != nil && (err != nil || now == e.read) {
		return e.conn, nil
	}
	conn, err := e.dial(e.endpoint)
	if err != nil {
		if e.conn != nil {
			return e.conn, nil
		}
		return nil, err
	}
	if e.conn != nil {
		_ = e.conn.Close()
	}
	e.conn, e.read = conn, now
	return conn, nil
}

func (e *Election) stat() (states [3]fileState, err error) {
	for i, f := range e.files {
		info, err := os.Stat(f)
		if err != nil {
			return states, err
		}
		states[i] = fileState{info.Size(), info.ModTime()}
	}
	return states, nil
}

// reconnect limits the pause before etcd is dialed again after it was down.
const reconnect = 500 * time.Millisecond

func (e *Election) dial(endpoint string) (*grpc.ClientConn, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	config, err := TLS(e.files[0], e.files[1], e.files[2])
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("passthrough:///"+u.Host,
		grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: keepAliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, MaxDelay: reconnect},
			MinConnectTimeout: time.Second,
		}))
}

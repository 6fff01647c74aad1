package model

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"airlift/installer/etcd"
)

func init() { wal.SegmentSizeBytes = 16 << 10 }

// An etcdCluster is the data that the members of a cluster agree on.
type etcdCluster struct {
	id       uint64
	members  map[uint64]*etcdMember
	data     map[string]string // the objects of the API, JSON, by their keys
	revision int64
	minor    string // of the newest etcd that has opened the data: "3.6"
	loaded   int64  // the revision when it was loaded from a backup
	removed  map[string]removed
	// changed is the last revision of anything that the controllers read.
	changed int64
}

// A removed object, and the revision of its removal.
type removed struct {
	revision int64
	text     string
}

// An etcdMember is a member; its server is nil while it does not run.
type etcdMember struct {
	id           uint64
	name         string
	peer, client string
	learner      bool
	server       *etcdServer
}

// up reports whether a member works.
func (m *etcdMember) up() bool { return m.server != nil && !time.Now().Before(m.server.since) }

// quorum reports whether most voting members run. The caller holds w.mu.
func (c *etcdCluster) quorum() bool {
	voters, up := 0, 0
	for _, m := range c.members {
		if !m.learner {
			voters++
			if m.up() {
				up++
			}
		}
	}
	return up > voters/2
}

func (c *etcdCluster) leader() uint64 {
	if !c.quorum() {
		return 0
	}
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		if m := c.members[id]; !m.learner && m.server != nil {
			return id
		}
	}
	return 0
}

// oldest returns the minor version of the oldest member, "" if one does not run: then the version of the data
// stays.
func (c *etcdCluster) oldest() string {
	oldest := ""
	for _, m := range c.members {
		if m.server == nil {
			return ""
		}
		minor := m.server.version[:strings.LastIndexByte(m.server.version, '.')]
		if oldest == "" || minor < oldest {
			oldest = minor
		}
	}
	return oldest
}

// An etcdServer is the process of a member.
type etcdServer struct {
	etcdserverpb.UnimplementedClusterServer
	etcdserverpb.UnimplementedMaintenanceServer
	etcdserverpb.UnimplementedKVServer
	host    *Host
	cluster *etcdCluster
	member  *etcdMember
	dataDir string
	version string
	since   time.Time // when it is healthy
	stop    []func()
}

// slowStart is how long an etcd needs that starts slowly.
const slowStart = 10 * time.Minute

// startEtcd starts etcd with the flags of its pod. The caller holds w.mu.
func (h *Host) startEtcd(p *pod, version string) (process, error) {
	f, w := p.flags, h.world
	config, err := h.serverTLS(f["cert-file"], f["key-file"], f["trusted-ca-file"], true)
	if err != nil {
		return nil, err
	}
	s := &etcdServer{host: h, dataDir: h.hostPath(f["data-dir"]), version: strings.TrimPrefix(version, "v")}
	if i := strings.IndexByte(s.version, '-'); i > 0 {
		s.version = s.version[:i]
	}
	if err := s.open(f); err != nil {
		return nil, err
	}
	minor := s.version[:strings.LastIndexByte(s.version, '.')]
	if s.cluster.minor > minor {
		return nil, fmt.Errorf("its data is of etcd %s, this is %s", s.cluster.minor, s.version)
	}
	if h.slow && s.cluster.minor != "" && s.cluster.minor != minor {
		s.since, h.slowed = time.Now().Add(slowStart), true
	}
	s.member.name, s.member.client, s.member.server = f["name"], f["advertise-client-urls"], s
	s.cluster.minor = max(s.cluster.minor, s.cluster.oldest())
	for _, listen := range strings.Split(f["listen-client-urls"], ",") {
		u, err := url.Parse(listen)
		if err != nil {
			return nil, err
		}
		server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
		etcdserverpb.RegisterClusterServer(server, s)
		etcdserverpb.RegisterMaintenanceServer(server, s)
		etcdserverpb.RegisterKVServer(server, s)
		l := w.listen(h.address("tcp", u.Host))
		w.done.Go(func() { _ = server.Serve(l) })
		s.stop = append(s.stop, server.Stop)
	}
	if u, err := url.Parse(f["listen-metrics-urls"]); err == nil {
		s.stop = append(s.stop, h.serveHealth(u.Port(), s.healthy))
	}
	return s, nil
}

// open opens the data directory, or creates it. The caller holds w.mu.
func (s *etcdServer) open(f map[string]string) error {
	w := s.host.world
	if id, err := etcd.ReadIdentity(s.dataDir); err == nil {
		s.cluster = w.clusters[id.Cluster]
		if s.cluster == nil {
			if s.cluster, err = loadCluster(id, s.dataDir, f); err != nil {
				return err
			}
			w.clusters[id.Cluster] = s.cluster
		}
		if s.member = s.cluster.members[id.Member]; s.member == nil {
			return errors.New("the member has been permanently removed from the cluster")
		}
		return nil
	}
	peer := f["initial-advertise-peer-urls"]
	if f["initial-cluster-state"] == "existing" {
		for _, c := range w.clusters {
			for _, m := range c.members {
				if m.peer == peer && m.server == nil && c.quorum() {
					s.cluster, s.member = c, m
					return s.create()
				}
			}
		}
		return errors.New("no cluster has this member")
	}
	id, err := etcd.RestoredIdentity(f["name"], peer, "etcd-cluster")
	if err != nil {
		return err
	}
	s.member = &etcdMember{id: id.Member, name: f["name"], peer: peer}
	s.cluster = &etcdCluster{id: id.Cluster, members: map[uint64]*etcdMember{id.Member: s.member}, data: map[string]string{}, revision: 1, removed: map[string]removed{}}
	w.clusters[id.Cluster] = s.cluster
	w.note("%s: a new etcd cluster %016x", s.host.Name, id.Cluster)
	return s.create()
}

// create writes a data directory.
func (s *etcdServer) create() error {
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: proto.Uint64(s.member.id), ClusterID: proto.Uint64(s.cluster.id)})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.dataDir, "member", "snap"), 0o700); err != nil {
		return err
	}
	log, err := wal.Create(zap.NewNop(), filepath.Join(s.dataDir, "member", "wal"), metadata)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := log.Save(&raftpb.HardState{Term: proto.Uint64(1)}, []*raftpb.Entry{{Term: proto.Uint64(1), Index: proto.Uint64(1)}}); err != nil {
		return err
	}
	return s.cluster.write(etcd.DatabasePath(s.dataDir))
}

func (s *etcdServer) healthy() error {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	if !s.cluster.quorum() {
		return errors.New("there is no leader")
	}
	return nil
}

func (s *etcdServer) end() {
	for _, stop := range s.stop {
		stop()
	}
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	s.member.server = nil
	if path := etcd.DatabasePath(s.dataDir); s.host.exists(strings.TrimPrefix(path, s.host.Root)) {
		_ = s.cluster.write(path)
	}
}

func (s *etcdServer) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: s.cluster.id, MemberId: s.member.id, Revision: s.cluster.revision, RaftTerm: 2}
}

func (s *etcdServer) list() (list []*etcdserverpb.Member) {
	for _, id := range slices.Sorted(maps.Keys(s.cluster.members)) {
		m := s.cluster.members[id]
		one := &etcdserverpb.Member{ID: m.id, Name: m.name, PeerURLs: []string{m.peer}, IsLearner: m.learner}
		if m.client != "" {
			one.ClientURLs = []string{m.client}
		}
		list = append(list, one)
	}
	return list
}

// change checks the quorum and calls do with the lock, for a change that a command requests.
func (s *etcdServer) change(ctx context.Context, what string, do func() error) error {
	if err := s.host.world.effectOf(ctx, what); err != nil {
		return err
	}
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	if !s.cluster.quorum() {
		return rpctypes.ErrGRPCNoLeader
	}
	return do()
}

func (s *etcdServer) MemberList(_ context.Context, r *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	if r.Linearizable && !s.cluster.quorum() {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	return &etcdserverpb.MemberListResponse{Header: s.header(), Members: s.list()}, nil
}

// Range returns the values of keys, all on one page.
func (s *etcdServer) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	if !s.cluster.quorum() {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	answer := &etcdserverpb.RangeResponse{Header: s.header()}
	for _, key := range slices.Sorted(maps.Keys(s.cluster.data)) {
		if at := "/registry/" + key; at >= string(r.Key) && at < string(r.RangeEnd) {
			answer.Kvs = append(answer.Kvs, &mvccpb.KeyValue{Key: []byte(at), Value: []byte(s.cluster.data[key])})
		}
	}
	return answer, nil
}

func (s *etcdServer) MemberAdd(ctx context.Context, r *etcdserverpb.MemberAddRequest) (resp *etcdserverpb.MemberAddResponse, err error) {
	err = s.change(ctx, "etcd member add "+r.PeerURLs[0], func() error {
		for _, m := range s.cluster.members {
			if m.learner {
				return rpctypes.ErrGRPCTooManyLearners
			}
		}
		sum := fnv.New64a()
		fmt.Fprint(sum, r.PeerURLs[0], s.cluster.revision)
		m := &etcdMember{id: sum.Sum64(), peer: r.PeerURLs[0], learner: r.IsLearner}
		s.cluster.members[m.id] = m
		s.cluster.revision++
		list := s.list()
		i := slices.IndexFunc(list, func(o *etcdserverpb.Member) bool { return o.ID == m.id })
		resp = &etcdserverpb.MemberAddResponse{Header: s.header(), Member: list[i], Members: list}
		return nil
	})
	return resp, err
}

func (s *etcdServer) MemberPromote(ctx context.Context, r *etcdserverpb.MemberPromoteRequest) (resp *etcdserverpb.MemberPromoteResponse, err error) {
	err = s.change(ctx, "etcd member promote", func() error {
		m := s.cluster.members[r.ID]
		switch {
		case m == nil:
			return rpctypes.ErrGRPCMemberNotFound
		case !m.learner:
			return rpctypes.ErrGRPCMemberNotLearner
		case m.server == nil:
			return rpctypes.ErrGRPCLearnerNotReady
		}
		m.learner = false
		resp = &etcdserverpb.MemberPromoteResponse{Header: s.header(), Members: s.list()}
		return nil
	})
	return resp, err
}

func (s *etcdServer) MemberRemove(ctx context.Context, r *etcdserverpb.MemberRemoveRequest) (resp *etcdserverpb.MemberRemoveResponse, err error) {
	err = s.change(ctx, "etcd member remove", func() error {
		m := s.cluster.members[r.ID]
		if m == nil {
			return rpctypes.ErrGRPCMemberNotFound
		}
		s.host.world.note("etcd: removed member %s", m.name)
		s.host.world.removes(runOf(ctx), m)
		delete(s.cluster.members, r.ID)
		resp = &etcdserverpb.MemberRemoveResponse{Header: s.header(), Members: s.list()}
		return nil
	})
	return resp, err
}

func (s *etcdServer) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	r := &etcdserverpb.StatusResponse{Header: s.header(), Version: s.version, Leader: s.cluster.leader(), RaftTerm: 2, RaftIndex: 1, RaftAppliedIndex: 1, IsLearner: s.member.learner, DbSize: 1, DbSizeInUse: 1}
	if r.Leader == 0 {
		r.Errors = []string{"etcdserver: no leader"}
	}
	return r, nil
}

func (s *etcdServer) Alarm(context.Context, *etcdserverpb.AlarmRequest) (*etcdserverpb.AlarmResponse, error) {
	return &etcdserverpb.AlarmResponse{Header: s.header()}, nil
}

func (s *etcdServer) Snapshot(_ *etcdserverpb.SnapshotRequest, stream grpc.ServerStreamingServer[etcdserverpb.SnapshotResponse]) error {
	dir, err := os.MkdirTemp(filepath.Dir(s.host.Root), "snapshot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "db")
	s.host.world.mu.Lock()
	err = s.cluster.write(path)
	s.host.world.mu.Unlock()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	data = append(data, sum[:]...)
	for len(data) > 0 {
		n := min(len(data), 32<<10)
		if err := stream.Send(&etcdserverpb.SnapshotResponse{Blob: data[:n], RemainingBytes: uint64(len(data) - n), Version: s.version}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// The buckets of etcd's database.
var buckets = []string{"key", "meta", "lease", "alarm", "cluster", "members", "members_removed", "auth", "authUsers", "authRoles"}

// write writes the data as the database of an etcd. The caller holds w.mu.
func (c *etcdCluster) write(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		if err := tx.Bucket([]byte("cluster")).Put([]byte("clusterVersion"), []byte(c.minor+".0")); err != nil {
			return err
		}
		b := tx.Bucket([]byte("key"))
		for i, key := range slices.Sorted(maps.Keys(c.data)) {
			value, err := encodeStored(key, c.data[key])
			if err != nil {
				return err
			}
			kv, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("/registry/" + key), Value: value})
			if err != nil {
				return err
			}
			revision := append(binary.BigEndian.AppendUint64(nil, uint64(c.revision)), '_')
			if err := b.Put(binary.BigEndian.AppendUint64(revision, uint64(i)), kv); err != nil {
				return err
			}
		}
		return nil
	})
}

// loadCluster reads a data directory that etcd restore has written.
func loadCluster(id etcd.Identity, dataDir string, f map[string]string) (*etcdCluster, error) {
	c := &etcdCluster{id: id.Cluster, data: map[string]string{}, removed: map[string]removed{}, members: map[uint64]*etcdMember{
		id.Member: {id: id.Member, name: f["name"], peer: f["initial-advertise-peer-urls"]},
	}}
	db, err := bbolt.Open(etcd.DatabasePath(dataDir), 0o600, &bbolt.Options{NoSync: true, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	defer func() { c.loaded, c.changed = c.revision, c.revision }()
	return c, db.View(func(tx *bbolt.Tx) error {
		if v := tx.Bucket([]byte("cluster")); v != nil {
			c.minor = strings.TrimSuffix(string(v.Get([]byte("clusterVersion"))), ".0")
		}
		return tx.Bucket([]byte("key")).ForEach(func(k, v []byte) error {
			c.revision = max(c.revision, int64(binary.BigEndian.Uint64(k)))
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(v, &kv); err != nil || len(kv.Key) == 0 {
				return err
			}
			key := strings.TrimPrefix(string(kv.Key), "/registry/")
			value, err := decodeStored(kv.Value)
			c.data[key] = value
			return err
		})
	})
}

// serverTLS reads the certificates of a server. clients is set if it needs certificates of its clients.
func (h *Host) serverTLS(cert, key, ca string, clients bool) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(h.hostPath(cert), h.hostPath(key))
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(h.hostPath(ca))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	var mu sync.Mutex
	current := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { // both servers read renewed certificates while they run
		mu.Lock()
		defer mu.Unlock()
		if renewed, err := tls.LoadX509KeyPair(h.hostPath(cert), h.hostPath(key)); err == nil {
			pair = renewed
		}
		latest := pair
		return &latest, nil
	}
	c := &tls.Config{GetCertificate: current, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, SessionTicketsDisabled: true}
	if clients {
		c.ClientAuth, c.NextProtos = tls.RequireAndVerifyClientCert, []string{"h2"}
	}
	return c, nil
}

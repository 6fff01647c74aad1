package etcd

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v2store"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"
)

// revisionBump is how much Restore increases the revision. The nodes of the cluster may have
// seen revisions after the snapshot: with a larger one, and all before it compacted, they
// read everything again instead of waiting for changes that they believe to have seen.
const revisionBump = 1_000_000_000

// DatabasePath is where the database of a data directory is.
func DatabasePath(dataDir string) string { return filepath.Join(dataDir, "member", "snap", "db") }

// WriteDatabase writes the database of a verified snapshot: all but the checksum at its end.
func WriteDatabase(w io.Writer, snapshot string) error {
	in, err := os.Open(snapshot)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	_, err = io.CopyN(w, in, info.Size()-info.Size()%sector)
	return err
}

// Restore turns a data directory with only the database of a snapshot into the data directory of a
// new cluster with one member. The new IDs depend on token: with a new token, members of the old
// cluster cannot join.
func Restore(dataDir, name, peerURL, token string) error {
	if err := restore(dataDir, name, peerURL, token); err != nil {
		return fmt.Errorf("restoring etcd's data in %s: %w", dataDir, err)
	}
	return nil
}

// log makes etcd's code panic where it would end the process without a message.
var log = zap.NewNop().WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic))

func restore(dataDir, name, peerURL, token string) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, cause)
		}
	}()
	cluster, err := newCluster(name, peerURL, token)
	if err != nil {
		return err
	}
	b := backend.NewDefaultBackend(log, DatabasePath(dataDir))
	err = writeMember(b, cluster)
	if closed := b.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return writeLog(cluster, name, filepath.Join(dataDir, "member", "wal"), filepath.Join(dataDir, "member", "snap"))
}

// newCluster returns a cluster with one member.
func newCluster(name, peerURL, token string) (*membership.RaftCluster, error) {
	urls, err := types.NewURLsMap(name + "=" + peerURL)
	if err != nil {
		return nil, err
	}
	return membership.NewClusterFromURLsMap(log, token, urls)
}

// Entries and terms of the new cluster's log: one entry adds the member.
const firstIndex, firstTerm = 1, 1

// writeMember replaces the members in the database, and increases the revision.
func writeMember(b backend.Backend, cluster *membership.RaftCluster) error {
	members := schema.NewMembershipBackend(log, b)
	if err := members.TrimMembershipFromBackend(); err != nil {
		return err
	}
	cluster.SetBackend(members)
	for _, m := range cluster.Members() {
		cluster.AddMember(m, true)
	}
	tx := b.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	latest := uint64(0)
	err := tx.UnsafeForEach(schema.Key, func(k, _ []byte) error {
		latest = max(latest, binary.BigEndian.Uint64(k))
		return nil
	})
	if err != nil {
		return err
	}
	revision := append(binary.BigEndian.AppendUint64(nil, latest+revisionBump), '_')
	revision = binary.BigEndian.AppendUint64(revision, 0)
	tx.UnsafePut(schema.Key, revision, nil)
	tx.UnsafePut(schema.Meta, schema.ScheduledCompactKeyName, revision)
	schema.UnsafeUpdateConsistentIndexForce(tx, firstIndex, firstTerm)
	return nil
}

// writeLog writes the write-ahead log with the entry that adds the member, and the snapshot
// of the members that etcd before v3.6 reads.
func writeLog(cluster *membership.RaftCluster, name, walDir, snapDir string) error {
	m := cluster.MemberByName(name)
	id := uint64(m.ID)
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: proto.Uint64(id), ClusterID: proto.Uint64(uint64(cluster.ID()))})
	if err != nil {
		return err
	}
	member, err := json.Marshal(m)
	if err != nil {
		return err
	}
	change, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: proto.Uint64(id), Context: member})
	if err != nil {
		return err
	}
	w, err := wal.Create(log, walDir, metadata)
	if err != nil {
		return err
	}
	defer w.Close()
	state := &raftpb.HardState{Term: proto.Uint64(firstTerm), Vote: proto.Uint64(id), Commit: proto.Uint64(firstIndex)}
	entry := &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Term: proto.Uint64(firstTerm), Index: proto.Uint64(firstIndex), Data: change}
	if err := w.Save(state, []*raftpb.Entry{entry}); err != nil {
		return err
	}
	store := v2store.New("/0", "/1")
	cluster.Store(store)
	data, err := store.SaveNoCopy()
	if err != nil {
		return err
	}
	voters := &raftpb.ConfState{Voters: []uint64{id}}
	err = snap.New(log, snapDir).SaveSnap(&raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{
		Index: proto.Uint64(firstIndex), Term: proto.Uint64(firstTerm), ConfState: voters,
	}})
	if err != nil {
		return err
	}
	return w.SaveSnapshot(&walpb.Snapshot{Index: proto.Uint64(firstIndex), Term: proto.Uint64(firstTerm), ConfState: voters})
}

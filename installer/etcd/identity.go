package etcd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// An Identity has the ID of an etcd cluster and the ID of one of its members.
type Identity struct{ Cluster, Member uint64 }

func (i Identity) String() string {
	return fmt.Sprintf("cluster %016x, member %016x", i.Cluster, i.Member)
}

// RestoredIdentity returns the identity of a member whose data Restore has written.
func RestoredIdentity(name, peerURL, token string) (Identity, error) {
	cluster, err := newCluster(name, peerURL, token)
	if err != nil {
		return Identity{}, err
	}
	return Identity{uint64(cluster.ID()), uint64(cluster.MemberByName(name).ID)}, nil
}

// ReadIdentity reads the identity in a data directory. etcd may run.
func ReadIdentity(dataDir string) (Identity, error) {
	id, err := readIdentity(filepath.Join(dataDir, "member", "wal"))
	if err != nil {
		return id, fmt.Errorf("reading etcd's data in %s: %w", dataDir, err)
	}
	return id, nil
}

func readIdentity(walDir string) (Identity, error) {
	logs, err := filepath.Glob(filepath.Join(walDir, "*.wal"))
	if err != nil {
		return Identity{}, err
	}
	if len(logs) == 0 {
		return Identity{}, fmt.Errorf("%s has no write-ahead log", walDir)
	}
	f, err := os.Open(logs[0]) // each file begins with the same metadata
	if err != nil {
		return Identity{}, err
	}
	defer f.Close()
	decoder, record := wal.NewDecoder(fileutil.NewFileReader(f)), &walpb.Record{}
	for record.GetType() != wal.MetadataType {
		if err := decoder.Decode(record); err != nil {
			return Identity{}, fmt.Errorf("%s has no metadata: %w", logs[0], err)
		}
		if record.GetType() == wal.CrcType {
			decoder.UpdateCRC(record.GetCrc())
		}
	}
	var m etcdserverpb.Metadata
	if err := proto.Unmarshal(record.GetData(), &m); err != nil {
		return Identity{}, fmt.Errorf("%s has no metadata: %w", logs[0], err)
	}
	return Identity{m.GetClusterID(), m.GetNodeID()}, nil
}

// Identity returns the identity of the member to which the client is connected.
func (c *Client) Identity(ctx context.Context) (id Identity, err error) {
	err = c.try(ctx, "reading etcd's IDs", func(ctx context.Context) error {
		r, err := c.api.MemberList(ctx)
		if err != nil {
			return err
		}
		id = Identity{r.Header.GetClusterId(), r.Header.GetMemberId()}
		return nil
	})
	return id, err
}

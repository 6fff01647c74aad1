package etcd

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

const (
	// keyBucket has one entry for each revision of each key.
	keyBucket = "key"
	// A key of that bucket is the main revision, "_" and the sub-revision, and for a
	// deletion one more byte.
	revisionLength, deletionLength = 17, 18
	// sector is the unit of the database's size; a snapshot has its sha256 after that.
	sector = 512
)

// ErrDamaged is the cause of errors about a damaged snapshot.
var ErrDamaged = errors.New("the snapshot is damaged")

// VerifySnapshot reads the snapshot at path: it compares the checksum that etcd appends,
// checks the structure of the database, and counts the keys.
func VerifySnapshot(path string) (Snapshot, error) {
	s, err := readSnapshot(path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("verifying the snapshot of etcd: %w", err)
	}
	return s, nil
}

func readSnapshot(path string) (s Snapshot, err error) {
	if s.Size, err = compareChecksum(path); err != nil {
		return s, err
	}
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		var first error
		for err := range tx.Check() { // the channel must be read to its end
			if first == nil {
				first = err
			}
		}
		if first != nil {
			return first
		}
		return s.read(tx)
	})
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return s, nil
}

// compareChecksum returns the size of a snapshot whose sha256, at its end, is correct.
func compareChecksum(path string) (size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size = info.Size()
	if size <= sha256.Size || size%sector != sha256.Size {
		return 0, fmt.Errorf("%w: it ends early: it has %d bytes, and no checksum at the end", ErrDamaged, size)
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, size-sha256.Size); err != nil {
		return 0, err
	}
	want, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	if got := sum.Sum(nil); !bytes.Equal(got, want) {
		return 0, fmt.Errorf("%w: its sha256 is %x, want %x", ErrDamaged, got, want)
	}
	return size, nil
}

// read sets the hash, the revision and the number of keys.
func (s *Snapshot) read(tx *bbolt.Tx) error {
	hash := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	keys := map[string]bool{}
	err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		hash.Write(name)
		return b.ForEach(func(k, v []byte) error {
			hash.Write(k)
			hash.Write(v)
			if string(name) != keyBucket {
				return nil
			}
			c, err := readChange(k, v)
			if err != nil {
				return err
			}
			s.Revision = c.revision
			if c.deleted {
				delete(keys, c.key)
			} else {
				keys[c.key] = true
			}
			return nil
		})
	})
	s.Hash, s.Keys = hash.Sum32(), len(keys)
	return err
}

// A change is one revision of a key.
type change struct {
	revision int64
	key      string
	value    []byte
	deleted  bool
}

// readChange reads an entry of the bucket with the keys.
func readChange(k, v []byte) (c change, err error) {
	if len(k) != revisionLength && len(k) != deletionLength {
		return c, fmt.Errorf("the revision %x has %d bytes", k, len(k))
	}
	c.revision, c.deleted = int64(binary.BigEndian.Uint64(k)), len(k) == deletionLength
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(v, &kv); err != nil {
		return c, fmt.Errorf("reading revision %d: %w", c.revision, err)
	}
	c.key, c.value = string(kv.GetKey()), kv.GetValue()
	return c, nil
}

// DataVersion returns the version of etcd in a verified snapshot ("3.7.0"): an etcd with an older minor version does not
// start with its data. It returns "" if the snapshot has none.
func DataVersion(snapshot string) (version string, err error) {
	db, err := bbolt.Open(snapshot, 0, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return "", fmt.Errorf("reading the snapshot of etcd: %w", err)
	}
	defer db.Close()
	return version, db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(schema.Cluster.Name()); b != nil {
			version = string(b.Get(schema.ClusterClusterVersionKeyName))
		}
		return nil
	})
}

// Values returns the values of keys in a verified snapshot. A key that does not exist is not in the
// result.
func Values(snapshot string, keys ...string) (map[string][]byte, error) {
	db, err := bbolt.Open(snapshot, 0, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("reading the snapshot of etcd: %w", err)
	}
	defer db.Close()
	values := map[string][]byte{}
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(keyBucket))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			c, err := readChange(k, v)
			switch {
			case err != nil:
				return err
			case !slices.Contains(keys, c.key):
			case c.deleted:
				delete(values, c.key)
			default:
				values[c.key] = c.value
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("reading the snapshot of etcd: %w: %w", ErrDamaged, err)
	}
	return values, nil
}

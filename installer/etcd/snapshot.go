package etcd

import (
	"context"
	"fmt"
	"io"
	"time"
)

// A Snapshot describes a verified snapshot of etcd's data.
type Snapshot struct {
	// Hash is the CRC-32C of all buckets, as `etcdutl snapshot status` prints it.
	Hash uint32 `json:"hash"`
	// Revision is the revision of the last change.
	Revision int64 `json:"revision"`
	// Keys is the number of keys that existed at that revision.
	Keys int `json:"keys"`
	// Size is the size of the file in bytes, with the checksum at its end.
	Size int64 `json:"size"`
}

// stallTimeout ends a snapshot whose member stops sending.
const stallTimeout = time.Minute

// Snapshot writes the data of the member to which the client is connected to w. Connect the
// client to one member only. The caller must verify the result with VerifySnapshot: a
// connection that ends early leaves an incomplete snapshot.
func (c *Client) Snapshot(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("no data for %s", stallTimeout)) })
	defer stalled.Stop()
	stream, err := c.api.SnapshotWithVersion(ctx)
	if err != nil {
		return fmt.Errorf("taking a snapshot of etcd: %w", err)
	}
	defer stream.Snapshot.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := stream.Snapshot.Read(buffer)
		stalled.Reset(stallTimeout)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return fmt.Errorf("writing the snapshot of etcd: %w", err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("taking a snapshot of etcd: %w", err)
		}
	}
}

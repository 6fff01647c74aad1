package etcd

import (
	"context"
	"fmt"
)

// A Size is what one member reports about its database.
type Size struct {
	Version string // of etcd: "3.5.16"
	Leader  bool
	Bytes   int64 // of the file
	InUse   int64 // the rest is free after a defragmentation
}

// SizeOf asks a member for the size of its database.
func (c *Client) SizeOf(ctx context.Context, m Member) (Size, error) {
	if len(m.ClientURLs) == 0 {
		return Size{}, fmt.Errorf("asking etcd's member %s: it has not started yet", m)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := c.api.Status(ctx, m.ClientURLs[0])
	if err != nil {
		return Size{}, fmt.Errorf("asking etcd's member %s: %w", m, err)
	}
	return Size{Version: s.Version, Leader: s.Leader == m.ID, Bytes: s.DbSize, InUse: s.DbSizeInUse}, nil
}

package installer

import (
	"context"
	"io"

	"airlift/installer/etcd"
)

// takeSnapshot writes a verified snapshot to a file that can be opened by its Name.
func takeSnapshot(ctx context.Context, c *etcd.Client, out interface {
	io.Writer
	Name() string
}) (etcd.Snapshot, error) {
	if err := c.Snapshot(ctx, out); err != nil {
		return etcd.Snapshot{}, err
	}
	return etcd.VerifySnapshot(out.Name())
}

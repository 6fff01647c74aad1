package installer

import (
	"context"

	"airlift/installer/etcd"
	"airlift/installer/host"
)

// takeSnapshot writes a verified snapshot to a file that has a temporary name.
func takeSnapshot(ctx context.Context, c *etcd.Client, out *host.Output) (etcd.Snapshot, error) {
	if err := c.Snapshot(ctx, out); err != nil {
		return etcd.Snapshot{}, err
	}
	return etcd.VerifySnapshot(out.Name())
}

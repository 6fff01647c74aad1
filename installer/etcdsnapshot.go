package installer

import (
	"context"
	"fmt"
	"io"

	"airlift/installer/etcd"
	"airlift/installer/host"
)

// saveSnapshot saves a snapshot of this host's etcd to a file, which has its name only after
// the snapshot is verified. An existing file is replaced.
func saveSnapshot(ctx context.Context, m *machine, path string) (etcd.Snapshot, error) {
	c, _, err := localEtcdClient(ctx, m)
	if err != nil {
		return etcd.Snapshot{}, err
	}
	defer c.Close()
	out, err := host.CreateOutput(path)
	if err != nil {
		return etcd.Snapshot{}, fmt.Errorf("writing %s: %w", path, err)
	}
	defer out.Discard()
	s, err := takeSnapshot(ctx, c, out)
	if err != nil {
		return s, err
	}
	if err := out.Commit(); err != nil {
		return s, fmt.Errorf("writing %s: %w", path, err)
	}
	return s, nil
}

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

package installer

import (
	"context"
	"fmt"

	"airlift/fault"
	"airlift/installer/etcd"
	"airlift/installer/host"
)

// saveSnapshot saves a snapshot of this host's etcd to a file, which has its name only after
// the snapshot is verified. An existing file is replaced.
func saveSnapshot(ctx context.Context, m *machine, e *localEtcd, path string) (etcd.Snapshot, error) {
	out, err := host.CreateOutput(path)
	if err != nil {
		return etcd.Snapshot{}, fmt.Errorf("writing %s: %w", path, err)
	}
	defer out.Discard()
	s, err := takeSnapshot(ctx, m, e, out)
	if err != nil {
		return s, err
	}
	if err := out.Commit(); err != nil {
		return s, fmt.Errorf("writing %s: %w", path, err)
	}
	return s, nil
}

// takeSnapshot writes a verified snapshot of this host's etcd to a temporary file.
func takeSnapshot(ctx context.Context, m *machine, e *localEtcd, out *host.Output) (etcd.Snapshot, error) {
	c, err := connectEtcd(ctx, m, []string{e.clientURL}, e.certificates, etcd.DefaultTimeout)
	if err != nil {
		return etcd.Snapshot{}, fault.Wrap(err, fault.Failure, "see the kubelet's log: journalctl -u kubelet -e; and that of etcd below /var/log/pods")
	}
	defer c.Close()
	if err := c.Snapshot(ctx, out); err != nil {
		return etcd.Snapshot{}, err
	}
	return etcd.VerifySnapshot(out.Name())
}

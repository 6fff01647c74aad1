package installer

import (
	"cmp"
	"context"
	"path"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/preflight"
)

// What etcd needs of its disk before it has any load: write-ahead log files of
// 64 MB, reserved in full, of which it keeps 5 and one in advance
// (its wal package: SegmentSizeBytes, filePipeline; embed: DefaultMaxWALs),
// and a database, of which a small cluster has some tens of MB. The database may
// grow to 2 GiB (DefaultQuotaBytes).
const (
	etcdBytes    = 6*64_000_000 + 100_000_000
	etcdMaxBytes = 2 << 30
)

// What the kubelet leaves free before it evicts pods (evictionHard: imagefs and
// nodefs.available), in percent.
const (
	imageEviction = 15
	nodeEviction  = 10
)

// smallBytes is more than all files of a few KB in a directory take: the
// configuration, and the ledger with the originals of replaced ones.
const smallBytes = 1_000_000

// diskSpace sums what will be written where.
func (n *node) diskSpace(ctx context.Context) ([]preflight.Space, error) {
	images, err := n.imageSpace(ctx)
	if err != nil {
		return nil, err
	}
	list := append(n.binarySpace(), images)
	if !n.config.Facts.DefaultRoute && !fileExists(n.existing, host.StubPath) {
		list = append(list, preflight.Space{Path: path.Dir(host.StubPath), Bytes: uint64(n.plan.bundle.file.Installer().Size), Files: 1})
	}
	if etcd := n.config.Etcd; n.plan.controlPlane && etcd.External == nil {
		dir := cmp.Or(etcd.Local.DataDir, config.EtcdDataDir)
		space := preflight.Space{Path: dir, Bytes: etcdBytes, Grows: etcdMaxBytes, Files: 10}
		if fileExists(n.existing, path.Join(dir, "member")) {
			space = preflight.Space{Path: dir}
		}
		list = append(list, space)
	}
	return append(list,
		preflight.Space{Path: config.KubeletDir, Bytes: smallBytes, Files: 100, KeepFree: nodeEviction},
		preflight.Space{Path: config.KubernetesDir, Bytes: smallBytes, Files: 50},
		preflight.Space{Path: host.StateDir, Bytes: smallBytes, Files: 50},
	), nil
}

// binarySpace sums the binaries that are not there yet.
func (n *node) binarySpace() []preflight.Space {
	var list []preflight.Space
	for _, e := range n.plan.bundle.manifest.Entries {
		if dest := binaryPath(e.Name); dest != "" && n.wantsBinary(e.Name) && !fileExists(n.existing, dest) {
			list = append(list, preflight.Space{Path: path.Dir(dest), Bytes: uint64(e.Size), Files: 1})
		}
	}
	return list
}

// imageSpace sums the layers of the images. A containerd that runs already is
// asked which it has; on a node of ours they are taken to be there.
func (n *node) imageSpace(ctx context.Context) (preflight.Space, error) {
	space := preflight.Space{Path: containerdDir, KeepFree: imageEviction}
	wanted := n.plan.images()
	switch {
	case n.runtime != nil:
		space.Path = cmp.Or(n.runtime.info.ImageDir, containerdDir)
		var err error
		if wanted, err = n.containerd.Missing(ctx, wanted); err != nil {
			return space, err
		}
	case n.rerun:
		return space, nil
	}
	counted := map[string]bool{}
	for _, i := range wanted {
		for _, l := range i.Layers {
			if !counted[l.DiffID] {
				counted[l.DiffID] = true
				space.Bytes += uint64(l.Size)
				space.Files++ // at least
			}
		}
	}
	return space, nil
}

package phases

import (
	"cmp"
	"context"
	"path"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/preflight"
	"airlift/installer/registry"
)

// etcdBytes is what etcd needs on an idle cluster: write-ahead log files of 64 MB
// and a database of some tens of MB. etcd keeps 5 log files and allocates one in
// advance, each in full size (its wal package: SegmentSizeBytes, filePipeline;
// embed: DefaultMaxWALs). etcdMaxBytes is the default maximum size of the
// database, 2 GiB (DefaultQuotaBytes).
const (
	etcdBytes    = 6*64_000_000 + 100_000_000
	etcdMaxBytes = 2 << 30
)

// The kubelet evicts pods if less than this is free, in percent (evictionHard:
// imagefs.available and nodefs.available).
const (
	imageEviction = 15
	nodeEviction  = 10
)

// SmallBytes is enough for a directory of small files: the configuration, or
// the ledger with copies of the files that Airlift replaced.
const SmallBytes = 1_000_000

// diskSpace returns how much init or join will write to each directory.
func (n *Node) diskSpace(ctx context.Context) ([]preflight.Space, error) {
	images, err := n.imageSpace(ctx)
	if err != nil {
		return nil, err
	}
	missing := func(path string) bool { return !node.FileExists(n.Existing, path) }
	list := append(Space(n.content(), missing), images)
	if n.Config.Registry.Used && n.Plan.Role.Kind == controlPlaneKind {
		kept := n.Config.Registry
		kept.Keep(registry.Describe(n.Plan.Bundle.File, n.Plan.Bundle.Manifest))
		list = append(list, KeptSpace(n.Existing, kept))
	}
	if n.Plan.hasEtcd(n.Config) {
		dir := cmp.Or(n.Config.Etcd.Local.DataDir, config.EtcdDataDir)
		space := preflight.Space{Path: dir, Bytes: etcdBytes, Grows: etcdMaxBytes, Files: 10}
		if node.FileExists(n.Existing, path.Join(dir, "member")) {
			space = preflight.Space{Path: dir}
		} else if n.Restored != nil { // the snapshot, and the database from it
			space.Bytes += 2 * uint64(n.Restored.Size)
		}
		list = append(list, space)
	}
	return append(list,
		preflight.Space{Path: config.KubeletDir, Bytes: SmallBytes, Files: 100, KeepFree: nodeEviction},
		preflight.Space{Path: config.KubernetesDir, Bytes: SmallBytes, Files: 50},
		preflight.Space{Path: ledger.StateDir, Bytes: SmallBytes, Files: 50},
	), nil
}

// KeptSpace returns the space for the files that a control plane keeps and does not have yet.
func KeptSpace(h *host.Host, r config.EmbeddedRegistry) preflight.Space {
	space := preflight.Space{Path: registry.Directory}
	for _, b := range r.Bundles {
		if !node.FileExists(h, path.Join(registry.Directory, b.ID)) {
			space.Bytes += uint64(b.Size)
			space.Files++
		}
	}
	return space
}

// Space returns the space for those binaries and files of the site in a list that counts accepts, by
// their path.
func Space(l desired.List, counts func(path string) bool) (list []preflight.Space) {
	add := func(file string, size int64) {
		if counts(file) {
			list = append(list, preflight.Space{Path: path.Dir(file), Bytes: uint64(size), Files: 1})
		}
	}
	for _, b := range l.Binaries {
		add(b.Path, b.Size)
	}
	for _, f := range l.SiteFiles {
		add(f.Path, f.Size)
	}
	return list
}

// imageSpace returns the space for the image layers. An existing containerd
// reports which images it already has. In a repeated run, Airlift's containerd
// is assumed to have them all.
func (n *Node) imageSpace(ctx context.Context) (preflight.Space, error) {
	space := preflight.Space{Path: node.ContainerdDir, KeepFree: imageEviction}
	wanted := n.Plan.Images()
	switch {
	case n.Observed.Runtime != nil:
		space.Path = cmp.Or(n.Observed.Runtime.Info.ImageDir, node.ContainerdDir)
		var err error
		if wanted, err = n.Watch.Containerd.Missing(ctx, wanted); err != nil {
			return space, err
		}
	case n.Observed.IsNode:
		return space, nil
	}
	return LayerSpace(space.Path, wanted), nil
}

// LayerSpace returns the space for the layers of images below a directory.
func LayerSpace(dir string, images []bundle.Image) preflight.Space {
	space := preflight.Space{Path: dir, KeepFree: imageEviction}
	counted := map[string]bool{}
	for _, i := range images {
		for _, l := range i.Layers {
			if !counted[l.DiffID] {
				counted[l.DiffID] = true
				space.Bytes += uint64(l.Size)
				space.Files++ // a layer has at least one file
			}
		}
	}
	return space
}

package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"airlift/images/release"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/render"
	"airlift/installer/runtimecheck"
)

// ContainerdPath is the binary of Airlift's containerd.
const ContainerdPath = "/usr/local/bin/containerd"

// Installed is the containerd at ContainerdPath of a host.
func Installed(h *host.Host) func(context.Context) (runtimecheck.Binary, error) {
	return func(context.Context) (runtimecheck.Binary, error) {
		return runtimecheck.Binary{Path: h.Path(ContainerdPath)}, nil
	}
}

// OwnContainerdFiles checks the files that Airlift's containerd reads at its next start. open returns its binary. written are files
// that are written before it starts, by their paths: Airlift's configuration file, and the site's own files.
func OwnContainerdFiles(ctx context.Context, h *host.Host, open func(context.Context) (runtimecheck.Binary, error), written map[string][]byte) ([]runtimecheck.Problem, error) {
	_, own := written[render.ContainerdConfigPath]
	if !own {
		now, err := h.ReadIfExists(render.ContainerdConfigPath)
		if err != nil {
			return nil, err
		}
		e, _ := h.Records().Find(ledger.File, render.ContainerdConfigPath)
		own = e.Wrote(filesystem.Digest(now))
	}
	return runtimecheck.Check{
		Open: open, Files: overlay{os.DirFS(h.Path("/")), written}, Config: render.ContainerdConfigPath, Written: own,
		Adjust: func(n *runtimecheck.Need) {
			configured, others := n.HasImage, sync.OnceValue(func() map[string]bool { return namesOfImages(ctx, h) })
			n.HasImage = func(name string) bool { return configured(name) || others()[fullName(name)] }
			n.Snapshotter = snapshotterOf(ctx, h)
			if own {
				return
			}
			n.Socket = config.ContainerdSocket
			if kubelet, err := KubeletConfiguration(h); err == nil && kubelet.CgroupDriver != "" {
				n.CgroupDriver = kubelet.CgroupDriver
			}
		},
	}.Problems(ctx)
}

// ContainerdFiles checks the files that the containerd of a node reads at its next start, for example after a reboot.
func ContainerdFiles(ctx context.Context, h *host.Host) ([]runtimecheck.Problem, error) {
	if h.Records().OwnsRuntime() {
		return OwnContainerdFiles(ctx, h, Installed(h), nil)
	}
	runtime, err := OpenRuntime(ctx, h)
	if err != nil {
		return nil, err
	}
	defer runtime.Close()
	info, err := runtime.Info(ctx)
	if err != nil {
		return nil, err
	}
	names := sync.OnceValue(func() map[string]bool { return namesOfImages(ctx, h) })
	return (&ExistingRuntime{Info: info, Store: runtime}).Files(ctx, func(name string) bool { return names()[fullName(name)] })
}

// Files checks the files that the container runtime reads at its next start: what it has now is what the node needs. hasImage reports
// whether the node has an image, or will have it. It finds nothing if the runtime is part of another program than containerd.
func (r *ExistingRuntime) Files(ctx context.Context, hasImage func(name string) bool) ([]runtimecheck.Problem, error) {
	process, err := store.ProcessOf(r.Store.Socket())
	if errors.Is(err, syscall.ECONNREFUSED) { // it ended since it was asked: it is not known which files it reads
		return nil, nil
	}
	if err != nil || path.Base(process.Exe) != "containerd" || !r.Info.CRI {
		return nil, err
	}
	need := runtimecheck.Need{
		Socket: r.Store.Socket(), CgroupDriver: r.CgroupDriver(), HasImage: hasImage,
		CNIBinDirs: r.Info.CNIBinDirs, CNIConfDir: r.Info.CNIConfDir, Snapshotter: r.Info.Snapshotter, RestrictsOOM: r.Info.RestrictOOMScoreAdj,
	}
	open := func(context.Context) (runtimecheck.Binary, error) { return runtimecheck.Binary{Path: process.Exe}, nil }
	return runtimecheck.Check{Open: open, Files: os.DirFS("/"), Config: process.Config, Need: &need}.Problems(ctx)
}

// snapshotterOf returns the snapshotter of a node's container runtime, "" if it does not answer, as on a host that is no node yet.
func snapshotterOf(ctx context.Context, h *host.Host) string {
	runtime, err := OpenRuntime(ctx, h)
	if err != nil {
		return ""
	}
	defer runtime.Close()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, _ := runtime.Info(ctx)
	return info.Snapshotter
}

// namesOfImages returns the names of the images that the container runtime of a node has, none if it does not answer.
func namesOfImages(ctx context.Context, h *host.Host) map[string]bool {
	names := map[string]bool{}
	runtime, err := OpenRuntime(ctx, h)
	if err != nil {
		return names
	}
	defer runtime.Close()
	images, _ := runtime.Images(ctx)
	for _, image := range images {
		for _, name := range image.Names {
			names[name] = true
		}
	}
	return names
}

// fullName returns the full form of an image's name, as containerd has it.
func fullName(name string) string {
	if full, err := release.Normalize(name); err == nil {
		return full
	}
	return name
}

// An overlay is a file system with other contents of some files, by their absolute paths.
type overlay struct {
	fs.FS
	over map[string][]byte
}

func (o overlay) ReadFile(name string) ([]byte, error) {
	if data, ok := o.over["/"+name]; ok {
		return data, nil
	}
	return fs.ReadFile(o.FS, name)
}

func (o overlay) Glob(pattern string) ([]string, error) {
	found, err := fs.Glob(o.FS, pattern)
	for name := range o.over {
		if ok, _ := path.Match(pattern, strings.TrimPrefix(name, "/")); ok {
			found = append(found, strings.TrimPrefix(name, "/"))
		}
	}
	slices.Sort(found)
	return slices.Compact(found), err
}

package kubeadm

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"airlift/scripts/lab"
	"airlift/scripts/oracle/upstream/components"
)

// A Release is a file with binaries that an operator copies.
type Release struct {
	Path string // on this machine

	unpack string // shell command that unpacks the file $f
}

// bare are the binaries that upstream publishes uncompressed. They are copied as gzip, which
// every host has.
var bare = map[string]string{"kubelet": binDir, "kubectl": binDir, "kubeadm": binDir, "runc": sbinDir}

// Releases returns the files to copy: the release archives of containerd and of the CNI plugins,
// and gzip -6 of the uncompressed binaries. They are kept in the cache. The files do not include
// crictl; see CopyReleases.
func (k *Kit) Releases(ctx context.Context) ([]Release, error) {
	cache, err := components.CacheDir()
	if err != nil {
		return nil, err
	}
	containerd := "containerd-" + strings.TrimPrefix(components.Containerd, "v") + "-linux-amd64.tar.gz"
	plugins := "cni-plugins-linux-amd64-" + components.CNIPlugins + ".tgz"
	var list []Release
	for name, unpack := range map[string]string{
		containerd: "tar -C /usr/local -xzf $f",
		plugins:    "mkdir -p " + cniDir + " && tar -C " + cniDir + " -xzf $f",
	} {
		found, err := filepath.Glob(filepath.Join(cache, "dist", "*", name))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("looking for the release archive %s: none in the cache (%v)", name, err)
		}
		list = append(list, Release{found[len(found)-1], unpack})
	}
	for name, dir := range bare {
		program, err := components.Path(k.Version, name)
		if err != nil {
			return nil, err
		}
		// The directory's name identifies the version and the build.
		file := filepath.Join(cache, "kubeadm", "bare", filepath.Base(filepath.Dir(program)), name+".gz")
		if err := gzipped(ctx, program, file); err != nil {
			return nil, err
		}
		to := filepath.Join(dir, name)
		list = append(list, Release{file, "gunzip -c $f >" + to + " && chmod 755 " + to})
	}
	return list, nil
}

// gzipped writes gzip -6 of a binary, unless the file exists.
func gzipped(ctx context.Context, program, file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return run(ctx, "sh", "-ec", `gzip -6 -n -c "$1" >"$2.writing"; mv "$2.writing" "$2"`, "sh", program, file)
}

func (r Release) remote() string { return path.Join("/root/releases", filepath.Base(r.Path)) }

// CopyReleases copies the releases, the image archives and crictl to a host.
func (k *Kit) CopyReleases(ctx context.Context, h *lab.Host, releases []Release) error {
	for _, p := range k.Programs {
		if filepath.Base(p.Local) == "crictl" {
			if _, err := h.CopyIn(ctx, p.Local, p.Remote, 0o755); err != nil {
				return err
			}
		}
	}
	for _, r := range releases {
		if _, err := h.CopyIn(ctx, r.Path, r.remote(), 0o644); err != nil {
			return err
		}
	}
	return k.carryArchives(ctx, h)
}

// Unpack unpacks the binaries of the releases, in parallel.
func (k *Kit) Unpack(ctx context.Context, h *lab.Host, releases []Release) (Done, error) {
	var lines strings.Builder
	for _, r := range releases {
		fmt.Fprintf(&lines, "(f=%s; %s) & all=\"$all $!\"\n", r.remote(), r.unpack)
	}
	lines.WriteString("for one in $all; do wait $one; done\n")
	return k.script(ctx, h, lines.String())
}

package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
)

// Unmount removes the mounts of pods: volumes below the kubelet's directory and
// containers' root file systems, if these directories are Airlift's, and the
// network namespaces of this node's pods. flags are flags of umount2 for the
// kubelet's volumes, named as in kubeadm's ResetConfiguration, such as
// MNT_FORCE; without flags, mounts in use are detached.
func Unmount(ctx context.Context, h *host.Host, flags ...string) error {
	how := 0
	for _, name := range flags {
		flag, known := unmountFlags[name]
		if !known {
			return fmt.Errorf("unmounting volumes: %q is not a flag of umount2", name)
		}
		how |= flag
	}
	var failures []error
	for _, e := range append(h.Records().Entries(ledger.Owned), h.Records().Entries(ledger.Contents)...) {
		flags := 0
		if e.Name == config.KubeletDir {
			flags = how
		}
		failures = append(failures, unmountBelow(ctx, h.Path(e.Name), flags))
	}
	namespaces, err := podNamespaces(h)
	return errors.Join(append(failures, err, removeNamespaces(namespaces))...)
}

var unmountFlags = map[string]int{
	"MNT_FORCE": unix.MNT_FORCE, "MNT_DETACH": unix.MNT_DETACH,
	"MNT_EXPIRE": unix.MNT_EXPIRE, "UMOUNT_NOFOLLOW": unix.UMOUNT_NOFOLLOW,
}

// unmountBelow unmounts everything below a directory, the deepest first. Without
// flags, a mount in use is detached: the kernel removes it when its last user
// ends.
func unmountBelow(ctx context.Context, dir string, flags int) error {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	// Not the directory itself: it may be a mounted disk.
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, dir+"/"), false
	})
	if err != nil {
		return fmt.Errorf("listing mounts: %w", err)
	}
	slices.Reverse(mounts) // mounted last, unmounted first
	var failures []error
	for _, m := range mounts {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(failures, err)...)
		}
		err := unix.Unmount(m.Mountpoint, flags|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) && flags == 0 {
			err = unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // gone meanwhile
			failures = append(failures, fmt.Errorf("unmounting %s: %w", m.Mountpoint, err))
		}
	}
	return errors.Join(failures...)
}

// podNamespaces returns the network namespaces of this node's pods that the runtime or libcni
// recorded. The name "cni-…" is not enough: other software uses it too.
func podNamespaces(h *host.Host) ([]string, error) {
	if !h.Records().RanNode() {
		return nil, nil
	}
	ids, err := podnetwork.Containers(h)
	if err != nil {
		return nil, err
	}
	attachments, err := podnetwork.Attachments(h)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, a := range attachments {
		if ids[a.Container] {
			paths = append(paths, a.NetNS)
		}
	}
	specs, err := filepath.Glob(h.Path("/run/containerd/io.containerd.runtime.v2.task/k8s.io/*/config.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range specs {
		var spec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
		data, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(data, &spec) != nil {
			continue // the container is gone
		}
		for _, n := range spec.Linux.Namespaces {
			if n.Type == "network" {
				paths = append(paths, n.Path)
			}
		}
	}
	var found []string
	for _, p := range paths {
		p = strings.TrimPrefix(p, "/var") // /var/run is /run
		if path := h.Path(p); strings.HasPrefix(p, "/run/netns/cni-") && filesystem.Exists(path) && !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	return found, nil
}

func removeNamespaces(paths []string) error {
	var failures []error
	for _, path := range paths {
		// EINVAL: the namespace was unmounted before and is a plain file.
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			failures = append(failures, fmt.Errorf("unmounting %s: %w", path, err))
			continue
		}
		if err := os.Remove(path); err != nil {
			failures = append(failures, fmt.Errorf("removing a pod's network namespace: %w", err))
		}
	}
	return errors.Join(failures...)
}

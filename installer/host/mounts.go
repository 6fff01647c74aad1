package host

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
)

const sharedUnit = "airlift-rshared.service"

// systemd makes the root mount shared at boot, but not in a container.
const sharedUnitText = `[Unit]
Description=Share mounts with containers, as the kubelet needs it
DefaultDependencies=no
After=local-fs.target
Before=containerd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=mount --make-rshared /

[Install]
WantedBy=multi-user.target
`

// MakeRootShared makes / a shared mount, now and at every boot, unless it is one
// already: otherwise a volume that one container mounts is invisible to others.
// It reports whether it changed something.
func (h Kernel) MakeRootShared(ctx context.Context) (changed bool, err error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != "/", false })
	if err != nil {
		return false, fmt.Errorf("listing mounts: %w", err)
	}
	// The last mount is on top of the others.
	if len(mounts) > 0 && strings.Contains(mounts[len(mounts)-1].Optional, "shared:") {
		return false, nil
	}
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return false, fmt.Errorf("making / a shared mount: %w", err)
	}
	if _, err := h.host.WriteFile("/etc/systemd/system/"+sharedUnit, []byte(sharedUnitText), 0o644); err != nil {
		return true, err
	}
	return true, h.host.Systemd().Enable(ctx, sharedUnit, true)
}

// MountPoint returns the mount point of the file system that a directory is on. It follows links.
func MountPoint(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(dir))
	if err != nil {
		return "", fmt.Errorf("listing mounts: %w", err)
	}
	point := "/"
	for _, m := range mounts {
		if len(m.Mountpoint) > len(point) {
			point = m.Mountpoint
		}
	}
	return point, nil
}

// Unmount removes the mounts of pods: volumes below the kubelet's directory and
// containers' root file systems, if these directories are Airlift's, and the
// network namespaces of this node's pods. flags are flags of umount2 for the
// kubelet's volumes, named as in kubeadm's ResetConfiguration, such as
// MNT_FORCE; without flags, mounts in use are detached.
func (h Removal) Unmount(ctx context.Context, flags ...string) error {
	how := 0
	for _, name := range flags {
		flag, known := unmountFlags[name]
		if !known {
			return fmt.Errorf("unmounting volumes: %q is not a flag of umount2", name)
		}
		how |= flag
	}
	var failures []error
	for _, e := range append(h.host.Records().entries(kindOwned), h.host.Records().entries(kindContents)...) {
		flags := 0
		if e.Name == config.KubeletDir {
			flags = how
		}
		failures = append(failures, unmountBelow(ctx, h.host.Path(e.Name), flags))
	}
	namespaces, err := h.podNamespaces()
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

// podNamespaces returns the network namespaces of this node's pods that the
// runtime or libcni recorded. The name "cni-…" alone proves nothing: other
// software uses it too.
func (h Removal) podNamespaces() ([]string, error) {
	if !h.host.Records().RanNode() {
		return nil, nil
	}
	ids, err := h.host.Networks().containers()
	if err != nil {
		return nil, err
	}
	attachments, err := h.host.Networks().attachments()
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, a := range attachments {
		if ids[a.Container] {
			paths = append(paths, a.NetNS)
		}
	}
	specs, err := filepath.Glob(h.host.Path("/run/containerd/io.containerd.runtime.v2.task/k8s.io/*/config.json"))
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
		if path := h.host.Path(p); strings.HasPrefix(p, "/run/netns/cni-") && exists(path) && !slices.Contains(found, path) {
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

// mountsWithin returns a mount point at or below a path, or "". It resolves
// links in the path, because the kernel lists resolved paths.
func mountsWithin(path string) (string, error) {
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(parent, filepath.Base(path))
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		within := m.Mountpoint == path || strings.HasPrefix(m.Mountpoint, path+"/")
		return !within, within
	})
	if err != nil {
		return "", fmt.Errorf("listing mounts: %w", err)
	}
	if len(mounts) == 0 {
		return "", nil
	}
	return mounts[0].Mountpoint, nil
}

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

// systemd makes the root mount shared when it boots a machine, but not when it
// boots in a container.
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

// MakeRootShared makes / a shared mount, now and at every boot, where it is
// not: volumes mounted by one container would stay unseen by the others. It
// says whether it had to.
func (h *Host) MakeRootShared(ctx context.Context) (changed bool, err error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != "/", false })
	if err != nil {
		return false, fmt.Errorf("listing mounts: %w", err)
	}
	// The last one is on top of the others.
	if len(mounts) > 0 && strings.Contains(mounts[len(mounts)-1].Optional, "shared:") {
		return false, nil
	}
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return false, fmt.Errorf("making / a shared mount: %w", err)
	}
	if _, err := h.WriteFile("/etc/systemd/system/"+sharedUnit, []byte(sharedUnitText), 0o644); err != nil {
		return true, err
	}
	return true, h.Enable(ctx, sharedUnit, true)
}

// Unmount takes away what pods left mounted: volumes below the kubelet's
// directory and containers' root file systems, where those directories are
// Airlift's, and its pods' network namespaces. flags are those of umount2 that
// kubeadm's ResetConfiguration names, such as MNT_FORCE, for the kubelet's
// volumes; without any, what is in use is detached.
func (h *Host) Unmount(ctx context.Context, flags ...string) error {
	how := 0
	for _, name := range flags {
		flag, known := unmountFlags[name]
		if !known {
			return fmt.Errorf("unmounting volumes: %q is no flag of umount2", name)
		}
		how |= flag
	}
	var failures []error
	for _, e := range append(h.entries(kindOwned), h.entries(kindContents)...) {
		flags := 0
		if e.Name == config.KubeletDir {
			flags = how
		}
		failures = append(failures, unmountBelow(ctx, h.Path(e.Name), flags))
	}
	namespaces, err := h.podNamespaces()
	return errors.Join(append(failures, err, removeNamespaces(namespaces))...)
}

var unmountFlags = map[string]int{
	"MNT_FORCE": unix.MNT_FORCE, "MNT_DETACH": unix.MNT_DETACH,
	"MNT_EXPIRE": unix.MNT_EXPIRE, "UMOUNT_NOFOLLOW": unix.UMOUNT_NOFOLLOW,
}

// unmountBelow unmounts everything under a folder, the deepest first, with the
// flags given. Without any, a mount that is in use is detached: it goes when
// its last user does.
func unmountBelow(ctx context.Context, dir string, flags int) error {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	// Below, not the folder itself: that may be a disk of its own.
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

// podNamespaces are the network namespaces of this node's pods, as far as the
// runtime or libcni recorded them. CRI runtimes name theirs "cni-…", and so do
// other programs.
func (h *Host) podNamespaces() ([]string, error) {
	if !h.RanNode() {
		return nil, nil
	}
	ids, err := h.containers()
	if err != nil {
		return nil, err
	}
	attachments, err := h.attachments()
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
		if path := h.Path(p); strings.HasPrefix(p, "/run/netns/cni-") && exists(path) && !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	return found, nil
}

func removeNamespaces(paths []string) error {
	var failures []error
	for _, path := range paths {
		// A namespace that is a plain file was unmounted before.
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

// mountsWithin returns a mount point at or below a path, or "". The kernel
// lists them without the links that may lead to the path.
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

package kernel

import (
	"context"
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"airlift/installer/host"
)

const SharedUnit = "airlift-rshared.service"

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

// ShareRoot makes / a shared mount, now and at every boot, unless it is one
// already: otherwise a volume that one container mounts is invisible to others.
// It reports whether it changed something.
func ShareRoot(ctx context.Context, h *host.Host) (changed bool, err error) {
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
	if _, err := h.WriteFile("/etc/systemd/system/"+SharedUnit, []byte(sharedUnitText), 0o644); err != nil {
		return true, err
	}
	return true, h.Systemd().Enable(ctx, SharedUnit)
}

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// diskSize is that of a host's disk, in bytes. The file behind it is sparse;
// a control plane fills about 1.5 GB of it.
const diskSize = 20 << 30

// makeDisk gives the host a disk of its own, so that how full this machine's
// disk is does not matter: the kubelet takes no pods on one with less than
// 15 percent free. Without loop devices the host lives in a plain folder.
func (h *Host) makeDisk(ctx context.Context) error {
	if err := os.Mkdir(h.disk(), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return nil
	}
	image := h.disk() + ".img"
	if h.disks != "" {
		image = filepath.Join(h.disks, h.Name+".img")
	}
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := f.Truncate(diskSize); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, argv := range [][]string{
		// What makes a disk safe in a power cut is not what is tested: the
		// file goes with the lab.
		{"mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image},
		{"mount", "-o", "loop,noatime,discard", image, h.disk()}, // the device goes with the mount
	} {
		if err := run(ctx, argv...); err != nil {
			return fmt.Errorf("making the disk of %s: %w", h.Name, err)
		}
	}
	return os.Remove(filepath.Join(h.disk(), "lost+found"))
}

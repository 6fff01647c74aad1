package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// diskSize is the size of a host's disk in bytes. Its file is sparse; a control plane uses
// about 1.5 GB.
const diskSize = 20 << 30

// makeDisk creates a separate disk for the host, because the kubelet evicts pods if less than
// 15 percent of this machine's disk is free. Without loop devices the host uses a plain
// directory.
func (h *Host) makeDisk(ctx context.Context) error {
	if err := os.Mkdir(h.disk(), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return nil
	}
	image := h.disk() + ".img"
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
		// No journal: the tests do not check how the file system survives a power cut, and the
		// file is removed with the lab.
		{"mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image},
		{"mount", "-o", "loop,noatime,discard", image, h.disk()}, // umount also removes the device
	} {
		if err := run(ctx, argv...); err != nil {
			return fmt.Errorf("making the disk of %s: %w", h.Name, err)
		}
	}
	return os.Remove(filepath.Join(h.disk(), "lost+found"))
}

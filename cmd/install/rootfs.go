package main

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"airlift/internal/fault"
)

// changeRoot makes dir the root directory of this process, as --rootfs of kubeadm does. All
// paths of the command line are then paths below dir. It opens the installer's file first,
// because its path may not exist in the new root directory.
//
// Commands that write only files have their own --rootfs, which needs no root.
func changeRoot(dir string) error {
	if dir == "" {
		return nil
	}
	if err := own.hold(); err != nil {
		return err
	}
	err := syscall.Chroot(dir)
	if err == nil {
		err = os.Chdir("/")
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Preflight, "changing the root directory to %q: %w", dir, err).Hint("run it with sudo or as root")
	case err != nil:
		return fault.New(fault.Usage, "changing the root directory to %q: %w", dir, err).Hint("set --rootfs to the directory with the host's file system")
	}
	return nil
}

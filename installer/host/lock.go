package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"airlift/installer/host/filesystem"
	"airlift/internal/fault"
)

// lockPath is on /run, which a reboot empties.
const lockPath = "/run/airlift.lock"

const sendLockPath = "/run/airlift-send.lock"

// ErrLocked is why a host cannot be changed now.
var ErrLocked = errors.New("another installer is running on this host")

// OpenLocked is Open for changes. It locks out other installers until unlock,
// and reads the ledger after it has the lock, so that it sees the last
// installer's entries. The kernel releases the lock when this process ends.
func OpenLocked(root string) (h *Host, unlock func(), err error) {
	if err := needsRoot(root); err != nil {
		return nil, nil, err
	}
	release, err := lock(filesystem.Root(root))
	if err != nil {
		return nil, nil, err
	}
	h, err = Open(root)
	if err != nil {
		release()
		return nil, nil, err
	}
	h.locked = true
	return h, func() {
		_ = h.records.Save() // if it fails, the ledger lists too much, which is safe
		release()
	}, nil
}

func needsRoot(root string) error {
	if root == "/" && os.Geteuid() != 0 {
		return fault.New(fault.Preflight, "[ERROR IsPrivilegedUser]: this command needs root").Hint("run it with sudo or as root")
	}
	return nil
}

// LockSending locks out other processes that send a backup or write one to the directory of a timer. That may last hours, so it does not hold the
// lock of OpenLocked: who has this lock may wait for the other one, and not the other way round.
func LockSending(root filesystem.Root) (release func(), err error) {
	if err := needsRoot(string(root)); err != nil {
		return nil, err
	}
	f, locked, err := lockFile(root, sendLockPath)
	if err != nil {
		return nil, err
	}
	if !locked {
		f.Close()
		return nil, fault.New(fault.Failure, "another command on this host is saving a backup").
			Hint("wait until it has finished, or end the timer's run with: systemctl stop airlift-backup.service; then run the same command again")
	}
	return func() { f.Close() }, nil
}

// Locked reports whether this process has the lock of the host: no other installer runs on it.
func (h *Host) Locked() bool { return h.locked }

func lock(root filesystem.Root) (release func(), err error) {
	f, locked, err := lockFile(root, lockPath)
	if err != nil {
		return nil, err
	}
	if !locked {
		f.Close()
		return nil, fault.Wrap(ErrLocked, fault.Failure, "wait until it has finished, and run the same command again")
	}
	return func() { f.Close() }, nil
}

// lockFile opens a file on /run, and locks it unless another process has the lock.
func lockFile(root filesystem.Root, path string) (f *os.File, locked bool, err error) {
	if err = os.MkdirAll(root.Path("/run"), 0o755); err == nil {
		path, err = root.Place(path)
	}
	if err == nil {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	}
	if err != nil {
		return nil, false, fmt.Errorf("locking this host: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, false, fmt.Errorf("locking this host: %w", err)
	}
	return f, err == nil, nil
}

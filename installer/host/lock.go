package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"airlift/fault"
)

// lockPath is on /run, which a reboot empties.
const lockPath = "/run/airlift.lock"

// Lock keeps other installers from working on this host at the same time. The
// kernel lets go of it when this process ends, however it ends.
func (h *Host) Lock() (unlock func(), err error) {
	if err := os.MkdirAll(h.Path("/run"), 0o755); err != nil {
		return nil, fmt.Errorf("locking this host: %w", err)
	}
	f, err := os.OpenFile(h.Path(lockPath), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking this host: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, fault.New(fault.Failure, "wait until it has ended", "another installer is at work on this host")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking this host: %w", err)
	}
	return func() { f.Close() }, nil
}

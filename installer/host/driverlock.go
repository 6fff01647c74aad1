package host

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"airlift/installer/host/filesystem"
)

// driverLockPath is on /run: the file has no contents that matter after a reboot, and reset need not know it.
const driverLockPath = "/run/airlift-cluster.lock"

// A Holder is a driver that changes the hosts of a cluster. It is empty if it has not written who it is yet.
type Holder struct {
	Who   string    `json:"who"`
	Since time.Time `json:"since"`
}

// LockForDriver takes the lock that keeps two drivers from changing the same host. The commands that a driver runs on
// the host take the lock of OpenLocked as well. If another process has the lock, release is nil, and the Holder is that one.
// Last had the lock before; it is empty if nobody had since the host started. With again, a driver takes the lock that it lost: if the
// last one had another name, release is nil, and nothing was changed. The kernel releases the lock when this process ends.
func LockForDriver(root, who string, again bool) (h, last Holder, release func(), err error) {
	f, locked, err := lockFile(filesystem.Root(root), driverLockPath)
	if err != nil {
		return h, last, nil, err
	}
	last, err = readHolder(f)
	if !locked {
		defer f.Close()
		return last, Holder{}, nil, err
	}
	if err == nil && again && last.Who != "" && last.Who != who {
		f.Close()
		return h, last, nil, nil
	}
	h = Holder{Who: who, Since: time.Now().UTC().Truncate(time.Second)}
	if err == nil {
		err = writeHolder(f, h)
	}
	if err != nil {
		f.Close()
		return h, last, nil, err
	}
	return h, last, func() { f.Close() }, nil
}

func writeHolder(f *os.File, h Holder) error {
	data, err := json.Marshal(h)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(data, '\n'), 0)
	}
	if err != nil {
		return fmt.Errorf("locking this host for a driver: %w", err)
	}
	return nil
}

// readHolder reads who has the lock. Between its lock and its write, a holder is unknown.
func readHolder(f *os.File) (h Holder, err error) {
	data, err := io.ReadAll(f)
	if err != nil {
		return h, fmt.Errorf("reading who has the lock of this host: %w", err)
	}
	if json.Unmarshal(data, &h) != nil { // an empty file, or a part of a record
		return Holder{}, nil
	}
	return h, nil
}

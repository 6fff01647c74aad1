package measure

import (
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"airlift/scripts/lab"
)

// The file systems of a host: its disk, and those in memory.
var fileSystems = []string{"/", "/run", "/dev/shm"}

// A Disk samples the used space of a host's file systems. The host has its own disk, so no
// other files are counted. Blocks that are not written yet and unlinked files are counted.
type Disk struct {
	host  *lab.Host
	peaks map[string]int64
	stop  chan struct{}
	done  chan error
}

// diskInterval is the time between two samples. A sample takes a few µs.
const diskInterval = 5 * time.Millisecond

// SampleDisk starts sampling.
func SampleDisk(h *lab.Host) (*Disk, error) {
	d := &Disk{host: h, peaks: map[string]int64{}, stop: make(chan struct{}), done: make(chan error, 1)}
	root, err := h.Root()
	if err != nil {
		return nil, err
	}
	go func() { d.done <- d.sample(root) }()
	return d, nil
}

func (d *Disk) sample(root string) error {
	tick := time.NewTicker(diskInterval)
	defer tick.Stop()
	for {
		for _, fs := range fileSystems {
			n, err := used(filepath.Join(root, fs))
			if err != nil {
				return err
			}
			d.peaks[fs] = max(d.peaks[fs], n)
		}
		select {
		case <-d.stop:
			return nil
		case <-tick.C:
		}
	}
}

// Extra ends the sampling. It returns by how much the peak use exceeded the current use, and
// the current use, in bytes.
func (d *Disk) Extra() (extra, left int64, err error) {
	close(d.stop)
	if err := <-d.done; err != nil {
		return 0, 0, err
	}
	root, err := d.host.Root()
	if err != nil {
		return 0, 0, err
	}
	for _, fs := range fileSystems {
		now, err := used(filepath.Join(root, fs))
		if err != nil {
			return 0, 0, err
		}
		left += now
		extra += max(0, d.peaks[fs]-now)
	}
	return extra, left, nil
}

// used returns the used space of a file system, in bytes.
func used(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("reading the free space on %s: %w", path, err)
	}
	return int64(s.Blocks-s.Bfree) * s.Bsize, nil
}

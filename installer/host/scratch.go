package host

import (
	"fmt"
	"os"

	"airlift/installer/host/ledger"
)

// A Scratch is a file without a name: nothing of it is left when this process ends, also if it is
// killed. The caller must call Close.
type Scratch struct {
	*os.File
	host *Host
}

// CreateScratch creates a file on this host's own disk, in StateDir.
func (h *Host) CreateScratch() (*Scratch, error) {
	if err := h.makeState(); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(h.Path(ledger.StateDir), ".airlift-scratch-")
	if err != nil {
		return nil, err
	}
	s := &Scratch{f, h}
	if err := os.Remove(f.Name()); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Name returns a path with which this process can open the file.
func (s *Scratch) Name() string { return fmt.Sprintf("/proc/self/fd/%d", s.Fd()) }

// Close removes the file. On a host that Airlift did not install, it removes StateDir too.
func (s *Scratch) Close() error {
	if !s.host.Records().Used() {
		os.Remove(s.host.Path(ledger.StateDir)) // fails if it is not empty
	}
	return s.File.Close()
}

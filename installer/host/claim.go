package host

import (
	"path/filepath"

	"airlift/installer/host/ledger"
)

// Claim records that the files about to be created in a directory are Airlift's.
// If the directory is not empty, nothing is recorded and the error has a hint.
func (h *Host) Claim(c ledger.Claim) error {
	entries, err := h.records.Claimable(c)
	if err != nil {
		return err
	}
	if err := h.MkdirAll(filepath.Dir(filepath.Clean(c.Path)), 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if err := h.records.Record(e); err != nil {
			return err
		}
	}
	return nil
}

package host

import (
	"fmt"
	"os"

	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
)

// WriteCopy copies a file that only root can read for another account. From then on, WriteFile and RenewFile of the source write the
// copy, too. So whoever renews a certificate need not know who else reads it.
func (h *Host) WriteCopy(path, source string, owner Account) error {
	data, err := os.ReadFile(h.Path(source))
	if err != nil {
		return fmt.Errorf("copying %s: %w", source, err)
	}
	return h.writeCopy(path, source, data, owner)
}

func (h *Host) writeCopy(path, source string, data []byte, owner Account) error {
	const mode = 0o600
	sum := filesystem.Digest(data)
	now, info, err := filesystem.Look(h.Path(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	e := ledger.Entry{Kind: ledger.File, Name: path, SHA256: sum, CopyOf: source}
	if now == sum && info.Mode() == mode && OwnerOf(info) == owner {
		if err := h.Records().Record(e); err != nil {
			return err
		}
		return h.Records().Settled(ledger.File, path, sum)
	}
	return h.put(e, now, h.warn, func(place string) error { return filesystem.ReplaceFor(place, data, mode, owner.UID, owner.GID) })
}

// writeCopies writes the copies of a source before the source gets this content. If the run is killed in between, the source shows
// that its change is not done, and the next run writes both.
func (h *Host) writeCopies(source string, data []byte) error {
	for _, e := range h.Records().Entries(ledger.File) {
		if e.CopyOf != source {
			continue
		}
		info, err := os.Lstat(h.Path(e.Name))
		if os.IsNotExist(err) {
			continue // WriteCopy knows the owner
		}
		if err != nil {
			return err
		}
		if err := h.writeCopy(e.Name, source, data, OwnerOf(info)); err != nil {
			return err
		}
	}
	return nil
}

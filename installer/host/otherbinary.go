package host

import (
	"errors"
	"fmt"
	"io/fs"

	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
)

// An OtherBinary is a binary that Airlift installed from another bundle, or began
// to install.
type OtherBinary struct {
	Binary // the installed one
	// Complete reports whether the installation was finished.
	Complete bool
}

// OtherBinaries returns the wanted binaries of which Airlift installed another version, or began to
// install it. An interrupted write counts for the bundle that began it.
func (h *Host) OtherBinaries(wanted ...Binary) ([]OtherBinary, error) {
	var others []OtherBinary
	for _, b := range wanted {
		e, ours := h.Records().Find(ledger.Binary, b.Path)
		if !ours || e.SHA256 == b.SHA256 {
			continue
		}
		sum, err := filesystem.DigestFile(h.Path(b.Path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading %s: %w", b.Path, err)
		}
		if sum != b.SHA256 {
			others = append(others, OtherBinary{Binary{Path: b.Path, SHA256: e.SHA256}, sum == e.SHA256})
		}
	}
	return others, nil
}

package host

import (
	"errors"
	"fmt"
	"io/fs"
)

// An OtherBinary is one that Airlift installed from another bundle, or began to.
type OtherBinary struct {
	Binary // the installed one
	// Complete reports whether it is in its place.
	Complete bool
}

// OtherBinaries returns those of the wanted binaries of which Airlift installed
// another version, or began to. A write that was interrupted belongs to the
// bundle that it was begun with.
func (h *Host) OtherBinaries(wanted ...Binary) ([]OtherBinary, error) {
	var others []OtherBinary
	for _, b := range wanted {
		e, ours := h.recorded(kindBinary, b.Path)
		if !ours || e.SHA256 == b.SHA256 {
			continue
		}
		sum, err := digestFile(h.Path(b.Path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("looking at %s: %w", b.Path, err)
		}
		if sum != b.SHA256 {
			others = append(others, OtherBinary{Binary{b.Path, e.SHA256}, sum == e.SHA256})
		}
	}
	return others, nil
}

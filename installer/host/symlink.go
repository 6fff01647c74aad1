package host

import (
	"fmt"

	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
)

// WriteSymlink atomically makes path a symbolic link to target, and reports
// whether anything changed. Reset removes the link, and restores a file or link
// that it replaced and Airlift did not write.
func (h *Host) WriteSymlink(path, target string) (changed bool, err error) {
	sum := filesystem.LinkSum(target)
	now, _, err := filesystem.Look(h.Path(path))
	if err != nil {
		return false, fmt.Errorf("linking %s: %w", path, err)
	}
	if now == sum {
		return false, h.Records().Settled(ledger.File, path, sum)
	}
	return true, h.put(ledger.Entry{Kind: ledger.File, Name: path, SHA256: sum}, now, h.warn, func(place string) error { return filesystem.ReplaceLink(place, target) })
}

package node

import (
	"encoding/json"

	"airlift/installer/host"
)

// readRecord reads a JSON file that WriteRecord wrote, and returns nil if it does not exist. hint is
// for a damaged one.
func readRecord[T any](h *host.Host, path, hint string) (*T, error) {
	r := new(T)
	found, err := h.ReadState(path, r, hint)
	if err != nil || !found {
		return nil, err
	}
	return r, nil
}

// WriteRecord writes a file that only root can read.
func WriteRecord(h *host.Host, path string, record any) error {
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	_, err = h.WriteFile(path, append(data, '\n'), 0o600)
	return err
}

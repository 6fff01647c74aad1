package installer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"airlift/installer/host"
)

// readRecord reads a JSON file that writeRecord wrote, and returns nil if it does not exist.
func readRecord[T any](h *host.Host, path string) (*T, error) {
	data, err := os.ReadFile(h.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := new(T)
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}

// writeRecord writes a file that only root can read.
func writeRecord(h *host.Host, path string, record any) error {
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	_, err = h.WriteFile(path, append(data, '\n'), 0o600)
	return err
}

//go:build !windows

package bundle

import "os"

// syncDir makes a rename in dir persistent.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

package detection

import (
	"fmt"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
)

// MountPoint returns the mount point of the file system that a directory is on. It follows links.
func MountPoint(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(dir))
	if err != nil {
		return "", fmt.Errorf("listing mounts: %w", err)
	}
	point := "/"
	for _, m := range mounts {
		if len(m.Mountpoint) > len(point) {
			point = m.Mountpoint
		}
	}
	return point, nil
}

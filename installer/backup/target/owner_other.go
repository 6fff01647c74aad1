//go:build !windows

package target

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner refuses a file that other users can read or change.
func checkOwner(file string, info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Perm()&0o077 != 0:
		return &exposedError{fmt.Errorf("other users can read or change %s: its mode is %04o", file, info.Mode().Perm()), "chmod 600"}
	case !ok || owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return &exposedError{fmt.Errorf("%s belongs to another user", file), fmt.Sprintf("chown %d", os.Geteuid())}
	}
	return nil
}

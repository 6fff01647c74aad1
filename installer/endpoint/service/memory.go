package service

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// notRunning are the errors of a socket that nobody listens at.
var notRunning = []error{unix.ECONNREFUSED, unix.ENOENT}

// releaseCode gives back memory that only the start needed: the pages of the executable, which the kernel maps again
// when they are used, and the heap of the packages of other commands. Of 43 MB, about a third remains.
func releaseCode() error {
	debug.FreeOSMemory()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasSuffix(lines.Text(), self) || strings.Contains(mode, "w") {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}

//go:build !windows

package head

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// handover is the environment variable with the descriptor and the path of the bundle
// file, set by the launcher for the installer: "3:/mnt/install".
const handover = "AIRLIFT_FILE"

// startedAt is the environment variable with the launcher's start time, in nanoseconds
// of CLOCK_MONOTONIC. For the user, the command began then.
const startedAt = "AIRLIFT_STARTED"

// HandOver returns the environment for the installer that replaces this process. The
// process was started at started. The installer inherits file, which was opened by path.
func HandOver(file *os.File, path string, started time.Time) ([]string, error) {
	fd := int(file.Fd())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		return nil, err
	}
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, handover+"=") && !strings.HasPrefix(v, startedAt+"=") {
			env = append(env, v)
		}
	}
	since := monotonic() - time.Since(started)
	return append(env, handover+"="+strconv.Itoa(fd)+":"+path, startedAt+"="+strconv.FormatInt(int64(since), 10)), nil
}

// monotonic returns CLOCK_MONOTONIC, which is the same for both processes.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // not on Linux
	}
	return time.Duration(t.Nano())
}

// TakeOver is the installer's side of HandOver: it returns the file, its path and the
// time since the launcher started, or nil if the launcher did not start this process. It
// must be called once, before the installer starts other processes, because they must
// inherit neither the descriptor nor the variables.
func TakeOver() (file *os.File, path string, age time.Duration) {
	value, ok := os.LookupEnv(handover)
	if !ok {
		return nil, "", 0
	}
	if started, err := strconv.ParseInt(os.Getenv(startedAt), 10, 64); err == nil {
		age = max(0, monotonic()-time.Duration(started))
	}
	os.Unsetenv(handover)
	os.Unsetenv(startedAt)
	number, path, _ := strings.Cut(value, ":")
	fd, err := strconv.Atoi(number)
	if err != nil || fd <= 2 {
		return nil, "", 0
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, "", 0
	}
	// The kernel names the process after the descriptor that it was executed from.
	// ps and top must show the command that the user started.
	_ = os.WriteFile("/proc/self/comm", []byte("install"), 0)
	return os.NewFile(uintptr(fd), path), path, age
}

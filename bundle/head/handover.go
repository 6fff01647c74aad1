package head

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// handover is the variable in which the launcher tells the installer the
// descriptor and the path of the file they came in: "3:/mnt/install".
const handover = "AIRLIFT_FILE"

// startedAt is the variable in which it tells when it was started, in
// nanoseconds of CLOCK_MONOTONIC: to the user that is when the command began.
const startedAt = "AIRLIFT_STARTED"

// HandOver returns the environment for an installer that is to be executed in
// this process's place, which was started at started, and to find file, called
// path, open.
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

// monotonic is CLOCK_MONOTONIC, which goes on where one program takes over from
// another.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // not on Linux
	}
	return time.Duration(t.Nano())
}

// TakeOver is the installer's side of HandOver: it returns the file and its
// path and for how long the launcher has been at work; nil where the launcher
// did not start this process. It must be called once and before anything else
// is started, since programs that the installer runs must inherit neither.
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
	// The kernel named the process after the descriptor it was executed
	// through; in lists of processes it shall be what the user started.
	_ = os.WriteFile("/proc/self/comm", []byte("install"), 0)
	return os.NewFile(uintptr(fd), path), path, age
}

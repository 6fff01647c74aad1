package head

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// handover is the variable in which the launcher tells the installer the
// descriptor and the path of the file they came in: "3:/mnt/install".
const handover = "AIRLIFT_FILE"

// HandOver returns the environment for an installer that is to be executed in
// this process's place and to find file, called path, open.
func HandOver(file *os.File, path string) ([]string, error) {
	fd := int(file.Fd())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		return nil, err
	}
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, handover+"=") {
			env = append(env, v)
		}
	}
	return append(env, handover+"="+strconv.Itoa(fd)+":"+path), nil
}

// TakeOver is the installer's side of HandOver: it returns the file and its
// path, or nil where the launcher did not start this process. It must be called
// once and before anything else is started, since programs that the installer
// runs must inherit neither.
func TakeOver() (file *os.File, path string) {
	value, ok := os.LookupEnv(handover)
	if !ok {
		return nil, ""
	}
	os.Unsetenv(handover)
	number, path, _ := strings.Cut(value, ":")
	fd, err := strconv.Atoi(number)
	if err != nil || fd <= 2 {
		return nil, ""
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, ""
	}
	// The kernel named the process after the descriptor it was executed
	// through; in lists of processes it shall be what the user started.
	_ = os.WriteFile("/proc/self/comm", []byte("install"), 0)
	return os.NewFile(uintptr(fd), path), path
}

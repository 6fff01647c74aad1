//go:build linux

// Package crash runs a command and kills it, as kill -9 does, right before one of its system
// calls, always the same one. Tests use it to check what a crash leaves behind.
package crash

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Call is a system call that is about to change a file, or to sync a file or directory.
type Call struct {
	Name string // as in man 2
	Path string // of the changed or created file; for a rename the new path
}

// Run starts the command and passes each system call of its process to at. When at returns
// true, Run kills the process before it makes the call. Otherwise err is nil only if the
// command succeeded.
//
// Its outputs must be files.
func Run(cmd *exec.Cmd, at func(Call) bool) (killed bool, err error) {
	// All ptrace calls for a process must come from one thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The process group distinguishes its threads from other processes that were started
	// on this thread.
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	defer cmd.Process.Release()
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return false, fmt.Errorf("waiting for %s: %w", cmd.Path, err)
	}
	// Trace threads, but no other processes.
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return false, fmt.Errorf("tracing %s: %w", cmd.Path, err)
	}
	if err := unix.PtraceSyscall(pid, 0); err != nil {
		return false, fmt.Errorf("tracing %s: %w", cmd.Path, err)
	}
	known := map[int]bool{pid: true}
	for {
		thread, err := unix.Wait4(-pid, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return killed, fmt.Errorf("waiting for %s: %w", cmd.Path, err)
		case thread == pid && status.Signaled():
			if !killed {
				err = fmt.Errorf("%s was killed by %s", cmd.Path, status.Signal())
			}
			return killed, err
		case thread == pid && status.Exited():
			if code := status.ExitStatus(); code != 0 {
				err = fmt.Errorf("%s: exit code %d", cmd.Path, code)
			}
			return killed, err
		case !status.Stopped():
			continue // a thread has ended
		}
		signal := 0
		switch s := status.StopSignal(); {
		case s == syscall.SIGTRAP|0x80: // a system call
			if call, ok := entered(thread); ok && !killed && at(call) {
				killed = true
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					return false, err
				}
				continue
			}
		case s == syscall.SIGTRAP, s == syscall.SIGSTOP && !known[thread]: // caused by the tracer
		default:
			signal = int(s)
		}
		known[thread] = true
		_ = unix.PtraceSyscall(thread, signal) // it may have been killed
	}
}

// Numbered returns an at for Run: it is true for the nth matching call; the first is 1.
func Numbered(n int, matches func(Call) bool) func(Call) bool {
	return func(c Call) bool {
		if matches(c) {
			n--
		}
		return n == 0
	}
}

// entered reads the system call that a stopped thread is about to make.
func entered(thread int) (Call, bool) {
	// struct ptrace_syscall_info
	var info [88]byte
	n, err := getSyscallInfo(thread, info[:])
	if err != nil || n < 80 || info[0] != 1 { // PTRACE_SYSCALL_INFO_ENTRY
		return Call{}, false
	}
	number := binary.NativeEndian.Uint64(info[24:])
	arg := func(i int) uint64 { return binary.NativeEndian.Uint64(info[32+8*i:]) }
	text := func(i int) string { return readString(thread, arg(i)) }
	switch number {
	case unix.SYS_OPENAT:
		if arg(2)&(unix.O_CREAT|unix.O_TRUNC) == 0 {
			return Call{}, false
		}
		return Call{"openat", text(1)}, true
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return Call{"rename", text(3)}, true
	case unix.SYS_LINKAT:
		return Call{"link", text(3)}, true
	case unix.SYS_SYMLINKAT:
		return Call{"symlink", text(2)}, true
	case unix.SYS_UNLINKAT:
		return Call{"unlink", text(1)}, true
	case unix.SYS_MKDIRAT:
		return Call{"mkdir", text(1)}, true
	case unix.SYS_FCHMODAT:
		return Call{"chmod", text(1)}, true
	case unix.SYS_UTIMENSAT:
		return Call{"utimens", text(1)}, true
	case unix.SYS_WRITE, unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_FTRUNCATE, unix.SYS_FLOCK, unix.SYS_FSYNC:
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", thread, int32(arg(0))))
		if err != nil || !filepath.IsAbs(path) {
			return Call{}, false // a pipe or a socket
		}
		name := map[uint64]string{unix.SYS_WRITE: "write", unix.SYS_FCHMOD: "chmod", unix.SYS_FCHOWN: "chown", unix.SYS_FTRUNCATE: "truncate", unix.SYS_FLOCK: "flock", unix.SYS_FSYNC: "fsync"}[number]
		return Call{name, path}, true
	}
	return Call{}, false
}

func getSyscallInfo(thread int, buf []byte) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(thread), uintptr(len(buf)), uintptr(unsafe.Pointer(&buf[0])), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// readString reads a string from the memory of a stopped thread.
func readString(thread int, address uint64) string {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", thread))
	if err != nil {
		return ""
	}
	defer memory.Close()
	var text strings.Builder
	buf := make([]byte, 256)
	for text.Len() < unix.PathMax {
		// The memory after the string may not be readable.
		n, err := memory.ReadAt(buf[:min(len(buf), 4096-int(address%4096))], int64(address))
		if s, _, ended := strings.Cut(string(buf[:n]), "\x00"); ended || err != nil {
			return text.String() + s
		}
		text.Write(buf[:n])
		address += uint64(n)
	}
	return text.String()
}

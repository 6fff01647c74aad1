package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"airlift/internal/fault"
)

// become replaces this process with the executable that write writes. It tries one place
// after the other: some hosts forbid execution from memory, and some directories are
// mounted noexec. It only returns with an error. An error about the executable itself
// ends it at once.
func become(places []place, env []string, write func(*os.File) error) error {
	var failures []string
	for _, p := range places {
		err := p.become(env, write)
		if fault.ExitCode(err) == fault.Bundle {
			return err
		}
		failures = append(failures, fmt.Sprintf("%s: %v", p.name, err))
	}
	return fault.New(fault.Failure, "starting the installer in this file: %s", strings.Join(failures, "; ")).
		Hint("allow execution from memory (sysctl vm.memfd_noexec=0), or mount one of these directories without noexec")
}

func (p place) become(env []string, write func(*os.File) error) error {
	f, err := p.create()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	// A file that is open for writing cannot be executed.
	program, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	defer program.Close()
	if err := f.Close(); err != nil {
		return err
	}
	err = syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), os.Args, env)
	return os.NewSyscallError("execve", err)
}

func inMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("install", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3 has no such flag and needs none
		fd, err = unix.MemfdCreate("install", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "memory"), nil
}

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"airlift/fault"
)

// become executes, in this process's place, the program that write writes. It
// tries one place after the other, as some hosts forbid to execute what is in
// memory and most have folders that nothing may be executed from. It returns
// only with an error, at once if that is about the program itself.
func become(places []place, env []string, write func(*os.File) error) error {
	var failures []string
	for _, p := range places {
		err := p.become(env, write)
		if fault.ExitCode(err) == fault.Bundle {
			return err
		}
		failures = append(failures, fmt.Sprintf("%s: %v", p.name, err))
	}
	return fault.New(fault.Failure, "allow programs to be executed from memory (sysctl vm.memfd_noexec=0) or mount one of these folders without noexec",
		"starting the installer that is inside this file: %s", strings.Join(failures, "; "))
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

// inMemory makes a file that is in memory and has no name.
func inMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("install", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 there was no such flag, and none was needed
		fd, err = unix.MemfdCreate("install", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "memory"), nil
}

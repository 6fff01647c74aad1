package ospackages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/host"
	"airlift/internal/childprocess"
	"airlift/internal/fault"
)

// Limits of what is waited for. Scripts of packages may build kernel modules.
const (
	lockPatience   = 10 * time.Minute
	changeTimeout  = 2 * time.Hour
	readingTimeout = 2 * time.Minute
	pollInterval   = time.Second
)

// A runner starts the commands of a package manager.
type runner struct {
	host   *host.Host
	report func(string)
}

// find returns an error if this process finds no command of this name.
func (r *runner) find(name string) error {
	_, err := exec.LookPath(name)
	return err
}

// command is a command without questions, in English. dpkg wants the directories of the administrator in PATH.
func (r *runner) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := childprocess.Command(ctx, name, args...)
	c.Env = append(c.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "LANGUAGE=",
		"DEBIAN_FRONTEND=noninteractive", "DEBCONF_NONINTERACTIVE_SEEN=true", "UCF_FORCE_CONFFOLD=1", "DPKG_FRONTEND_LOCKED=true")
	return c
}

// A failed is a command that failed, with what it printed.
type failed struct {
	err    error
	output string
}

func (f *failed) Error() string { return f.err.Error() + ":\n" + tail(f.output) }
func (f *failed) Unwrap() error { return f.err }

// tail returns the last lines of a text, indented.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-20):], "\n  ")
}

// read runs a command that changes nothing. It returns what the command printed on standard output, and with an error all.
func (r *runner) read(ctx context.Context, name string, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	c := r.command(limited, name, args...)
	var all, out strings.Builder
	c.Stdout, c.Stderr = io.MultiWriter(&out, &all), &all
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return out.String(), &failed{fmt.Errorf("running %s: %w", name, err), all.String()}
	}
	return out.String(), nil
}

// explain returns an error that names what failed, unless the user interrupted it.
func explain(doing string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	hint := "remove the cause that a script of a package printed, and run the same command again"
	if doing == "installing" {
		hint += "; to remove what was installed: ./install packages remove"
	}
	return fault.Wrap(fmt.Errorf("%s packages: %w", doing, err), fault.Failure, hint)
}

// scriptFailed is what rpm prints about a script that fails after the package is installed: rpm itself does not fail.
var scriptFailed = regexp.MustCompile(`(?m)^(?:warning|error): .*script(?:let)? failed.*$`)

// change runs a command that changes packages to its end: half of it would be worse, so neither the signal that interrupts this
// process nor its end reaches the command. What it prints goes to a file, which the error quotes.
func (r *runner) change(ctx context.Context, name string, args ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	log, err := r.host.CreateScratch() // it goes with the last process that writes to it
	if err != nil {
		return err
	}
	defer log.Close()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	c := r.command(limited, name, args...)
	c.Stdout, c.Stderr = log.File, log.File
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	interrupted := ctx.Done()
	for tick := time.NewTicker(10 * time.Second); ; {
		select {
		case err = <-ended:
			tick.Stop()
			data, _ := io.ReadAll(io.NewSectionReader(log, 0, 1<<20))
			if err == nil {
				for _, line := range scriptFailed.FindAllString(string(data), -1) {
					r.report(line)
				}
				return nil
			}
			return &failed{fmt.Errorf("running %s: %w", name, err), string(data)}
		case <-interrupted:
			interrupted = nil
			r.report(name + " has begun to change packages: waiting until it has finished")
		case <-tick.C:
			r.report(name + " is still running")
		}
	}
}

// waitLock waits until no process has a lock of fcntl(2) on a file. With take, it takes the lock until unlock.
func (r *runner) waitLock(ctx context.Context, file string, take bool) (unlock func(), err error) {
	flags := os.O_RDWR
	if take {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(file, flags|unix.O_NOFOLLOW, 0o640)
	if errors.Is(err, os.ErrNotExist) && !take {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("locking packages: %w", err)
	}
	unlock = func() { f.Close() }
	for began := time.Now(); ; {
		is := unix.Flock_t{Type: unix.F_WRLCK}
		if take {
			err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &is)
			if err == nil {
				return unlock, nil
			}
			is = unix.Flock_t{Type: unix.F_WRLCK}
		}
		if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &is); err != nil {
			unlock()
			return nil, fmt.Errorf("locking packages: %w", err)
		}
		if is.Type == unix.F_UNLCK && !take {
			return unlock, nil
		}
		who := processName(int(is.Pid))
		if time.Since(began) > lockPatience {
			unlock()
			return nil, fault.New(fault.Failure, "locking packages: %s has had the lock %s for %s", who, file, lockPatience).Hint("wait until it has finished, and run the same command again")
		}
		r.report("waiting for the lock of packages, which " + who + " has")
		select {
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// processName describes a process.
func processName(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || pid == 0 {
		return "another process"
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), pid)
}

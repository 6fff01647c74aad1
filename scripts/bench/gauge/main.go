// Gauge runs a command on a lab host and appends its resource use to a file, as one line of
// JSON (measure.Usage). It is like GNU time, which the hosts do not have, and it also
// counts memory that no process maps, such as an executable in a memfd.
//
// usage: gauge FILE COMMAND ARG...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"airlift/scripts/bench/measure"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: gauge FILE COMMAND ARG...")
		os.Exit(2)
	}
	status, err := gauge(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: measuring:", err)
		os.Exit(1)
	}
	os.Exit(status)
}

func gauge(file string, argv []string) (status int, err error) {
	// The command also gets the interrupt and ends first. (If it were ignored here, the
	// command would inherit that.)
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	group, err := ownGroup()
	if err != nil {
		return 0, err
	}
	defer os.Remove(group)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	u := measure.Usage{Command: argv[0]}
	started := time.Now()
	if err := start(cmd, group); err != nil {
		return 0, err
	}
	stop, peak := make(chan struct{}), make(chan int64)
	go func() { peak <- watch(group, stop) }()
	runErr := cmd.Wait()
	u.Wall = time.Since(started)
	close(stop)
	u.Memory = <-peak
	u.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	u.Resident = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	if exit := (*exec.ExitError)(nil); runErr != nil && !errors.As(runErr, &exit) {
		return 0, runErr
	}
	line, err := json.Marshal(u)
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return cmd.ProcessState.ExitCode(), err
}

// start starts the command in a cgroup. A shell enters the cgroup and then executes the
// command, so that all memory of the command is counted there.
func start(cmd *exec.Cmd, group string) error {
	program, err := exec.LookPath(cmd.Args[0])
	if err != nil {
		return err
	}
	cmd.Path = "/bin/sh"
	cmd.Args = append([]string{"sh", "-ec", `echo $$ >"$0/cgroup.procs"; exec "$@"`, group, program}, cmd.Args[1:]...)
	cmd.Err = nil
	return cmd.Start()
}

// ownGroup creates a cgroup that counts memory, for the command.
func ownGroup() (string, error) {
	parent := "/sys/fs/cgroup/memory" // version 1
	if _, err := os.Stat(parent); err != nil {
		parent = "/sys/fs/cgroup"
	}
	dir := filepath.Join(parent, measure.GaugeGroup+strconv.Itoa(os.Getpid()))
	return dir, os.Mkdir(dir, 0o755)
}

// interval is the time between two samples. A sample takes about 50 µs.
const interval = 10 * time.Millisecond

// watch returns the peak memory of the cgroup in bytes until stop is closed: anonymous and
// shared memory, without the page cache, which the kernel can free.
func watch(group string, stop <-chan struct{}) (peak int64) {
	for {
		data, _ := os.ReadFile(filepath.Join(group, "memory.stat"))
		var now int64
		for line := range strings.Lines(string(data)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch key {
			case "rss", "anon", "shmem": // rss in version 1 is anon in version 2
				n, _ := strconv.ParseInt(value, 10, 64)
				now += n
			}
		}
		peak = max(peak, now)
		select {
		case <-stop:
			return peak
		case <-time.After(interval):
		}
	}
}

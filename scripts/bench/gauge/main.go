// Gauge runs a command on a lab host and appends its resource use to a file, as one line of
// JSON (measure.Usage). It is like GNU time, which the hosts do not have.
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
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	started := time.Now()
	runErr := cmd.Run()
	if exit := (*exec.ExitError)(nil); runErr != nil && !errors.As(runErr, &exit) {
		return 0, runErr
	}
	line, err := json.Marshal(measure.Usage{
		Wall:   time.Since(started),
		CPU:    cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		Memory: cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10,
	})
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	_, err = f.Write(append(line, '\n'))
	return cmd.ProcessState.ExitCode(), errors.Join(err, f.Close())
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"airlift/scripts/lab/site"
)

// rigTimeout limits the wait for the rig, which may have to build images first.
const rigTimeout = 20 * time.Minute

// buildAgain measures a build with a warm cache. If the cache is cold, it first runs a
// build that is not measured.
func buildAgain(ctx context.Context, t *table, o options, version, dir string) error {
	say("second bundle build")
	log := filepath.Join(dir, "access")
	stop, mirrors, err := startRig(ctx, o.rig, version, dir, log)
	if err != nil {
		return fmt.Errorf("starting the upstream rig: %w", err)
	}
	defer stop()
	image, err := site.WorkloadImage(version)
	if err != nil {
		return err
	}
	cache, err := site.BuildCache()
	if err != nil {
		return err
	}
	args := append([]string{"build", "--version", version, "--image", image, "--output", filepath.Join(dir, "again"), "--cache-dir", cache}, mirrors...)
	build := func() (used *os.ProcessState, took time.Duration, asked requests, err error) {
		if err := os.Truncate(log, 0); err != nil {
			return nil, 0, requests{}, err
		}
		started := time.Now()
		cmd := exec.CommandContext(ctx, o.tool, args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, 0, requests{}, fmt.Errorf("running %s build: %w: %s", o.tool, err, out)
		}
		took = time.Since(started)
		asked, err = readRequests(log)
		return cmd.ProcessState, took, asked, err
	}
	used, took, asked, err := build()
	if err == nil && asked.bytes > 0 {
		say("  the cache was cold; once more")
		used, took, asked, err = build()
	}
	if err != nil {
		return err
	}
	own := &airlift{}
	t.seconds(buildRow, own, took)
	t.seconds(buildCPURow, own, used.UserTime()+used.SystemTime())
	t.bytes(buildBytesRow, own, asked.bytes)
	t.count(buildRequestsRow, own, asked.count)
	t.bytes(buildMemoryRow, own, used.SysUsage().(*syscall.Rusage).Maxrss<<10)
	return errors.Join(os.Remove(filepath.Join(dir, "again")), os.Remove(filepath.Join(dir, "again.provenance.json")))
}

// startRig starts the rig and returns the --mirror flags for bundle build. The access log
// has one line per request.
func startRig(ctx context.Context, program, version, dir, log string) (stop func(), flags []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	deadline := time.AfterFunc(rigTimeout, cancel)
	defer deadline.Stop()
	mirrors := filepath.Join(dir, "mirrors")
	rig := exec.CommandContext(ctx, program, "serve", "--version", version, "--mirrors-file", mirrors, "--access-log", log)
	rig.Cancel = func() error { return rig.Process.Signal(os.Interrupt) }
	rig.WaitDelay = 10 * time.Second
	if err := rig.Start(); err != nil {
		cancel()
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- rig.Wait() }()
	stop = func() {
		cancel()
		<-ended
	}
	for {
		data, err := os.ReadFile(mirrors)
		if err == nil {
			return stop, strings.Fields(string(data)), nil
		}
		select {
		case err := <-ended:
			cancel()
			return nil, nil, fmt.Errorf("it ended before it was ready: %w", errors.Join(err, ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// requests summarizes an access log.
type requests struct {
	count int
	bytes int64 // sent in successful answers
}

// readRequests reads a log with one line per request: method, host, path, status and bytes.
func readRequests(log string) (r requests, err error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return r, fmt.Errorf("reading the access log: %q is not a request", line)
		}
		status, n := fields[len(fields)-2], fields[len(fields)-1]
		size, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			return r, fmt.Errorf("reading the access log: %w", err)
		}
		r.count++
		if strings.HasPrefix(status, "2") {
			r.bytes += size
		}
	}
	return r, nil
}

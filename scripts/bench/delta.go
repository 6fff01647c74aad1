package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// deltas measures the delta to a bundle of another version, and the cost of applying it.
func deltas(ctx context.Context, t *table, o options, dir string) error {
	say("delta from %s to %s", o.bundle, o.newer)
	own := &airlift{}
	file, result := filepath.Join(dir, "delta"), filepath.Join(dir, "patched")
	defer func() { _ = errors.Join(os.Remove(file), os.Remove(result)) }()
	run := func(seconds, memory *row, args ...string) error {
		started := time.Now()
		cmd := exec.CommandContext(ctx, o.tool, args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("running %s %s: %w: %s", o.tool, args[0], err, out)
		}
		t.seconds(seconds, own, time.Since(started))
		t.bytes(memory, own, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10)
		return nil
	}
	if err := run(deltaTimeRow, deltaMemoryRow, "delta", o.bundle, o.newer, "--output", file); err != nil {
		return err
	}
	for row, path := range map[*row]string{deltaRow: file, newerRow: o.newer} {
		size, err := fileSize(path)
		if err != nil {
			return err
		}
		t.bytes(row, own, size)
	}
	return run(patchTimeRow, patchMemoryRow, "patch", o.bundle, file, "--output", result)
}

// Carry makes the bundle that the demo and the end-to-end tests carry to the
// lab: it starts the upstream rig, points bundle build at it with --mirror,
// which is all that differs from the internet, and ends the rig again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"airlift/scripts/site"
)

// readyTimeout bounds the wait for the rig, which first makes its images.
const readyTimeout = 20 * time.Minute

func main() {
	version := flag.String("version", "v1.29.15", "Kubernetes version")
	upstream := flag.String("upstream", "bin/upstream", "the rig's program")
	bundle := flag.String("bundle", "bin/bundle", "the program to test")
	output := flag.String("output", "out/install", "the file to write")
	compression := flag.String("compression", "default", "how hard to compress")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := carry(ctx, *version, *upstream, *bundle, *compression, *output); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func carry(ctx context.Context, version, upstream, bundle, compression, output string) error {
	image, err := site.WorkloadImage(version)
	if err != nil {
		return err
	}
	cache, err := site.BuildCache()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "airlift-carry-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	mirrors := filepath.Join(dir, "mirrors")
	rig := command(ctx, upstream, "serve", "--version", version, "--mirrors-file", mirrors)
	rig.Stdout = nil // the flags, which the file holds as well
	if err := rig.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- rig.Wait() }()
	defer func() {
		cancel()
		<-ended
	}()
	flags, err := waitFor(ctx, mirrors, ended)
	if err != nil {
		return fmt.Errorf("starting the upstream rig: %w", err)
	}
	args := []string{"build", "--version", version, "--image", image, "--compression", compression, "--output", output, "--cache-dir", cache}
	if err := command(ctx, bundle, append(args, flags...)...).Run(); err != nil {
		return fmt.Errorf("%s build: %w", bundle, err)
	}
	return nil
}

// command is a child that is told of the end as by Ctrl-C.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	return c
}

// waitFor returns the words of a file as soon as it is there.
func waitFor(ctx context.Context, path string, ended chan error) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		data, err := os.ReadFile(path)
		if err == nil {
			return strings.Fields(string(data)), nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		select {
		case err := <-ended:
			ended <- err
			return nil, fmt.Errorf("it ended before it served anything: %v", err)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

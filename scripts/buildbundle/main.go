// Buildbundle builds the bundle for the demo and the end-to-end tests: it starts the
// upstream rig, runs bundle build with --mirror flags, which are the only difference to the
// internet, and stops the rig. Arguments after the flags are passed to bundle build.
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"airlift/scripts/lab/site"
)

// readyTimeout limits the wait for the rig, which may have to build images first.
const readyTimeout = 20 * time.Minute

func main() {
	var o options
	flag.StringVar(&o.version, "version", "v1.29.15", "Kubernetes version")
	flag.StringVar(&o.upstream, "upstream", "bin/upstream", "the `binary` that serves the upstream components")
	flag.StringVar(&o.bundle, "bundle", "bin/bundle", "the bundle `binary` to test")
	flag.StringVar(&o.arch, "arch", "amd64", "CPU `architectures` of the hosts: amd64, arm64 or both")
	flag.StringVar(&o.output, "output", "out/install", "the file to write")
	flag.StringVar(&o.compression, "compression", "default", "compression `level`: fastest, default or best")
	flag.BoolVar(&o.conformance, "conformance", false, "also the images of upstream's own tests")
	flag.StringVar(&o.addOns, "addon", "", "optional add-ons, as the flag of bundle build")
	flag.BoolVar(&o.addOnImages, "addon-images", false, "serve the images of the add-ons, and of kube-router, without --addon")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := buildBundle(ctx, o, flag.Args()...); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type options struct {
	version, arch, upstream, bundle, output, compression, addOns string
	conformance, addOnImages                                     bool
}

func buildBundle(ctx context.Context, o options, more ...string) error {
	image, err := site.WorkloadImage(o.version)
	if err != nil {
		return err
	}
	images := []string{image}
	cache, err := site.BuildCache()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.output), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "airlift-buildbundle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	mirrors := filepath.Join(dir, "mirrors")
	rig := command(ctx, o.upstream, "serve", "--version", o.version, "--arch", o.arch, "--mirrors-file", mirrors, "--conformance="+strconv.FormatBool(o.conformance), "--add-ons="+strconv.FormatBool(o.addOnImages || o.addOns != ""))
	rig.Stdout = nil // the flags, which are also in the file
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
	if o.conformance {
		out, err := exec.CommandContext(ctx, o.upstream, "images", "--version", o.version).Output()
		if err != nil {
			return fmt.Errorf("%s images: %w", o.upstream, err)
		}
		images = strings.Fields(string(out))
	}
	args := []string{"build", "--version", o.version, "--arch", o.arch, "--compression", o.compression, "--output", o.output, "--cache-dir", cache}
	for _, image := range images {
		args = append(args, "--image", image)
	}
	if o.addOns != "" {
		args = append(args, "--addon", o.addOns)
	}
	args = append(append(args, flags...), more...)
	if err := command(ctx, o.bundle, args...).Run(); err != nil {
		return fmt.Errorf("%s build: %w", o.bundle, err)
	}
	return nil
}

// command is a child process that gets an interrupt, as by Ctrl-C, when ctx ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	return c
}

// waitFor waits for a file and returns its words.
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
			return nil, fmt.Errorf("it ended before it was ready: %v", err)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

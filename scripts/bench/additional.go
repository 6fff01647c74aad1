package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"airlift/bundle"
	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// moreFile is the path of the additional bundle on a host.
const moreFile = "/root/more"

// additional measures the import of an additional bundle next to the import that init does. Both
// import the same images on a host with an empty containerd, so the times compare bytes with bytes.
// Each has a lab of its own: in the lab of another import, an import takes up to twice the time.
func additional(ctx context.Context, t *table, o options, own *airlift, dir, gauge string) error {
	say("building an additional bundle with the same images")
	more := filepath.Join(dir, "more")
	if err := buildAdditional(ctx, o, own.version, dir, more); err != nil {
		return err
	}
	imports := []importRun{
		{initImportRow, initImportMemoryRow, nil, []string{site.Installer, "init", "phase", "images"}},
		// import accepts only a node, which has the kubelet's kubeconfig.
		{moreImportRow, moreImportMemoryRow, []string{"certs ca", "kubeconfig kubelet"}, []string{moreFile, "import"}},
	}
	for i := range o.runs {
		say("additional bundle: run %d of %d", i+1, o.runs)
		for _, r := range imports {
			err := onFreshHosts(ctx, lab.Options{Hosts: 1}, own, gauge, func(l *lab.Lab) error {
				return r.measure(ctx, t, own, more, l.Hosts[0])
			})
			if err != nil {
				return err
			}
		}
		slices.Reverse(imports) // each is the first one in half of the runs
	}
	return nil
}

// An importRun is an import and its rows.
type importRun struct {
	seconds, memory *row
	phases          []string // of init, before it
	command         []string
}

// measure measures an import on a new host.
func (r importRun) measure(ctx context.Context, t *table, own *airlift, more string, h *lab.Host) error {
	if _, err := h.CopyIn(ctx, more, moreFile, 0o755); err != nil {
		return err
	}
	if err := own.runtime(ctx, h); err != nil {
		return err
	}
	for _, phase := range r.phases {
		if _, err := own.install(ctx, h, append([]string{"init", "phase"}, strings.Fields(phase)...)...); err != nil {
			return err
		}
	}
	// Both start on an idle host: right after another phase, the times differ by which one it was.
	if _, err := h.Output(ctx, "sh", "-c", "sync -f /; sleep 1"); err != nil {
		return err
	}
	started := time.Now()
	_, used, err := measure.Run(ctx, h, r.command...)
	if err != nil {
		return err
	}
	if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
		return err
	}
	t.seconds(r.seconds, own, time.Since(started))
	t.bytes(r.memory, own, used.Memory)
	return allImages(ctx, t, h)
}

// buildAdditional builds a bundle without Kubernetes that has the images of the bundle to measure.
func buildAdditional(ctx context.Context, o options, version, dir, output string) (err error) {
	f, err := bundle.Open(o.bundle)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	stop, mirrors, err := startRig(ctx, o.rig, version, dir, os.DevNull)
	if err != nil {
		return fmt.Errorf("starting the upstream rig: %w", err)
	}
	defer stop()
	cache, err := site.BuildCache()
	if err != nil {
		return err
	}
	args := append([]string{"build", "--version", version, "--only", "images", "--output", output, "--cache-dir", cache}, mirrors...)
	for _, image := range m.Images {
		args = append(args, "--image", image.Reference)
	}
	if out, err := exec.CommandContext(ctx, o.tool, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("running %s build: %w: %s", o.tool, err, out)
	}
	return nil
}

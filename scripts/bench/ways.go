package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/lab/site"
)

// configFile is the path of kubeadm's configuration on a host, the same for both ways.
const configFile = "/root/kubeadm.yaml"

// byHand installs with kubeadm, as a skilled operator does.
type byHand struct {
	kit      *kubeadm.Kit
	releases []kubeadm.Release
}

// byHandNotes are printed under the table.
var byHandNotes = []string{
	`By hand: the host has only the files. The commands unpack the binaries (release archives of containerd and the CNI
plugins, gunzip of kubelet, kubectl, kubeadm and runc, in parallel), write configuration and units, start containerd,
import every image archive with "ctr -n k8s.io images import" (OCI layouts with upstream's gzip layers; a worker imports
only the images that it runs), and run kubeadm init with a configuration file and kubectl apply with flannel's
manifest. Each command follows the previous one at once: the operator's time is not counted.`,
	`Airlift: the host has only the one file. The commands are "install init --config" with the same configuration
file, and "install join".`,
	`The time to copy files to the hosts is not counted for either. The files are in the page cache, as after copying.`,
	`Ready means the same for both: one watch on nodes and pods, from outside the hosts, sees everything Ready for 5 s.`,
	`Not upstream's, by hand: the benchmark has no source for crictl and flannel's CNI plugin. crictl is a stand-in that
uses the same protocol. The plugin is a script that passes flannel's subnet to the bridge plugin, as the real one does.
It is installed from the start, so one image with its archive and one init container are missing.`,
}

func (*byHand) name() string { return "by hand" }

func (b *byHand) copyFiles(ctx context.Context, h *lab.Host) error {
	b.kit.Prefix = measure.Gauge
	return b.kit.CopyReleases(ctx, h, b.releases)
}

func (b *byHand) runtime(ctx context.Context, h *lab.Host) error {
	if _, err := b.kit.Unpack(ctx, h, b.releases); err != nil {
		return err
	}
	_, err := b.kit.Prepare(ctx, h)
	return err
}

func (b *byHand) images(ctx context.Context, h *lab.Host) error {
	_, err := b.kit.ImportImages(ctx, h, true)
	return err
}

func (b *byHand) init(ctx context.Context, h *lab.Host) ([]string, error) {
	part := parts()
	if err := b.runtime(ctx, h); err != nil {
		return nil, err
	}
	part("unpacking and configuration")
	if err := b.images(ctx, h); err != nil {
		return nil, err
	}
	part("import")
	done, err := b.kit.Init(ctx, h, kubeadm.Config(h, kubeadm.ConfigOptions{Version: b.kit.Version}))
	if err != nil {
		return nil, err
	}
	part("kubeadm init")
	if _, err := b.kit.ApplyNetwork(ctx, h); err != nil {
		return nil, err
	}
	part("kubectl apply")
	return kubeadm.JoinArgs(done.Output)
}

// parts returns a function that prints how long the step took that has just ended.
func parts() func(what string) {
	last := time.Now()
	return func(what string) {
		say("    %s: %.1f s", what, time.Since(last).Seconds())
		last = time.Now()
	}
}

func (b *byHand) join(ctx context.Context, h *lab.Host, args []string) error {
	if err := b.runtime(ctx, h); err != nil {
		return err
	}
	if _, err := b.kit.ImportImages(ctx, h, false); err != nil {
		return err
	}
	_, err := b.kit.Join(ctx, h, args...)
	return err
}

// airlift installs with Airlift.
type airlift struct {
	bundle  string
	version string // of Kubernetes

	initFlags []string
	label     string // its name in the table, by default "airlift"
}

func (a *airlift) name() string { return cmp.Or(a.label, "airlift") }

func (a *airlift) copyFiles(ctx context.Context, h *lab.Host) error {
	_, err := h.CopyIn(ctx, a.bundle, site.Installer, 0o755)
	return err
}

func (a *airlift) install(ctx context.Context, h *lab.Host, args ...string) (string, error) {
	var out strings.Builder
	err := h.Exec(ctx, nil, &out, &out, append(append(measure.Gauge[:len(measure.Gauge):len(measure.Gauge)], site.Installer), args...)...)
	if err != nil {
		err = fmt.Errorf("%w:\n%s", err, strings.TrimSpace(out.String()))
	}
	return out.String(), err
}

func (a *airlift) runtime(ctx context.Context, h *lab.Host) error {
	for _, phase := range []string{"unpack", "runtime"} {
		if _, err := a.install(ctx, h, "init", "phase", phase); err != nil {
			return err
		}
	}
	return nil
}

func (a *airlift) images(ctx context.Context, h *lab.Host) error {
	_, err := a.install(ctx, h, "init", "phase", "images")
	return err
}

func (a *airlift) init(ctx context.Context, h *lab.Host) ([]string, error) {
	config := kubeadm.Config(h, kubeadm.ConfigOptions{Version: a.version})
	if err := h.Exec(ctx, strings.NewReader(config), nil, nil, "tee", configFile); err != nil {
		return nil, err
	}
	out, err := a.install(ctx, h, append([]string{"init", "--config", configFile}, a.initFlags...)...)
	if err != nil {
		return nil, err
	}
	return site.JoinArgs(out)
}

func (a *airlift) join(ctx context.Context, h *lab.Host, args []string) error {
	_, err := a.install(ctx, h, args...)
	return err
}

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"airlift/scripts/bench/measure"
	"airlift/scripts/byhand"
	"airlift/scripts/lab"
	"airlift/scripts/site"
)

// configFile is kubeadm's configuration on a host, the same for both ways.
const configFile = "/root/kubeadm.yaml"

// byHand is what a skilled person does.
type byHand struct {
	kit      *byhand.Kit
	releases []byhand.Release
}

// byHandNotes say what that is, under the table.
var byHandNotes = []string{
	`By hand: on a host that has the files and nothing else, programs are unpacked (release archives of containerd and
the CNI plugins, gunzip of kubelet, kubectl, kubeadm and runc, all at once), settings and units written, containerd
started, every image archive imported by "ctr -n k8s.io images import" (OCI layouts with upstream's gzip layers; on a
worker only those of the images it runs), then kubeadm init with a configuration file, kubectl apply of flannel's
manifest. One command follows the other at once: a person's own time is not counted.`,
	`Airlift: on a host that has the one file and nothing else, "install init --config" with the same configuration
file, and "install join".`,
	`Copying files to the hosts is not counted for either. They lie there, in the page cache as after copying.`,
	`Ready is judged for both by the same watch on nodes and pods, from outside the hosts; it counts when everything
stays Ready for 5 s.`,
	`Not as upstream's, by hand: crictl and flannel's CNI plugin have no source the benchmark could build from. crictl is
a stand-in that speaks the same protocol. The plugin is a script that hands flannel's subnet to the bridge plugin, as
the real one does; it is there from the start, so one image with its archive and one init container are missing.`,
}

func (*byHand) name() string { return "by hand" }

func (b *byHand) carry(ctx context.Context, h *lab.Host) error {
	b.kit.Prefix = measure.Gauge
	return b.kit.CarryReleases(ctx, h, b.releases)
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

func (b *byHand) init(ctx context.Context, h *lab.Host, ignore string) ([]string, error) {
	part := parts()
	if err := b.runtime(ctx, h); err != nil {
		return nil, err
	}
	part("unpacking and settings")
	if err := b.images(ctx, h); err != nil {
		return nil, err
	}
	part("import")
	var args []string
	if ignore != "" {
		args = []string{"--ignore-preflight-errors", ignore}
	}
	done, err := b.kit.Init(ctx, h, byhand.Config(h, byhand.Settings{Version: b.kit.Version}), args...)
	if err != nil {
		return nil, err
	}
	part("kubeadm init")
	if _, err := b.kit.ApplyNetwork(ctx, h); err != nil {
		return nil, err
	}
	part("kubectl apply")
	return byhand.JoinArgs(done.Output)
}

// parts returns a function that says what has just ended, and how long it took.
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

// airlift is the installer.
type airlift struct {
	bundle  string
	version string // of Kubernetes
}

func (*airlift) name() string { return "airlift" }

func (a *airlift) carry(ctx context.Context, h *lab.Host) error {
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

func (a *airlift) init(ctx context.Context, h *lab.Host, ignore string) ([]string, error) {
	config := byhand.Config(h, byhand.Settings{Version: a.version})
	if err := h.Exec(ctx, strings.NewReader(config), nil, nil, "tee", configFile); err != nil {
		return nil, err
	}
	args := []string{"init", "--config", configFile}
	if ignore != "" {
		args = append(args, "--ignore-preflight-errors", ignore)
	}
	out, err := a.install(ctx, h, args...)
	if err != nil {
		return nil, err
	}
	return site.JoinArgs(out)
}

func (a *airlift) join(ctx context.Context, h *lab.Host, args []string) error {
	_, err := a.install(ctx, h, args...)
	return err
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/lab/site"
)

// benchParts are the values of --only.
var benchParts = []string{"size", "build", "delta", "nodes", "idle", "upgrade", "additional", "file-check"}

// labName is the lab of the benchmark.
const labName = "bench"

func bench(ctx context.Context, o options, wanted func(part string) bool) error {
	version, err := site.KubernetesVersion(o.bundle)
	if err != nil {
		return err
	}
	if o.profile != "" {
		return profiles(ctx, o, version, wanted)
	}
	// Write missing image archives first.
	kit, err := kubeadm.Gather(ctx, version, io.Discard)
	if err != nil {
		return err
	}
	releases, err := kit.Releases(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "airlift-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	gauge, err := measure.BuildGauge(ctx, dir)
	if err != nil {
		return err
	}
	hand, own := &byHand{kit: kit, releases: releases}, &airlift{bundle: o.bundle, version: version}
	t := newTable(version, o.runs, hand, own)
	t.tell(byHandNotes...)

	if wanted("size") {
		if err := sizes(ctx, t, o, kit, releases); err != nil {
			return err
		}
	}
	if wanted("build") {
		if err := buildAgain(ctx, t, o, version, dir); err != nil {
			return err
		}
	}
	if wanted("delta") && o.newer != "" {
		if err := deltas(ctx, t, o, dir); err != nil {
			return err
		}
	}
	if wanted("nodes") {
		if err := alternate(ctx, t, o, gauge, hand, own); err != nil {
			return err
		}
	}
	if wanted("idle") {
		// A cluster of several hosts has the embedded registry, unless cluster.yaml disables it.
		embedded := &airlift{bundle: own.bundle, version: own.version, initFlags: []string{"--embedded-registry"}}
		if err := idle(ctx, t, o, gauge, hand, embedded); err != nil {
			return err
		}
	}
	if wanted("upgrade") && o.newer != "" {
		if err := upgrades(ctx, t, o, hand, own, gauge); err != nil {
			return err
		}
	}
	if wanted("additional") {
		if err := additional(ctx, t, o, own, dir, gauge); err != nil {
			return err
		}
	}
	if wanted("file-check") {
		if err := fileCheck(ctx, t, o, own, dir, gauge); err != nil {
			return err
		}
	}
	return t.end(o)
}

// profiles measures clusters without and with a profile of init, in turns: the parts nodes and idle.
func profiles(ctx context.Context, o options, version string, wanted func(part string) bool) error {
	dir, err := os.MkdirTemp("", "airlift-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	gauge, err := measure.BuildGauge(ctx, dir)
	if err != nil {
		return err
	}
	plain := &airlift{bundle: o.bundle, version: version, label: "plain"}
	other := &airlift{bundle: o.bundle, version: version, label: o.profile, initFlags: []string{"--profile", o.profile}}
	t := newTable(version, o.runs, plain, other)
	if wanted("nodes") {
		if err := alternate(ctx, t, o, gauge, plain, other); err != nil {
			return err
		}
	}
	if wanted("idle") {
		if err := idle(ctx, t, o, gauge, plain, other); err != nil {
			return err
		}
	}
	return t.end(o)
}

// alternate measures the nodes of both ways, in turns.
func alternate(ctx context.Context, t *table, o options, gauge string, ways ...way) error {
	for i := range o.runs {
		for _, w := range ways {
			say("run %d of %d: %s", i+1, o.runs, w.name())
			err := onFreshHosts(ctx, lab.Options{Hosts: 3}, w, gauge, func(l *lab.Lab) error { return nodes(ctx, t, w, l) })
			if err != nil {
				return fmt.Errorf("%s: %w", w.name(), err)
			}
		}
	}
	return nil
}

// A way is a way to install nodes: Airlift, or kubeadm by hand.
type way interface {
	name() string
	// copyFiles copies to a host what the installation needs.
	copyFiles(ctx context.Context, h *lab.Host) error
	// runtime prepares a host for the import of images; images imports all of
	// them.
	runtime(ctx context.Context, h *lab.Host) error
	images(ctx context.Context, h *lab.Host) error
	// init installs a control plane and returns the join command.
	init(ctx context.Context, h *lab.Host) (join []string, err error)
	join(ctx context.Context, h *lab.Host, args []string) error
}

// onFreshHosts boots hosts for one run, copies the files, calls run, and removes the
// hosts.
func onFreshHosts(ctx context.Context, o lab.Options, w way, gauge string, run func(*lab.Lab) error) error {
	if o.Name == "" {
		o.Name = labName
	}
	l, err := lab.Up(ctx, o)
	if err != nil {
		return err
	}
	err = func() error {
		for _, h := range l.Hosts {
			if err := measure.CopyGauge(ctx, gauge, h); err != nil {
				return err
			}
			if err := w.copyFiles(ctx, h); err != nil {
				return err
			}
			// The copy must not be written to the disk during the measurement.
			if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
				return err
			}
		}
		return run(l)
	}()
	// Remove the hosts even if ctx was cancelled.
	if downErr := l.Down(context.Background()); err == nil {
		err = downErr
	}
	return err
}

// nodes measures a cluster: the image import on the third host, init on the first, join
// on the second, and a second init.
func nodes(ctx context.Context, t *table, w way, l *lab.Lab) error {
	control, worker, third := l.Hosts[0], l.Hosts[1], l.Hosts[2]
	if err := importing(ctx, t, w, third); err != nil {
		return err
	}
	join, err := initing(ctx, t, w, control)
	if err != nil {
		return err
	}

	started := time.Now()
	ready := judge(ctx, control, control, worker)
	if err := w.join(ctx, worker, join); err != nil {
		return err
	}
	t.seconds(joinReturnRow, w, time.Since(started))
	end, err := ready()
	if err != nil {
		return err
	}
	t.seconds(joinRow, w, end.Nodes.Sub(started))
	t.seconds(joinPodsRow, w, end.Pods.Sub(started))
	if err := t.memory(joinMemoryRow, w, worker); err != nil {
		return err
	}
	if own, ok := w.(*airlift); ok {
		return again(ctx, t, own, control)
	}
	return nil
}

// importing measures the import of all images on a host: until containerd has them, and
// until they are on the disk.
func importing(ctx context.Context, t *table, w way, h *lab.Host) error {
	if err := w.runtime(ctx, h); err != nil {
		return err
	}
	if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
		return err
	}
	if _, err := measure.Usages(h); err != nil {
		return err
	}
	started := time.Now()
	if err := w.images(ctx, h); err != nil {
		return err
	}
	t.seconds(importRow, w, time.Since(started))
	if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
		return err
	}
	t.seconds(importDiskRow, w, time.Since(started))
	return allImages(ctx, t, h)
}

// allImages checks that containerd has the same images as in other runs.
func allImages(ctx context.Context, t *table, h *lab.Host) error {
	out, err := h.Output(ctx, "ctr", "-n", "k8s.io", "images", "list")
	if err != nil {
		return err
	}
	return t.sameImages(out)
}

// initing measures init on a fresh host.
func initing(ctx context.Context, t *table, w way, h *lab.Host) (join []string, err error) {
	started := time.Now()
	ready := judge(ctx, h, h)
	if join, err = w.init(ctx, h); err != nil {
		return nil, err
	}
	returned := time.Since(started)
	end, err := ready()
	if err != nil {
		return nil, err
	}
	t.seconds(initRow, w, end.Pods.Sub(started))
	t.seconds(initReturnRow, w, returned)
	t.count(relapseRow, w, end.Relapses)
	say("    last to be Ready: %s", strings.Join(end.Last, ", "))
	return join, t.memory(memoryRow, w, h)
}

// judge starts to wait for a cluster, and returns the function that ends the wait.
func judge(ctx context.Context, control *lab.Host, nodes ...*lab.Host) func() (measure.Ready, error) {
	type result struct {
		ready measure.Ready
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan result, 1)
	go func() {
		ready, err := measure.AwaitReady(ctx, control, nodes...)
		done <- result{ready, err}
		cancel()
	}()
	return func() (measure.Ready, error) {
		r := <-done
		return r.ready, r.err
	}
}

// again measures a second init on a healthy node, which must not change anything.
func again(ctx context.Context, t *table, w *airlift, h *lab.Host) error {
	before, err := hostState(ctx, h)
	if err != nil {
		return err
	}
	started := time.Now()
	if _, err := w.init(ctx, h); err != nil {
		return err
	}
	t.seconds(againRow, w, time.Since(started))
	after, err := hostState(ctx, h)
	if err == nil && before != after {
		err = fmt.Errorf("a second init changed the node:\nbefore:\n%s\nafter:\n%s", before, after)
	}
	return err
}

// hostState lists the state that a second init could have changed: files with their modification
// times, and the services with their processes.
func hostState(ctx context.Context, h *lab.Host) (string, error) {
	return h.Output(ctx, "sh", "-ec", `
		find /etc/kubernetes /etc/containerd /etc/cni /etc/systemd/system /etc/sysctl.d /usr/local/bin /opt/cni/bin \
			/var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env /var/lib/airlift ! -type d ! -name runs.json -printf '%p %T@ %s\n' 2>/dev/null | sort
		for unit in containerd kubelet; do systemctl show --property Id,MainPID,ActiveEnterTimestampMonotonic $unit; done`)
}

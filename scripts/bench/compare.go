package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"airlift/scripts/bench/measure"
	"airlift/scripts/byhand"
	"airlift/scripts/lab"
	"airlift/scripts/site"
)

// benchParts can be asked for one by one.
var benchParts = []string{"size", "build", "nodes", "files", "file-check", "one-core", "slow-disk"}

// labName is the bench's own lab.
const labName = "bench"

func bench(ctx context.Context, o options, wanted func(part string) bool) error {
	version, err := site.KubernetesVersion(o.bundle)
	if err != nil {
		return err
	}
	// Archives that are missing are made first.
	kit, err := byhand.Gather(ctx, version, io.Discard)
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
	t := newTable(version, o.runs)
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
	if wanted("nodes") {
		for i := range o.runs {
			for _, w := range []way{hand, own} {
				say("run %d of %d: %s", i+1, o.runs, w.name())
				err := onFreshHosts(ctx, lab.Options{Hosts: 3}, w, gauge, func(l *lab.Lab) error { return nodes(ctx, t, w, l) })
				if err != nil {
					return fmt.Errorf("%s: %w", w.name(), err)
				}
			}
		}
	}
	if wanted("files") {
		say("files that come and go")
		if err := onFreshHosts(ctx, lab.Options{Hosts: 1}, own, gauge, func(l *lab.Lab) error { return passing(ctx, t, own, l.Hosts[0]) }); err != nil {
			return err
		}
	}
	if wanted("file-check") {
		if err := fileCheck(ctx, t, o, own, dir, gauge); err != nil {
			return err
		}
	}
	// The conditions take long, and show what kind of time it is that is
	// saved; one run of each says that.
	for _, c := range conditions {
		if !wanted(c.part) {
			continue
		}
		for _, w := range []way{hand, own} {
			say("%s: %s", c.part, w.name())
			if err := c.measure(ctx, t, w, dir, gauge); err != nil {
				return fmt.Errorf("%s, %s: %w", c.part, w.name(), err)
			}
		}
	}
	t.print(os.Stdout)
	if o.json != "" {
		return t.write(o.json)
	}
	return nil
}

// A way is a way to make nodes of hosts.
type way interface {
	name() string
	// carry brings to a host what it is made a node with.
	carry(ctx context.Context, h *lab.Host) error
	// runtime gets a host to where images can be imported; images imports
	// all there are.
	runtime(ctx context.Context, h *lab.Host) error
	images(ctx context.Context, h *lab.Host) error
	// init makes a control plane of a bare host, and returns how others
	// join it; ignore is a preflight check to ignore, if not empty.
	init(ctx context.Context, h *lab.Host, ignore string) (join []string, err error)
	join(ctx context.Context, h *lab.Host, args []string) error
}

// onFreshHosts boots hosts for one run, brings them what they need, and takes
// them down afterwards.
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
			if err := w.carry(ctx, h); err != nil {
				return err
			}
			// What was copied does not go on being written meanwhile.
			if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
				return err
			}
		}
		return run(l)
	}()
	// ctx may have ended; the hosts go all the same.
	if downErr := l.Down(context.Background()); err == nil {
		err = downErr
	}
	return err
}

// nodes measures what makes a cluster: images on the third host, init on the
// first, join on the second, and init again.
func nodes(ctx context.Context, t *table, w way, l *lab.Lab) error {
	control, worker, third := l.Hosts[0], l.Hosts[1], l.Hosts[2]
	if err := importing(ctx, t, w, third, importRow, importDiskRow); err != nil {
		return err
	}
	join, err := initing(ctx, t, w, control, initRow, "")
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
	if err := t.memory(joinMemoryRow, joinHeldRow, w, worker); err != nil {
		return err
	}
	if own, ok := w.(*airlift); ok {
		return again(ctx, t, own, control)
	}
	return nil
}

// importing measures the import of all images on a host, up to where
// containerd has them and up to where the disk has them.
func importing(ctx context.Context, t *table, w way, h *lab.Host, usable, onDisk *row) error {
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
	t.seconds(usable, w, time.Since(started))
	if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
		return err
	}
	t.seconds(onDisk, w, time.Since(started))
	return allImages(ctx, t, h)
}

// allImages makes sure that containerd has as many images as ever.
func allImages(ctx context.Context, t *table, h *lab.Host) error {
	out, err := h.Output(ctx, "ctr", "-n", "k8s.io", "images", "list")
	if err != nil {
		return err
	}
	return t.sameImages(out)
}

// initing measures init on a bare host, and what it takes there of memory and
// of disk.
func initing(ctx context.Context, t *table, w way, h *lab.Host, r *row, ignore string) (join []string, err error) {
	disk, err := measure.SampleDisk(h)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	ready := judge(ctx, h, h)
	if join, err = w.init(ctx, h, ignore); err != nil {
		return nil, err
	}
	returned := time.Since(started)
	end, err := ready()
	if err != nil {
		return nil, err
	}
	t.seconds(r, w, end.Pods.Sub(started))
	say("    last to be Ready: %s", strings.Join(end.Last, ", "))
	if r == initRow {
		t.seconds(initReturnRow, w, returned)
		t.count(relapseRow, w, end.Relapses)
	}
	extra, used, err := disk.Extra()
	if err != nil || r != initRow {
		return join, err
	}
	t.bytes(extraDiskRow, w, extra)
	t.bytes(diskRow, w, used)
	return join, t.memory(memoryRow, heldRow, w, h)
}

// judge begins to wait for a cluster, and returns what ends the wait.
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

// again measures a second init on a healthy node, which may change nothing.
func again(ctx context.Context, t *table, w *airlift, h *lab.Host) error {
	before, err := settings(ctx, h)
	if err != nil {
		return err
	}
	started := time.Now()
	if _, err := w.init(ctx, h, ""); err != nil {
		return err
	}
	t.seconds(againRow, w, time.Since(started))
	after, err := settings(ctx, h)
	if err == nil && before != after {
		err = fmt.Errorf("a second init changed the node:\nbefore:\n%s\nafter:\n%s", before, after)
	}
	return err
}

// settings lists what a second init could have changed: files with the times
// of their last changes, and the services with their processes.
func settings(ctx context.Context, h *lab.Host) (string, error) {
	return h.Output(ctx, "sh", "-ec", `
		find /etc/kubernetes /etc/containerd /etc/cni /etc/systemd/system /etc/sysctl.d /usr/local/bin /opt/cni/bin \
			/var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env /var/lib/airlift ! -type d -printf '%p %T@ %s\n' 2>/dev/null | sort
		for unit in containerd kubelet; do systemctl show --property Id,MainPID,ActiveEnterTimestampMonotonic $unit; done`)
}

// passing says what files of init's come and go.
func passing(ctx context.Context, t *table, w *airlift, h *lab.Host) error {
	p, err := measure.WatchPassing(h)
	if err != nil {
		return err
	}
	_, initErr := w.init(ctx, h, "")
	passed, err := p.Gone()
	if initErr != nil {
		return initErr
	}
	if err != nil {
		return err
	}
	t.count(passingRow, w, len(passed.Paths))
	t.bytes(passingBytesRow, w, passed.Bytes)
	for _, path := range passed.Paths {
		say("  came and went: %s", path)
	}
	return nil
}

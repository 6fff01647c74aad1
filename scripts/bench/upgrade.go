package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/lab/site"
)

// newerFile is the path of the newer bundle on a host.
const newerFile = "/root/newer"

// upgrades measures the upgrade of a control plane and a worker with the newer version, with Airlift
// and by hand, in turns.
func upgrades(ctx context.Context, t *table, o options, hand *byHand, own *airlift, gauge string) error {
	version, err := site.KubernetesVersion(o.newer)
	if err != nil {
		return err
	}
	next, err := kubeadm.Gather(ctx, version, io.Discard)
	if err != nil {
		return err
	}
	ways := []upgradeWay{
		{
			way:    hand,
			carry:  func(h *lab.Host) error { return next.CopyNext(ctx, h) },
			images: func(h *lab.Host, plane bool) error { _, err := next.ImportImages(ctx, h, plane); return err },
			upgrade: func(h, control *lab.Host) error {
				_, err := next.Upgrade(ctx, h, kubeadm.Upgrade{Control: control, Drain: true}, parts())
				return err
			},
		}, {
			way:   own,
			carry: func(h *lab.Host) error { _, err := h.CopyIn(ctx, o.newer, newerFile, 0o755); return err },
			images: func(h *lab.Host, plane bool) error {
				if plane {
					return nil // upgrade apply imports them
				}
				_, _, err := measure.Run(ctx, h, newerFile, "upgrade", "node", "phase", "unpack")
				return err
			},
			upgrade: func(h, control *lab.Host) error {
				command := []string{newerFile, "upgrade", "node"}
				if h == control {
					command = []string{newerFile, "upgrade", "apply", "--yes"}
				}
				_, _, err := measure.Run(ctx, h, command...)
				return err
			},
		},
	}
	t.tell("Upgrade: of a control plane and a worker, from the version of the table to " + version + `. By hand: containerd, runc
and the CNI plugins are not replaced. The images are imported on the worker first, because add-ons also run there. The files of the newer version, with unpacked binaries, are on the hosts before the measurement.`)
	for i := range o.runs {
		for _, w := range ways {
			say("upgrade: run %d of %d: %s", i+1, o.runs, w.name())
			err := onFreshHosts(ctx, lab.Options{Hosts: 2}, w.way, gauge, func(l *lab.Lab) error {
				return upgrading(ctx, t, w, l, version)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", w.name(), err)
			}
		}
	}
	return nil
}

// An upgradeWay is a way to upgrade nodes.
type upgradeWay struct {
	way
	carry   func(h *lab.Host) error // copies the files of the newer version
	images  func(h *lab.Host, controlPlane bool) error
	upgrade func(h, control *lab.Host) error
}

// upgrading measures the upgrade of a new cluster of two hosts.
func upgrading(ctx context.Context, t *table, w upgradeWay, l *lab.Lab, version string) error {
	control, worker := l.Hosts[0], l.Hosts[1]
	join, err := w.init(ctx, control)
	if err != nil {
		return err
	}
	if err := w.join(ctx, worker, join); err != nil {
		return err
	}
	if _, err := judge(ctx, control, control, worker)(); err != nil {
		return err
	}
	for _, h := range l.Hosts {
		if err := w.carry(h); err != nil {
			return err
		}
		if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
			return err
		}
	}
	started := time.Now()
	if err := w.images(worker, false); err != nil {
		return err
	}
	imported := time.Since(started)
	started = time.Now()
	if err := w.images(control, true); err != nil {
		return err
	}
	returned, ready, err := w.upgradeOne(ctx, control, l, version, started)
	if err != nil {
		return err
	}
	t.seconds(upgradeReturnRow, w.way, returned)
	t.seconds(upgradeRow, w.way, ready)
	workerReturned, workerReady, err := w.upgradeOne(ctx, worker, l, version, time.Now().Add(-imported))
	if err != nil {
		return err
	}
	t.seconds(upgradeNodeReturnRow, w.way, workerReturned)
	t.seconds(upgradeNodeRow, w.way, workerReady)
	t.seconds(upgradeBothReturnRow, w.way, returned+workerReturned)
	t.seconds(upgradeBothRow, w.way, ready+workerReady)
	return nil
}

// upgradeOne upgrades a node, and returns the times from a start until the last command returned and
// until the node was Ready.
func (w upgradeWay) upgradeOne(ctx context.Context, h *lab.Host, l *lab.Lab, version string, started time.Time) (returned, ready time.Duration, err error) {
	if err := w.upgrade(h, l.Hosts[0]); err != nil {
		return 0, 0, err
	}
	returned = time.Since(started)
	end, err := judge(ctx, l.Hosts[0], l.Hosts...)()
	if err != nil {
		return 0, 0, err
	}
	out, err := l.Hosts[0].Output(ctx, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "node", h.Name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
	if err != nil {
		return 0, 0, err
	}
	if out != version {
		return 0, 0, fmt.Errorf("the kubelet of %s has version %s after the upgrade, not %s", h.Name, out, version)
	}
	return returned, end.Pods.Sub(started), nil
}

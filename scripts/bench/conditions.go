package main

import (
	"context"
	"errors"
	"path/filepath"

	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
)

// A condition limits the hosts, as on a smaller machine.
type condition struct {
	part                     string
	importRow, disk, initRow *row
	cpus                     string // the CPUs that hosts may use; all if empty
	diskRate                 int    // bytes per second; 0 means no limit
	ignore                   string // a preflight check that fails because of the limit
}

var conditions = []condition{
	{part: "one-core", importRow: oneCoreImportRow, disk: oneCoreImportDiskRow, initRow: oneCoreInitRow, cpus: "0", ignore: "NumCPU"},
	{part: "slow-disk", importRow: slowImportRow, disk: slowImportDiskRow, initRow: slowInitRow, diskRate: slowDiskRate},
}

const slowDiskRate = 50e6

// measure imports on one host and runs init on another.
func (c condition) measure(ctx context.Context, t *table, w way, dir, gauge string) (err error) {
	o := lab.Options{Hosts: 2}
	var slow *measure.SlowDisk
	if c.diskRate != 0 {
		if slow, err = measure.NewSlowDisk(ctx, filepath.Join(dir, "slow")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, slow.Remove()) }()
		o.Disks = slow.Dir
	}
	return onFreshHosts(ctx, o, w, gauge, func(l *lab.Lab) (err error) {
		var roots []string
		for _, h := range l.Hosts {
			if c.cpus != "" {
				if err := h.Pin(c.cpus); err != nil {
					return err
				}
			}
			root := filepath.Join(l.Dir(), h.Name)
			if err := measure.Settle(ctx, root); err != nil {
				return err
			}
			roots = append(roots, root)
		}
		if slow != nil {
			// Remove the limit before the hosts are removed.
			defer func() { err = errors.Join(err, slow.Unlimit()) }()
			if err := slow.Limit(c.diskRate, roots...); err != nil {
				return err
			}
		}
		if err := importing(ctx, t, w, l.Hosts[0], c.importRow, c.disk); err != nil {
			return err
		}
		_, err = initing(ctx, t, w, l.Hosts[1], c.initRow, c.ignore)
		return err
	})
}

package main

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"time"

	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// slowDriveRate is the rate of a slow USB 2 drive, in bytes per second.
const slowDriveRate = 30e6

// drive is the mount point of the slow drive on a host.
const drive = "/mnt/drive"

// fileCheck measures the cost of comparing the whole file with its digests before init
// changes anything: with the file in the page cache, as after copying, and with the file
// on a slow drive.
func fileCheck(ctx context.Context, t *table, o options, own *airlift, dir, gauge string) (err error) {
	slow, err := measure.NewSlowDrive(ctx, filepath.Join(dir, "drive"), o.bundle, slowDriveRate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slow.Remove()) }()
	for i := range o.runs {
		for _, c := range []struct {
			row   *row
			drive bool
			flags []string
		}{
			{uncheckedInitRow, false, []string{"--skip-file-check"}},
			{checkedInitRow, false, nil},
			{uncheckedDriveRow, true, []string{"--skip-file-check"}},
			{checkedDriveRow, true, nil},
		} {
			say("file check: run %d of %d: %s", i+1, o.runs, c.row.name)
			err := onFreshHosts(ctx, lab.Options{Hosts: 1}, own, gauge, func(l *lab.Lab) error {
				h, file := l.Hosts[0], site.Installer
				if c.drive {
					if err := slow.Plug(ctx, h, drive); err != nil {
						return err
					}
					defer func() { _ = slow.Unplug(context.WithoutCancel(ctx), h, drive) }()
					file = path.Join(drive, filepath.Base(o.bundle))
				}
				started := time.Now()
				ready := judge(ctx, h, h)
				args := append([]string{file, "init", "--apiserver-advertise-address", h.Addr.String()}, c.flags...)
				if _, err := h.Output(ctx, args...); err != nil {
					return err
				}
				end, err := ready()
				if err == nil {
					t.seconds(c.row, own, end.Pods.Sub(started))
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// scaleParts are the values of --only.
var scaleParts = []string{"images", "joins"}

// shapes are the images in addition to the images of every bundle.
var shapes = []shape{
	{images: 0, layers: 1},
	{images: 10, layers: 5, files: 10, size: 1e6},
	{images: 100, layers: 5, files: 1, size: 1e6},
	{images: 10, layers: 5, files: 100, size: 1e6},
	{images: 1, layers: 1, files: 100_000, size: 5000},
}

// joiners are the numbers of hosts that join in parallel.
var joiners = []int{1, 4, 8}

// scaleLab is the lab of bench scale, which may run at the same time as bench.
const scaleLab = "bench-scale"

// A scaling is one run of bench scale.
type scaling struct {
	options
	own        *airlift
	dir, gauge string
	table      *tabwriter.Writer
}

func scale(ctx context.Context, o options, wanted func(part string) bool) error {
	version, err := site.KubernetesVersion(o.bundle)
	if err != nil {
		return err
	}
	// Next to the cache, because /tmp may be in memory and this gets large.
	base, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Join(base, "airlift"), "scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &scaling{options: o, own: &airlift{bundle: o.bundle, version: version}, dir: dir, table: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)}
	if s.gauge, err = measure.BuildGauge(ctx, dir); err != nil {
		return err
	}
	fmt.Printf("Kubernetes %s\n", version)
	if wanted("images") {
		if err := s.imports(ctx); err != nil {
			return err
		}
	}
	if wanted("joins") {
		return s.joins(ctx)
	}
	return nil
}

// imports measures the import of more and more images, on one fresh host for each shape.
func (s *scaling) imports(ctx context.Context) error {
	stop, mirrors, err := startRig(ctx, s.rig, s.own.version, s.dir, filepath.Join(s.dir, "access"))
	if err != nil {
		return fmt.Errorf("starting the upstream rig: %w", err)
	}
	defer stop()
	fmt.Println("\nImages in addition to the images of every bundle. Import, on disk: 'install init phase images' and sync.")
	fmt.Fprintln(s.table, "images\tfiles\tMB\timport, on disk s\tCPU s\tmemory MB\tagain s\t")
	for _, sh := range shapes {
		say("%d images of %d layers, %d files each", sh.images, sh.layers, sh.files)
		if err := s.imported(ctx, sh, mirrors); err != nil {
			return fmt.Errorf("%d images: %w", sh.images, err)
		}
	}
	return s.table.Flush()
}

// imported builds a bundle with a shape's images and imports it.
func (s *scaling) imported(ctx context.Context, sh shape, mirrors []string) error {
	dir, err := os.MkdirTemp(s.dir, "shape-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	references, mirror, stop, err := serveSynthetic(sh, dir)
	if err != nil {
		return err
	}
	defer stop()
	file := filepath.Join(dir, "install")
	args := slices.Concat([]string{"build", "--version", s.own.version, "--cache-dir", filepath.Join(dir, "cache"), "--compression", "fastest", "--output", file, "--mirror", mirror}, mirrors)
	for _, r := range references {
		args = append(args, "--image", r)
	}
	if out, err := exec.CommandContext(ctx, s.tool, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("running %s build: %w: %s", s.tool, err, out)
	}
	own := &airlift{bundle: file, version: s.own.version}
	return onFreshHosts(ctx, lab.Options{Name: scaleLab, Hosts: 1}, own, s.gauge, func(l *lab.Lab) error {
		h := l.Hosts[0]
		if err := own.runtime(ctx, h); err != nil {
			return err
		}
		if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
			return err
		}
		started := time.Now()
		_, first, err := measure.Run(ctx, h, site.Installer, "init", "phase", "images")
		if err != nil {
			return err
		}
		if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
			return err
		}
		took := time.Since(started)
		_, again, err := measure.Run(ctx, h, site.Installer, "init", "phase", "images")
		if err != nil {
			return err
		}
		fmt.Fprintf(s.table, "%d\t%d\t%.0f\t%.1f\t%.1f\t%.0f\t%.2f\t\n", sh.images, sh.images*sh.layers*sh.files, float64(sh.bytes())/1e6,
			took.Seconds(), first.CPU.Seconds(), float64(first.Memory)/1e6, again.Wall.Seconds())
		return nil
	})
}

// joins measures joins of a growing number of hosts in parallel. The hosts leave the
// cluster between two measurements.
func (s *scaling) joins(ctx context.Context) error {
	most := slices.Max(joiners)
	say("joins of up to %d hosts at once", most)
	fmt.Println("\nHosts that join at once, all on this machine's cores.")
	fmt.Fprintln(s.table, "hosts\tlast returned s\tall nodes Ready s\tall pods Ready s\tCPU s each\t")
	err := onFreshHosts(ctx, lab.Options{Name: scaleLab, Hosts: 1 + most}, s.own, s.gauge, func(l *lab.Lab) error {
		args, err := s.own.init(ctx, l.Hosts[0])
		if err != nil {
			return err
		}
		for _, n := range joiners {
			if err := s.joinAtOnce(ctx, l.Hosts[0], l.Hosts[1:1+n], args); err != nil {
				return err
			}
			if err := leave(ctx, l.Hosts[0], l.Hosts[1:1+n]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.table.Flush()
}

func (s *scaling) joinAtOnce(ctx context.Context, control *lab.Host, hosts []*lab.Host, args []string) error {
	started := time.Now()
	ready := judge(ctx, control, append([]*lab.Host{control}, hosts...)...)
	used := make([]measure.Usage, len(hosts))
	group, inner := errgroup.WithContext(ctx)
	for i, h := range hosts {
		group.Go(func() (err error) {
			_, used[i], err = measure.Run(inner, h, append([]string{site.Installer}, args...)...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	returned := time.Since(started)
	end, err := ready()
	if err != nil {
		return err
	}
	var cpu time.Duration
	for _, u := range used {
		cpu += u.CPU
	}
	fmt.Fprintf(s.table, "%d\t%.1f\t%.1f\t%.1f\t%.1f\t\n", len(hosts), returned.Seconds(), end.Nodes.Sub(started).Seconds(),
		end.Pods.Sub(started).Seconds(), cpu.Seconds()/float64(len(hosts)))
	return nil
}

// leave resets nodes.
func leave(ctx context.Context, control *lab.Host, hosts []*lab.Host) error {
	group, inner := errgroup.WithContext(ctx)
	for _, h := range hosts {
		group.Go(func() error {
			if _, err := site.Install(inner, h, io.Discard, "reset", "--force"); err != nil {
				return err
			}
			_, err := control.Output(inner, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "delete", "node", h.Name, "--ignore-not-found")
			return err
		})
	}
	return group.Wait()
}

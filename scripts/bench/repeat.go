package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// repeatLab is the lab of "bench repeat".
const repeatLab = "repeat"

// repeat installs a cluster on two fresh hosts again and again, and prints how the times
// until every pod is Ready vary: a mean hides a rare long wait.
func repeat(ctx context.Context, o options, _ func(string) bool) error {
	version, err := site.KubernetesVersion(o.bundle)
	if err != nil {
		return err
	}
	if o.load > 0 {
		stop, err := startLoad(ctx, o.load)
		if err != nil {
			return err
		}
		defer stop()
	}
	own := &airlift{bundle: o.bundle, version: version}
	var runs []clusterRun
	for i := range o.runs {
		r, err := makeCluster(ctx, own, o, i+1)
		if err != nil {
			return fmt.Errorf("run %d: %w", i+1, err)
		}
		say("run %d of %d: init %.1f s, join %.1f s, every pod Ready after %.1f s%s; the last: %s", i+1, o.runs, r.init, r.join, r.pods, r.restarted, strings.Join(r.last, ", "))
		runs = append(runs, r)
	}
	fmt.Printf("\n%d runs of init and join, Kubernetes %s, %d CPUs, %d processes of load\n", len(runs), version, runtime.NumCPU(), o.load)
	histogram("init, until it returned", runs, func(r clusterRun) float64 { return r.init })
	histogram("join, until it returned", runs, func(r clusterRun) float64 { return r.join })
	histogram("init and join, until every node and pod was Ready", runs, func(r clusterRun) float64 { return r.pods })
	return nil
}

// A clusterRun is one cluster of two hosts. Times are in seconds.
type clusterRun struct {
	init, join float64
	pods       float64 // from the start of init until all are Ready
	last       []string
	restarted  string // whether init restarted the kubelet so that it starts the static pods
}

func makeCluster(ctx context.Context, own *airlift, o options, number int) (r clusterRun, err error) {
	l, err := lab.Up(ctx, lab.Options{Name: repeatLab, Hosts: 2})
	if err != nil {
		return r, err
	}
	defer func() {
		if downErr := l.Down(context.Background()); err == nil {
			err = downErr
		}
	}()
	for _, h := range l.Hosts {
		if err := own.copyFiles(ctx, h); err != nil {
			return r, err
		}
	}
	control, worker := l.Hosts[0], l.Hosts[1]
	started := time.Now()
	ready := judge(ctx, control, control, worker)
	out, err := site.Install(ctx, control, new(strings.Builder), "init", "-v", "1")
	if err != nil {
		return r, fmt.Errorf("%w:\n%s", err, out)
	}
	r.init = time.Since(started).Seconds()
	if strings.Contains(out, "restarting the kubelet") {
		r.restarted = " (init restarted the kubelet)"
	}
	args, err := site.JoinArgs(out)
	if err != nil {
		return r, err
	}
	joining := time.Now()
	if out, err := site.Install(ctx, worker, new(strings.Builder), args...); err != nil {
		return r, fmt.Errorf("%w:\n%s", err, out)
	}
	joined := time.Now()
	r.join = joined.Sub(joining).Seconds()
	end, err := ready()
	if err != nil {
		return r, keepLogs(ctx, l, o.keep, number, err)
	}
	r.pods, r.last = end.Pods.Sub(started).Seconds(), end.Last
	if end.Pods.Sub(joined) > o.slow {
		return r, keepLogs(ctx, l, o.keep, number, nil)
	}
	return r, nil
}

// keepLogs saves the logs of a slow or failed run to a directory.
func keepLogs(ctx context.Context, l *lab.Lab, dir string, number int, failed error) error {
	if dir == "" {
		return failed
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	save := func(name string, h *lab.Host, argv ...string) {
		out, _ := h.Output(ctx, argv...)
		_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("run%d-%s", number, name)), []byte(out), 0o644)
	}
	save("pods.yaml", l.Hosts[0], "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "pods", "-A", "-o", "yaml", "--show-managed-fields")
	save("events", l.Hosts[0], "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "events", "-A", "-o", "wide")
	for _, h := range l.Hosts {
		save(h.Name+"-kubelet.log", h, "journalctl", "-u", "kubelet", "-o", "short-precise", "--no-pager")
		save(h.Name+"-containerd.log", h, "journalctl", "-u", "containerd", "-o", "short-precise", "--no-pager")
	}
	say("  the logs are in %s", dir)
	return failed
}

// startLoad starts processes that use all available processor time, and one that writes to
// the disk.
func startLoad(ctx context.Context, processes int) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "airlift-load-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running []*exec.Cmd
	stop = func() {
		cancel()
		for _, c := range running {
			_ = c.Wait()
		}
		_ = os.RemoveAll(dir)
	}
	commands := slices.Repeat([]string{"while :; do :; done"}, processes)
	commands = append(commands, "cd / && while :; do dd if=/dev/zero of='"+dir+"/file' bs=1M count=64 conv=fsync status=none ; done")
	for _, script := range commands {
		c := exec.CommandContext(ctx, "sh", "-c", script)
		if err := c.Start(); err != nil {
			stop()
			return nil, err
		}
		running = append(running, c)
	}
	return stop, nil
}

// histogram prints the distribution of a time over the runs.
func histogram(title string, runs []clusterRun, of func(clusterRun) float64) {
	var times []float64
	for _, r := range runs {
		times = append(times, of(r))
	}
	slices.Sort(times)
	n := len(times)
	fmt.Printf("\n%s: least %.1f s, median %.1f s, 9 of 10 within %.1f s, most %.1f s\n", title, times[0], times[n/2], times[(n*9+9)/10-1], times[n-1])
	width := 1.0
	for (times[n-1]-times[0])/width > 20 {
		width *= 2
	}
	for from := float64(int(times[0]/width)) * width; from <= times[n-1]; from += width {
		count := 0
		for _, t := range times {
			if t >= from && t < from+width {
				count++
			}
		}
		fmt.Printf("  %4.0f s  %2d  %s\n", from, count, strings.Repeat("#", count))
	}
}

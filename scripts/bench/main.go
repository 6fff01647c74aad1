// Bench runs Airlift and what a person would do by hand, in turns, on fresh
// lab hosts with the same components, and prints medians and ratios. It is no
// test: nothing fails for being slow.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"airlift/fault"
	"airlift/scripts/byhand"
	"airlift/scripts/lab"
	"airlift/scripts/site"
)

func main() {
	path := flag.String("bundle", "out/install", "the bundle file")
	runs := flag.Int("runs", 3, "how often each way is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, *path, *runs)
	stop()
	fault.Print(os.Stderr, err)
	os.Exit(int(fault.ExitCode(err)))
}

func bench(ctx context.Context, path string, runs int) error {
	version, err := site.KubernetesVersion(path)
	if err != nil {
		return err
	}
	kit, err := byhand.Gather(ctx, version, os.Stderr)
	if err != nil {
		return err
	}
	t := &table{}
	if err := t.sizes(path, kit); err != nil {
		return err
	}
	for i := range runs {
		fmt.Fprintf(os.Stderr, "run %d of %d: by hand\n", i+1, runs)
		if err := onFreshHosts(ctx, func(s *site.Site) error { return byHand(ctx, t, kit, s) }); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "run %d of %d: airlift\n", i+1, runs)
		if err := onFreshHosts(ctx, func(s *site.Site) error { return airlift(ctx, t, path, s) }); err != nil {
			return err
		}
	}
	t.print(os.Stdout, version, runs)
	return nil
}

// onFreshHosts boots two hosts for one run, and takes them down after it.
func onFreshHosts(ctx context.Context, run func(*site.Site) error) error {
	s, err := site.Up(ctx, lab.Options{Name: "bench", Hosts: 2})
	if err != nil {
		return err
	}
	err = run(s)
	// ctx may have ended; the hosts go all the same.
	if downErr := s.Down(context.Background()); err == nil {
		err = downErr
	}
	return err
}

// airlift measures the installer: its phases up to the images on the worker's
// host, which is then made bare again, and the whole of init and join.
func airlift(ctx context.Context, t *table, path string, s *site.Site) error {
	if _, err := s.Carry(ctx, path); err != nil {
		return err
	}
	control, worker := s.Hosts[0], s.Hosts[1]
	install := func(h *lab.Host, args ...string) (string, time.Duration, error) {
		started := time.Now()
		out, err := site.Install(ctx, h, io.Discard, args...)
		if err != nil {
			err = fmt.Errorf("install %v: %w\n%s", args, err, out)
		}
		return out, time.Since(started), err
	}
	for _, phase := range []string{"unpack", "runtime", "images"} {
		_, took, err := install(worker, "init", "phase", phase)
		if err != nil {
			return err
		}
		if phase == "images" {
			t.add(importRow, ours, took)
		}
	}
	if _, _, err := install(worker, "reset", "--force"); err != nil {
		return err
	}

	var out string
	err := t.time(initRow, ours, func() (err error) { out, _, err = install(control, "init"); return err })
	if err != nil {
		return err
	}
	join, err := site.JoinArgs(out)
	if err != nil {
		return err
	}
	if err := t.time(joinRow, ours, func() error { _, _, err := install(worker, join...); return err }); err != nil {
		return err
	}
	return t.time(againRow, ours, func() error { _, _, err := install(control, "init"); return err })
}

// byHand measures what a person does, from the files on the host to Ready.
func byHand(ctx context.Context, t *table, kit *byhand.Kit, s *site.Site) error {
	control, worker := s.Hosts[0], s.Hosts[1]
	for _, h := range s.Hosts {
		if _, err := kit.Carry(ctx, h); err != nil {
			return err
		}
		nameserver := "echo nameserver " + byhand.Nameserver(h) + " >/etc/resolv.conf"
		if _, err := h.Output(ctx, "sh", "-c", nameserver); err != nil {
			return err
		}
		if _, err := h.Output(ctx, "sh", "-c", byhand.FlannelPlugin); err != nil {
			return err
		}
	}
	var join []string
	err := t.time(initRow, theirs, func() error {
		if _, err := kit.Prepare(ctx, control); err != nil {
			return err
		}
		if err := t.time(importRow, theirs, func() error { _, err := kit.ImportImages(ctx, control, true); return err }); err != nil {
			return err
		}
		done, err := kit.Init(ctx, control, byhand.Config(control, byhand.Settings{Version: kit.Version}))
		if err != nil {
			return err
		}
		if join, err = byhand.JoinArgs(done.Output); err != nil {
			return err
		}
		if _, err := kit.ApplyNetwork(ctx, control); err != nil {
			return err
		}
		return ready(ctx, s, 1)
	})
	if err != nil {
		return err
	}
	return t.time(joinRow, theirs, func() error {
		if _, err := kit.Prepare(ctx, worker); err != nil {
			return err
		}
		if _, err := kit.ImportImages(ctx, worker, false); err != nil {
			return err
		}
		if _, err := kit.Join(ctx, worker, join...); err != nil {
			return err
		}
		return ready(ctx, s, 2)
	})
}

// ready waits until all nodes and, on the first of them, all system pods are
// Ready.
func ready(ctx context.Context, s *site.Site, nodes int) error {
	script := fmt.Sprintf(`export KUBECONFIG=/etc/kubernetes/admin.conf
		until [ "$(kubectl get nodes --no-headers 2>/dev/null | grep -c ' Ready ')" = %d ]; do sleep 0.2; done
		[ %d != 1 ] || for ns in kube-system kube-flannel; do kubectl -n $ns wait --for=condition=Ready pod --all --timeout=180s; done`, nodes, nodes)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	_, err := s.Hosts[0].Output(ctx, "sh", "-c", script)
	return err
}

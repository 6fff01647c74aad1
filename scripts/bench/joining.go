package main

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/site"
)

// joiners are the numbers of hosts that join in parallel.
var joiners = []int{1, 4, 8}

// joining measures joins of a growing number of hosts in parallel. The hosts leave the
// cluster between two measurements.
func (s *scaling) joining(ctx context.Context) error {
	most := slices.Max(joiners)
	say("joins of up to %d hosts at once", most)
	own := &airlift{bundle: s.bundle, version: s.version}
	return onFreshHosts(ctx, lab.Options{Name: scaleLab, Hosts: 1 + most}, own, s.gauge, func(l *lab.Lab) error {
		args, err := own.init(ctx, l.Hosts[0], "")
		if err != nil {
			return err
		}
		for _, n := range joiners {
			j, err := joinAtOnce(ctx, l, l.Hosts[1:1+n], args)
			if err != nil {
				return err
			}
			say("  %d: last returned after %.1f s, all nodes Ready after %.1f s", n, j.Last, j.Nodes)
			s.Joined = append(s.Joined, j)
			if n == most {
				break
			}
			if err := leave(ctx, l, l.Hosts[1:1+n]); err != nil {
				return err
			}
		}
		return nil
	})
}

func joinAtOnce(ctx context.Context, l *lab.Lab, hosts []*lab.Host, args []string) (joined, error) {
	control := l.Hosts[0]
	started := time.Now()
	ready := judge(ctx, control, append([]*lab.Host{control}, hosts...)...)
	var mu sync.Mutex
	var returned []float64
	var cpu time.Duration
	var resident int64
	group, inner := errgroup.WithContext(ctx)
	for _, h := range hosts {
		group.Go(func() error {
			_, u, err := measure.Run(inner, h, append([]string{site.Installer}, args...)...)
			mu.Lock()
			defer mu.Unlock()
			returned = append(returned, time.Since(started).Seconds())
			cpu, resident = cpu+u.CPU, max(resident, u.Resident)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return joined{}, err
	}
	end, err := ready()
	if err != nil {
		return joined{}, err
	}
	return joined{
		Hosts: len(hosts), First: slices.Min(returned), Last: slices.Max(returned),
		Nodes: end.Nodes.Sub(started).Seconds(), Pods: end.Pods.Sub(started).Seconds(),
		CPU: cpu.Seconds() / float64(len(hosts)), Resident: float64(resident) / 1e6,
	}, nil
}

// leave resets nodes.
func leave(ctx context.Context, l *lab.Lab, hosts []*lab.Host) error {
	group, inner := errgroup.WithContext(ctx)
	for _, h := range hosts {
		group.Go(func() error {
			if _, err := site.Install(inner, h, io.Discard, "reset", "--force"); err != nil {
				return err
			}
			_, err := l.Hosts[0].Output(inner, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "delete", "node", h.Name, "--ignore-not-found")
			return err
		})
	}
	return group.Wait()
}

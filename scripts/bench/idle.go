package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

const (
	// idleTime is how long a node is watched. Its 60 samples give a 95th percentile that three of them exceed.
	idleTime = time.Minute
	// idlePause is the time before: a kubelet and the controllers have more to do at first.
	idlePause = 20 * time.Second
)

// smallWorkload is the pods of the small workload, with what most pods have: a readiness probe.
const smallWorkload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: small}
spec:
  replicas: 10
  selector: {matchLabels: {app: small}}
  template:
    metadata: {labels: {app: small}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: server
        image: %s
        imagePullPolicy: Never
        args: [netexec, --http-port=8080]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        readinessProbe: {httpGet: {path: /healthz, port: 8080}}
`

// idle measures what a control plane and a worker use while nothing happens, and with a small workload on the worker. The
// clusters of both ways run at the same time, so that what else this machine does affects both.
func idle(ctx context.Context, t *table, o options, gauge string, ways ...way) error {
	for i := range o.runs {
		say("idle: run %d of %d", i+1, o.runs)
		err := idleCluster(ctx, "bench-first", ways[0], gauge, func(first *lab.Lab) error {
			return idleCluster(ctx, "bench-second", ways[1], gauge, func(second *lab.Lab) error {
				return watchBoth(ctx, t, first, second, ways)
			})
		})
		if err != nil {
			return err
		}
		slices.Reverse(ways) // each is the first one in half of the runs
	}
	return nil
}

// watchBoth watches two clusters, without and with the small workload.
func watchBoth(ctx context.Context, t *table, first, second *lab.Lab, ways []way) error {
	hosts := append(first.Hosts[:2:2], second.Hosts...)
	if err := watch(ctx, t, []*nodeRows{idleControlRows, idleWorkerRows}, hosts, ways); err != nil {
		return err
	}
	for _, l := range []*lab.Lab{first, second} {
		if err := deploySmall(ctx, l, t.Version); err != nil {
			return err
		}
	}
	return watch(ctx, t, []*nodeRows{smallControlRows, smallWorkerRows}, hosts, ways)
}

// idleCluster calls run with a cluster of a control plane and a worker.
func idleCluster(ctx context.Context, name string, w way, gauge string, run func(*lab.Lab) error) error {
	say("  a cluster, %s", w.name())
	return onFreshHosts(ctx, lab.Options{Name: name, Hosts: 2}, w, gauge, func(l *lab.Lab) error {
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
		return run(l)
	})
}

// deploySmall runs the small workload and waits until it is ready.
func deploySmall(ctx context.Context, l *lab.Lab, version string) error {
	image, err := site.WorkloadImage(version)
	if err != nil {
		return err
	}
	c := site.New(l)
	if err := c.Apply(ctx, fmt.Sprintf(smallWorkload, image)); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "rollout", "status", "deployment/small", "--timeout", "2m")
	return err
}

// watch adds what the nodes of each way use: hosts has len(rows) hosts of the first way, then the hosts of the second.
func watch(ctx context.Context, t *table, rows []*nodeRows, hosts []*lab.Host, ways []way) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(idlePause):
	}
	loads, err := measure.Loads(ctx, idleTime, hosts...)
	if err != nil {
		return err
	}
	for i, load := range loads {
		w, r := ways[i/len(rows)], rows[i%len(rows)]
		t.bytes(r.memory, w, load.Memory)
		t.bytes(r.resident, w, load.Resident)
		t.add(r.cpu, w, load.CPU)
	}
	return nil
}

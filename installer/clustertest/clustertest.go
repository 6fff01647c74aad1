// Package clustertest tests a running cluster: it starts pods on all nodes that ask each other, DNS, Services and API servers, and explains
// what failed. Its pods are any image that a node has, with the command airlift of the node in it, so it needs no image of its own.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/lease"
	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
	"airlift/internal/fault"
)

// Namespace has everything that a test creates, but for its Lease in kube-system. It does not exist between tests.
const Namespace = "airlift-test"

// leaseName is the Lease of the test that runs.
const leaseName = "airlift-test"

// Time limits of the parts of a test.
const (
	readTime    = 20 * time.Second // of what the API server is asked for
	startTime   = 30 * time.Second // until a pod with a server runs
	probeTime   = 80 * time.Second // until a probe has reported: it ends by itself after a minute
	volumeTime  = 40 * time.Second // until a volume is there
	logTime     = 15 * time.Second // of the log of a pod: its kubelet may not answer
	cleanupTime = 60 * time.Second
	// steadySeconds is how long Services and API servers are asked at least.
	steadySeconds = 10
	// serverSeconds is longer than a test: servers of a test that was killed end by themselves.
	serverSeconds = 300
	poll          = 500 * time.Millisecond
)

// A Test is one test of a cluster.
type Test struct {
	Client *cluster.Client
	// Node is the name of the host that runs the test.
	Node string
	// Report shows a line of progress.
	Report func(format string, args ...any)

	// openLog replaces the request for the log of a pod, in tests.
	openLog func(ctx context.Context, pod string) (io.ReadCloser, error)
	site    *site
	nonce   string
	owner   []metav1.OwnerReference // of the pods
	servers map[string]*corev1.Pod  // by node
	failed  map[string]string       // why a node has no server
	reports []*probe.Report
	seen    []diagnosis.Observation
	notes   []string
	losses  []probe.Loss // of API servers, seen from this host
	tunnel  string
	// addresses of the Services of the test, by name, and the port of the hosts that leads to one of them.
	addresses map[string][]string
	nodePort  int32
	balanced  []Address // of the Service of type LoadBalancer
}

// Run tests the cluster. Whatever happens, it removes what it created, or reports that it could not. Its error is no finding: the test could not run.
func (t *Test) Run(ctx context.Context) (result *Result, err error) {
	began := time.Now()
	held, release, err := lease.Alone(ctx, t.Client, leaseName, t.Node, func(holder string) {
		t.Report("a test began on %s: waiting until it is clear whether it still runs", holder)
	})
	if busy := (*lease.BusyError)(nil); errors.As(err, &busy) {
		return nil, fault.New(fault.Waiting, "another test of this cluster runs: on %s", busy.Holder).Hint("wait until it has ended, and run it again: ./install test")
	}
	if err != nil {
		return nil, err
	}
	defer release()
	defer func() {
		if t.nonce == "" {
			return // nothing was created
		}
		t.Report("removing the pods of the test")
		left := t.remove(context.WithoutCancel(ctx), t.created) // if the Lease is lost, another test may have its own namespace by now
		if left == nil {
			return
		}
		text := fmt.Sprintf("the pods of the test could not be removed: %v; the next test removes them, or: kubectl delete namespace %s", left, Namespace)
		if err != nil {
			t.Report("%s", text)
			return
		}
		t.note("%s", text)
		result.Notes = t.notes
	}()
	steady := t.askAPIServers(held)
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"looking for what a former test left", t.clear},
		{"reading the cluster", t.read},
		{"starting a server on each node", t.start},
		{"waiting for the servers", t.await},
		{"testing from each node", t.probe},
		{"reading the results", t.observe},
	} {
		t.Report("%s", step.what)
		if err := step.do(held); err != nil {
			if held.Err() != nil {
				err = context.Cause(held)
			}
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	t.losses = steady()
	return t.result(began), nil
}

// askAPIServers asks the API server of this client again and again, until the returned function is called.
func (t *Test) askAPIServers(ctx context.Context) (stop func() []probe.Loss) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var losses []probe.Loss
	wg.Go(func() {
		loss := probe.Steadily(ctx, probe.Check{Via: "the API at " + t.Client.Server}, t.Client.Accepts)
		losses = []probe.Loss{loss}
	})
	return func() []probe.Loss {
		cancel()
		wg.Wait()
		return losses
	}
}

func (t *Test) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(t.notes, text) {
		t.notes = append(t.notes, text)
	}
}

// await waits until each server runs, or it is clear why not.
func (t *Test) await(ctx context.Context) error {
	end := time.Now().Add(startTime)
	for {
		pods, err := t.pods(ctx, roleServer)
		if err != nil {
			return err
		}
		waiting := map[string]string{}
		for i, p := range pods {
			switch state := stateOf(&pods[i]); {
			case state.running && p.Status.PodIP != "":
				t.servers[p.Spec.NodeName] = &pods[i]
			case state.ended:
				t.failed[p.Spec.NodeName] = state.why
			default:
				waiting[p.Spec.NodeName] = state.why
			}
		}
		if len(waiting) == 0 {
			return nil
		}
		if time.Now().After(end) {
			events, err := t.events(ctx)
			for node, why := range waiting {
				if text := events[serverName(node)]; err == nil && text != "" {
					why = text
				}
				t.failed[node] = why
			}
			return nil
		}
		if err := pause(ctx, poll); err != nil {
			return err
		}
	}
}

// events returns the latest warning about each pod of the test. Events may be limited: then some are missing.
func (t *Test) events(ctx context.Context) (map[string]string, error) {
	list, err := t.Client.API.CoreV1().Events(Namespace).List(ctx, metav1.ListOptions{Limit: 1000})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	texts := map[string]string{}
	for _, e := range list.Items {
		if e.Type == corev1.EventTypeWarning {
			texts[e.InvolvedObject.Name] = e.Reason + ": " + e.Message
		}
	}
	return texts, nil
}

// probe starts the probes, waits until they have ended, and reads what they and the servers printed.
func (t *Test) probe(ctx context.Context) error {
	if err := t.readServices(ctx); err != nil {
		return err
	}
	if err := t.awaitAddresses(ctx); err != nil {
		return err
	}
	var pods []*corev1.Pod
	var plans []probe.Plan
	for _, n := range t.site.tested {
		for _, host := range []bool{false, true} {
			if host || t.servers[n.Name] != nil {
				plan := t.plan(n, host)
				plans, pods = append(plans, plan), append(pods, t.probePod(n, plan))
			}
		}
	}
	if err := t.create(ctx, pods...); err != nil {
		return err
	}
	states, err := t.ended(ctx, roleProbe, len(pods), startTime, probeTime)
	if err != nil {
		return err
	}
	reports, seen := make([]*probe.Report, len(pods)), make([]diagnosis.Observation, len(pods))
	var reading sync.WaitGroup
	for i, p := range pods {
		reading.Go(func() {
			want := probe.Report{Node: p.Spec.NodeName, Host: p.Spec.HostNetwork, Nonce: t.nonce}
			place := diagnosis.FromPod
			if want.Host {
				place = diagnosis.FromHost
			}
			var err error
			reports[i], err = t.report(ctx, p.Name, states[p.Name], want)
			if err == nil {
				err = reports[i].Covers(plans[i])
			}
			seen[i] = diagnosis.Observation{Kind: diagnosis.ProbeRuns, From: want.Node, Place: place, OK: err == nil}
			if err != nil {
				seen[i].Detail = err.Error()
			}
		})
	}
	reading.Wait()
	t.reports = slices.DeleteFunc(reports, func(r *probe.Report) bool { return r == nil })
	t.seen = append(t.seen, seen...)
	return ctx.Err()
}

// report reads what a probe printed.
func (t *Test) report(ctx context.Context, pod string, state podState, want probe.Report) (*probe.Report, error) {
	if !state.started {
		return nil, errors.New(state.why)
	}
	ctx, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	log, err := t.log(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("its log could not be read: %w", err)
	}
	defer log.Close()
	return probe.Read(log, want, t.site.names)
}

// ended waits until pods have ended, or have not started in a time, and returns their states by name.
func (t *Test) ended(ctx context.Context, role string, count int, start, limit time.Duration) (map[string]podState, error) {
	states, began := map[string]podState{}, time.Now()
	for {
		pods, err := t.pods(ctx, role)
		if err != nil {
			return nil, err
		}
		ended, lost := 0, 0
		for i := range pods {
			state := stateOf(&pods[i])
			states[pods[i].Name] = state
			switch {
			case state.ended:
				ended++
			case !state.started && time.Since(began) > start:
				lost++
			}
		}
		if ended == count {
			return states, nil
		}
		if ended+lost == count || time.Since(began) > limit {
			events, err := t.events(ctx)
			for name, state := range states {
				if text := events[name]; err == nil && text != "" && !state.started {
					state.why = text
					states[name] = state
				}
			}
			return states, nil
		}
		if err := pause(ctx, poll); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

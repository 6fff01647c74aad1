//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// TestEndpointUpgrade upgrades three control planes and three workers while clients read an object ten times a second:
// over kept connections, as controllers do, and over a new one for each request, as kubectl does.
func TestEndpointUpgrade(t *testing.T) {
	l := newEndpointLab(t, lab.Options{Name: "e2e-endpointupgrade"}, 3)
	carryNewer(t, l.nodes()...)
	l.withEndpoint(t)
	l.healthy(t)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	names, clients := []string{}, []*probe{}
	start := func(name string, c *http.Client, w way) {
		names = append(names, w.name+", "+name)
		clients = append(clients, startRequests(ctx, c, w.url("/api/v1/namespaces/default")))
	}
	for _, w := range l.ways {
		start("new connections", l.asAdmin(w.dial), w)
		start("kept connections", keeping(l.asAdmin(w.dial)), w)
	}
	began := time.Now()
	newer(t, l.planes[0], 0, "upgrade", "apply", "--yes")
	for _, h := range l.nodes()[1:] {
		newer(t, h, 0, "upgrade", "node")
	}
	newer(t, l.planes[0], 0, "upgrade", "apply", "--yes") // the add-ons, which have waited for all nodes
	systemIsUp(t, l.Site, len(l.nodes()))
	took := time.Since(began)
	stop()

	var table strings.Builder
	table.WriteString("| upgrade of six nodes in " + took.Round(time.Second).String() + ", client | failed | longest time without an answer |\n|---|---|---|\n")
	for i, c := range clients {
		<-c.done
		fmt.Fprintf(&table, "| %s | %d of %d | %.2f s |\n", names[i], c.failed, c.sent, c.longest.Seconds())
		if len(c.errors) > 0 {
			t.Logf("%s:\n%s", names[i], strings.Join(c.errors, "\n"))
		}
		if c.longest > 30*time.Second {
			t.Errorf("%s: no answer for %s", names[i], c.longest)
		}
	}
	t.Logf("\n%s", table.String())
}

// keeping lets a client keep its connection, as client-go does: HTTP/2 with the same pings.
func keeping(c *http.Client) *http.Client {
	transport := c.Transport.(*http.Transport)
	transport.DisableKeepAlives, transport.ForceAttemptHTTP2 = false, true
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return c
}

// TestEndpointPowerCut measures how long a cluster needs after a power cut of all its hosts until every node and
// every system pod is Ready: with the virtual address and the balancer, and on the same hosts with neither.
func TestEndpointPowerCut(t *testing.T) {
	l := newEndpointLab(t, lab.Options{Name: "e2e-endpointpower"}, 3)
	table := "| power cut of all six hosts | median, 95th percentile and maximum until all nodes and system pods were Ready |\n|---|---|\n"
	for _, c := range []struct {
		name string
		args []string
	}{
		{"with the virtual address and the balancer", []string{"--control-plane-vip", virtual, "--control-plane-balancer"}},
		{"with the address of the first control plane as the endpoint", []string{"--control-plane-endpoint", l.planes[0].Addr.String() + ":6443"}},
	} {
		l.create(t, c.args...)
		var times []time.Duration
		for range endpointRuns(t) {
			times = append(times, l.powerCut(t))
		}
		table += "| " + c.name + " | " + quantiles(times) + " |\n"
		t.Logf("\n%s", table)
		for _, h := range slices.Backward(l.nodes()) {
			install(t, h, 0, "reset", "--force")
		}
	}
}

// powerCut cuts the power of all hosts, and returns how long after they have it again the cluster is ready.
func (l *endpointLab) powerCut(t *testing.T) time.Duration {
	t.Helper()
	l.onAll(t, func(h *lab.Host) error { return h.PowerCut(t.Context()) })
	began := time.Now()
	l.onAll(t, func(h *lab.Host) error { return h.Boot(t.Context()) })
	// At first the API reports the pods as they were before.
	eventually(t, 5*time.Minute, func() string { return startedSince(t, l.Site, began.UTC().Format(time.RFC3339)) })
	systemIsUp(t, l.Site, len(l.nodes()))
	return time.Since(began)
}

// onAll does something on all nodes at once.
func (l *endpointLab) onAll(t *testing.T, do func(*lab.Host) error) {
	t.Helper()
	var all sync.WaitGroup
	for _, h := range l.nodes() {
		all.Go(func() { succeeds(t, do(h)) })
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

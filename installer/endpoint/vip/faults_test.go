package vip

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// A labFault takes something from the holder.
type labFault struct {
	name          string
	begin, repair func(*labHost)
}

// reconnected is how long etcd's members need until each is connected to each again: a member notices after
// five seconds that a connection is dead, and nothing shows when it does. Without such a connection,
// the next fault of another host would leave no majority.
const reconnected = 12 * time.Second

func stop(p func(*labHost) *process) (begin, repair func(*labHost)) {
	return func(h *labHost) { p(h).signal(syscall.SIGSTOP) }, func(h *labHost) { p(h).signal(syscall.SIGCONT) }
}

func faults() []labFault {
	stopAPI, contAPI := stop(func(h *labHost) *process { return h.api })
	stopEtcd, contEtcd := stop(func(h *labHost) *process { return h.etcd })
	stopAgent, contAgent := stop(func(h *labHost) *process { return h.agent })
	return []labFault{
		{"handover", func(h *labHost) {
			if err := h.handover(); err != nil {
				h.lab.Error(err)
			}
			if h.hasAddress() {
				h.lab.Error("the handover has ended, and the host still has the address")
			}
			h.api.kill()
		}, func(h *labHost) { h.startAPI(); time.Sleep(absence) }},
		{"API server killed", func(h *labHost) { h.api.kill() }, (*labHost).startAPI},
		{"API server stopped", stopAPI, contAPI},
		{"etcd killed", func(h *labHost) { h.etcd.kill() }, (*labHost).startEtcd},
		{"etcd stopped", stopEtcd, contEtcd},
		{"cable pulled", func(h *labHost) { h.port("down") }, func(h *labHost) { h.port("up"); time.Sleep(reconnected) }},
		{"switch partitioned", func(h *labHost) { h.port("nomaster") }, func(h *labHost) { h.port("master", "br0"); time.Sleep(reconnected) }},
		{"power off", func(h *labHost) { h.port("down"); h.agent.kill(); h.api.kill(); h.etcd.kill() },
			func(h *labHost) { h.port("up"); h.startEtcd(); h.startAPI(); h.startAgent() }},
		{"agent killed", func(h *labHost) { h.agent.kill() }, (*labHost).startAgent},
		{"agent stopped", stopAgent, contAgent},
	}
}

// outcome is what a fault of the holder caused.
type outcome struct {
	// gap is the longest time without a good request, double that with two hosts that answer,
	// lost the time after which the former holder had no address.
	gap, double, lost time.Duration
	failed            int // requests
}

// run lets the holder have the fault. Another host must serve the address, and the former holder
// must lose it. Then the fault ends.
func (l *lab) run(f labFault) (o outcome) {
	l.Helper()
	h := l.settle()
	l.client.reset()
	started, lost := time.Now(), make(chan time.Duration)
	go func() {
		for h.hasAddress() && time.Since(started) < 20*time.Second {
			time.Sleep(sample)
		}
		lost <- time.Since(started)
	}()
	f.begin(h)
	l.waitServed(60*time.Second, l.others(h)...)
	o.lost = <-lost
	if h.hasAddress() {
		l.Fatalf("%s: %s keeps the address", f.name, h.name)
	}
	time.Sleep(2 * sample) // the gap is measured at the end of a request
	_, o.gap, o.failed = l.client.measured()
	f.repair(h)
	l.settle()
	o.double, _, _ = l.client.measured()
	return o
}

// TestFaults: after each fault of the holder, another host has both addresses, and no two hosts
// answer for longer than the holder needs to announce them. The bounds are for a loaded machine;
// TestFaults: after each fault of the holder, another host has both addresses, and no two hosts
// answer for longer than the holder needs to announce them. The bounds are for a loaded machine:
// BenchmarkFaults measures.
func TestFaults(t *testing.T) {
	l := newLab(t, 3, agentConfig{Addresses: vips})
	for _, f := range faults() {
		o := l.run(f)
		t.Logf("%-18s longest gap %5.2f s, %2d failed requests; the holder lost the address after %5.2f s; two hosts answered for %5.2f s",
			f.name, o.gap.Seconds(), o.failed, o.lost.Seconds(), o.double.Seconds())
		if o.double > announce {
			t.Errorf("%s: two hosts answered for %s", f.name, o.double)
		}
	}
}

// BenchmarkFaults measures the longest time without a good request, with -benchtime 20x for the table in
// the documentation.
func BenchmarkFaults(b *testing.B) {
	l := newLab(b, 3, agentConfig{Addresses: vips})
	for _, f := range faults() {
		b.Run(f.name, func(b *testing.B) {
			var gaps []time.Duration
			var worst outcome
			for b.Loop() {
				o := l.run(f)
				gaps = append(gaps, o.gap)
				worst.double, worst.lost, worst.failed = max(worst.double, o.double), max(worst.lost, o.lost), worst.failed+o.failed
			}
			slices.Sort(gaps)
			quantile := func(percent int) float64 { return gaps[(len(gaps)*percent+99)/100-1].Seconds() }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(quantile(50), "p50-s")
			b.ReportMetric(quantile(95), "p95-s")
			b.ReportMetric(quantile(100), "max-s")
			b.ReportMetric(worst.lost.Seconds(), "lost-s")
			b.ReportMetric(worst.double.Seconds(), "two-answer-s")
			b.ReportMetric(float64(worst.failed)/float64(len(gaps)), "failed/op")
		})
	}
}

package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"airlift/installer/clustertest/diagnosis"
)

// Time limits. Together they keep a test of ten nodes below a minute, also if nothing answers.
const (
	tries       = 6                      // of a datagram
	tryTime     = 600 * time.Millisecond // until the next one
	connectTime = 5 * time.Second        // Linux sends a SYN after 0, 1 and 3 s
	bulkTime    = 10 * time.Second
	bulkBytes   = 1 << 20
	runTime     = time.Minute // of a probe
	parallel    = 64
	steadyPause = 250 * time.Millisecond
	// settleTime is how long after the start of a probe a refused connection is tried again: kube-proxy refuses connections to a
	// Service whose pods it does not know yet. It writes its rules once a second, later on a busy host.
	settleTime = 8 * time.Second
	// clockTolerance is the largest difference of two clocks that is no finding. Certificates and Leases tolerate more; chrony
	// keeps hosts below a millisecond.
	clockTolerance = 2 * time.Second
)

// A run is one execution of a plan.
type run struct {
	Plan
	slots chan struct{}
	wg    sync.WaitGroup

	mu     sync.Mutex
	report Report
}

// Run executes a plan and prints the report.
func (p Plan) Run(ctx context.Context, out io.Writer) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	r := &run{Plan: p, slots: make(chan struct{}, parallel), report: Report{Node: p.Node, Host: p.Host, Nonce: p.Nonce, Observations: []diagnosis.Observation{}}}
	api, err := newAPI(p.CA)
	if err != nil {
		return err
	}
	steady, end := context.WithCancel(ctx)
	var steadily sync.WaitGroup
	losses := make([]Loss, len(p.Steady))
	for i, c := range p.Steady {
		steadily.Go(func() { losses[i] = Steadily(steady, c, func(ctx context.Context) error { return r.ask(ctx, api, c) }) })
	}
	if p.Host {
		r.host(ctx)
	}
	for _, peer := range p.Peers {
		for _, address := range peer.Pods {
			r.do(ctx, func() { r.pod(ctx, peer.Node, address) })
		}
		if p.Host {
			r.do(ctx, func() { r.hostTo(ctx, peer) })
		}
	}
	for _, c := range p.Checks {
		if c.How == "holders" {
			r.do(ctx, func() { r.saw(c.Kind, c.To, c.Via, r.holders(ctx, c, began)) })
			continue
		}
		r.do(ctx, func() {
			ctx, cancel := context.WithTimeout(ctx, 2*connectTime)
			defer cancel()
			err := r.ask(ctx, api, c)
			if err != nil && c.Kind != diagnosis.Policy && ctx.Err() == nil { // once more: a lost packet is no fault of the cluster
				err = r.ask(ctx, api, c)
			}
			for c.Kind != diagnosis.Policy && errors.Is(err, syscall.ECONNREFUSED) && time.Since(began) < settleTime && ctx.Err() == nil {
				pause(ctx, steadyPause)
				err = r.ask(ctx, api, c)
			}
			r.saw(c.Kind, c.To, c.Via, err)
		})
	}
	if !p.Host && p.Name != "" {
		r.do(ctx, func() { r.resolve(ctx) })
	}
	r.wg.Wait()
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(began.Add(time.Duration(p.SteadySeconds) * time.Second))):
	}
	end()
	steadily.Wait()
	if err := context.Cause(ctx); err != nil && time.Since(began) < runTime {
		return err
	}
	r.report.Losses, r.report.Took = losses, time.Since(began)
	line, err := json.Marshal(r.report)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", line)
	return err
}

// do runs f in parallel with others, a limited number at a time. What would begin after ctx has ended is not reported: it was not tried.
func (r *run) do(ctx context.Context, f func()) {
	r.wg.Go(func() {
		r.slots <- struct{}{}
		defer func() { <-r.slots }()
		if ctx.Err() == nil {
			f()
		}
	})
}

// saw adds an observation.
func (r *run) saw(kind diagnosis.Kind, to, via string, err error) {
	o := diagnosis.Observation{Kind: kind, From: r.Node, Place: diagnosis.FromPod, To: to, Via: via, OK: err == nil}
	if r.Host {
		o.Place = diagnosis.FromHost
	}
	if err != nil {
		o.Detail = short(err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Observations = append(r.report.Observations, o)
}

// pod asks the server of a node at an address: datagrams, a connection, and if these answer, the same with full packets.
func (r *run) pod(ctx context.Context, node, address string) {
	family := FamilyOf(address)
	target := net.JoinHostPort(address, fmt.Sprint(OpenPort))
	ahead, err := r.datagram(ctx, target, minPacket)
	kind := diagnosis.PodReach
	if r.Host {
		kind = diagnosis.HostPod
	}
	r.saw(kind, node, protocols[0]+family, err)
	if err == nil && !r.Host {
		r.clock(node, ahead)
	}
	tcpErr := r.connection(ctx, target, 0, connectTime)
	r.saw(kind, node, protocols[1]+family, tcpErr)
	if r.Host {
		return
	}
	if err == nil {
		mtu := mtuTo(target)
		size := mtu - headers(address)
		_, err := r.datagram(ctx, target, size)
		if err != nil {
			err = fmt.Errorf("packets of %d bytes get no answer: %w", mtu, err)
		}
		r.saw(diagnosis.PodLarge, node, family, err)
	}
	if tcpErr == nil {
		r.saw(diagnosis.PodBulk, node, family, r.connection(ctx, target, bulkBytes, bulkTime))
	}
}

// clock compares the clock of a node with the clock here.
func (r *run) clock(node string, ahead time.Duration) {
	if node == r.Node {
		return
	}
	var err error
	if ahead.Abs() > clockTolerance {
		word := "ahead of"
		if ahead < 0 {
			word = "behind"
		}
		err = fmt.Errorf("the clock of %s is %s %s the clock of %s", node, ahead.Abs().Round(time.Second/10), word, r.Node)
	}
	r.saw(diagnosis.Clock, node, "", err)
}

// FamilyOf returns the family of an address: "IPv4" or "IPv6".
func FamilyOf(address string) string {
	if a, err := netip.ParseAddr(address); err == nil && a.Is6() && !a.Is4In6() {
		return "IPv6"
	}
	return "IPv4"
}

// headers are the bytes of an IP and a UDP or ICMP header.
func headers(address string) int {
	if FamilyOf(address) == "IPv6" {
		return 40 + 8
	}
	return 20 + 8
}

// defaultMTU is Ethernet's.
const defaultMTU = 1500

// mtuTo returns the MTU of the interface through which packets to an address leave.
func mtuTo(target string) int {
	conn, err := net.Dial("udp", target) // sends nothing
	if err != nil {
		return defaultMTU
	}
	defer conn.Close()
	own := conn.LocalAddr().(*net.UDPAddr).IP
	interfaces, _ := net.Interfaces() // without them, the default
	for _, i := range interfaces {
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(own) && i.MTU < 1<<16 {
				return i.MTU
			}
		}
	}
	return defaultMTU
}

// Steadily asks again and again until ctx ends, and counts what was lost.
func Steadily(ctx context.Context, c Check, ask func(context.Context) error) Loss {
	l := Loss{Via: c.Via, To: c.To}
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, connectTime)
		err := ask(attempt)
		cancel()
		if ctx.Err() != nil && err != nil {
			break // it was interrupted
		}
		l.Sent++
		if err == nil && l.Lost == l.Sent-1 {
			l = Loss{Via: c.Via, To: c.To, Sent: 1} // what precedes the first answer is the start of what is asked
		}
		if err != nil {
			if l.Lost++; l.Error == "" {
				l.Error = short(err.Error())
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(steadyPause):
		}
	}
	return l
}

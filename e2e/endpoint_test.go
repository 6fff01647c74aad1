//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

const (
	virtual  = "10.77.0.100"
	balancer = "127.0.0.1:7443"
)

// TestEndpoint: three control planes and a worker, without a load balancer. The virtual address and the balancer survive
// what ends an API server.
func TestEndpoint(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-endpoint", Hosts: 4, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}})
	first, worker := s.Hosts[0], s.Hosts[3]
	planes := s.Hosts[:3]
	bare := map[*lab.Host]string{}
	for _, h := range s.Hosts {
		bare[h] = untouched(t, h)
	}
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"init and join", func(t *testing.T) {
			contains(t, install(t, first, 3, "init", "--control-plane-vip", "192.0.2.1"), "192.0.2.1", "hint: ")
			contains(t, install(t, first, 3, "init", "--control-plane-vip", worker.Addr.String()), worker.Addr.String(), "hint: ")
			same(t, bare[first], untouched(t, first))
			out := install(t, first, 0, "init", "--control-plane-vip", virtual, "--control-plane-balancer", "--upload-certs")
			m := regexp.MustCompile(`(?m)^\s*\./install (join ` + virtual + `:6443 .* --control-plane --certificate-key [0-9a-f]{64})$`).FindStringSubmatch(out)
			if m == nil {
				t.Fatal("no join command for a control plane")
			}
			join := strings.Fields(m[1])
			install(t, planes[1], 0, join...)
			install(t, planes[2], 0, join...)
			install(t, worker, 0, join[:len(join)-3]...)
			systemIsUp(t, s, 4)
			for _, h := range s.Hosts {
				contains(t, run(t, h, "cat", "/etc/kubernetes/kubelet.conf"), "server: https://"+balancer)
				contains(t, install(t, h, 0, "endpoint", "status"), balancer, "ready")
			}
			files := hostState(t, first)
			contains(t, install(t, first, 0, "init", "--control-plane-vip", virtual, "--control-plane-balancer"), "Nothing was changed")
			same(t, files, hostState(t, first))
			contains(t, install(t, first, 0, "endpoint", "apply", "--control-plane-vip", virtual), "has the cluster's endpoint")
			holder(t, planes)
		}},
		{"the processes are small", func(t *testing.T) {
			for _, h := range s.Hosts {
				t.Logf("%s: %s", h.Name, run(t, h, "sh", "-c", "pid=$(systemctl show -P MainPID airlift-endpoint); grep -E 'VmRSS|RssAnon|RssFile' /proc/$pid/status; cut -d' ' -f14,15 /proc/$pid/stat; sleep 10; cut -d' ' -f14,15 /proc/$pid/stat"))
			}
		}},
		{"status and doctor", func(t *testing.T) { showsEndpoint(t, s, planes, worker) }},
		{"an API server is killed", func(t *testing.T) {
			h := holder(t, planes)
			outages(t, worker, func() { run(t, h, "pkill", "-KILL", "kube-apiserver"); time.Sleep(10 * time.Second) })
			systemIsUp(t, s, 4)
		}},
		{"an API server hangs", func(t *testing.T) {
			h := holder(t, planes)
			outages(t, worker, func() {
				run(t, h, "pkill", "-STOP", "kube-apiserver")
				time.Sleep(15 * time.Second)
				run(t, h, "pkill", "-CONT", "kube-apiserver")
			})
			systemIsUp(t, s, 4)
		}},
		{"the agent is killed, and stopped", func(t *testing.T) {
			h := holder(t, planes)
			outages(t, worker, func() {
				run(t, h, "systemctl", "kill", "-s", "KILL", "airlift-endpoint")
				time.Sleep(8 * time.Second)
			})
			h = holder(t, planes)
			outages(t, worker, func() {
				run(t, h, "systemctl", "stop", "airlift-endpoint")
				time.Sleep(5 * time.Second)
				run(t, h, "systemctl", "start", "airlift-endpoint")
			})
		}},
		{"the address is given away", func(t *testing.T) {
			h := holder(t, planes)
			outages(t, worker, func() { contains(t, install(t, h, 0, "endpoint", "handover"), "Another control plane") })
			if holder(t, planes) == h {
				t.Error("it is still there")
			}
		}},
		{"a host loses its power", func(t *testing.T) {
			h := holder(t, planes)
			outages(t, worker, func() {
				if err := h.PowerCut(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(20 * time.Second)
			})
			if err := h.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			systemIsUp(t, s, 4)
			holder(t, planes)
		}},
		{"all hosts lose their power", func(t *testing.T) {
			for _, h := range s.Hosts {
				if err := h.PowerCut(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for _, h := range s.Hosts {
				if err := h.Boot(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			systemIsUp(t, s, 4)
			holder(t, planes)
		}},
		{"reset removes it", func(t *testing.T) {
			for i := len(s.Hosts) - 1; i >= 0; i-- {
				install(t, s.Hosts[i], 0, "reset", "--force")
				same(t, bare[s.Hosts[i]], untouched(t, s.Hosts[i]))
			}
		}},
		{"no packet tried to leave", func(t *testing.T) {
			counts, err := s.Escapes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if counts.Escaped != 0 || counts.Inside == 0 {
				t.Errorf("%d packets tried to leave: %v", counts.Escaped, counts.Offenders)
			}
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnoseEndpoint(t, s)
			t.FailNow()
		}
	}
}

// diagnoseEndpoint logs what the endpoint's services did.
func diagnoseEndpoint(t *testing.T, s *site.Site) {
	for _, h := range s.Hosts {
		out, err := h.Output(context.Background(), "sh", "-c", "journalctl -u airlift-endpoint --no-pager -n 40 -o short-precise | cut -c1-300; "+site.Installer+" endpoint status; ip -br addr show eth0")
		t.Logf("%s: %v\n%s", h.Name, err, out)
	}
	diagnose(t, s)
}

// holder waits until exactly one control plane has the virtual address, and returns it.
func holder(t *testing.T, planes []*lab.Host) *lab.Host {
	t.Helper()
	return holderOf(t, planes, virtual)
}

// outages does something, and meanwhile requests /readyz every 100 ms, each over a new connection, as the processes of a
// node do through its balancer, and others through the virtual address. It logs how many requests failed, and the
// longest time without an answer, and fails if one has no answer for 30 s, within which the kubelet's node lease does
// not expire.
func outages(t *testing.T, from *lab.Host, do func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	probes := map[string]*probe{}
	for _, address := range []string{balancer, virtual + ":6443"} {
		probes[address] = startProbe(ctx, from, address)
	}
	do()
	stop()
	for address, p := range probes {
		<-p.done
		t.Logf("%-17s %d of %d requests failed, longest time without an answer %s", address, p.failed, p.sent, p.longest.Round(10*time.Millisecond))
		if p.longest > 30*time.Second || p.sent == 0 {
			t.Errorf("%s was away for %s", address, p.longest)
		}
	}
}

const (
	probeInterval = 100 * time.Millisecond
	// probeTimeout is the time after which a request has failed.
	probeTimeout = 2 * time.Second
)

// A probe counts requests. Its figures can be read when it is done.
type probe struct {
	sent, failed int
	longest      time.Duration // between two good answers
	errors       []string      // the first ones
	good         time.Time     // the last good answer
	mu           sync.Mutex
	done         chan struct{}
}

// startProbe requests /readyz of an address from a host, each time over a new connection.
func startProbe(ctx context.Context, from *lab.Host, address string) *probe {
	return startRequests(ctx, newClient(from.Dial), "https://"+address+"/readyz")
}

// startRequests sends a request in each interval, also while former ones have no answer, until ctx ends.
func startRequests(ctx context.Context, client *http.Client, url string) *probe {
	p := &probe{good: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		var requests sync.WaitGroup
		for tick := time.Tick(probeInterval); ctx.Err() == nil; {
			requests.Go(func() { p.add(request(client, url)) })
			select {
			case <-tick:
			case <-ctx.Done():
			}
		}
		p.mu.Lock()
		p.longest = max(p.longest, time.Since(p.good))
		p.mu.Unlock()
		requests.Wait()
	}()
	return p
}

// add records the result of a request.
func (p *probe) add(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent++
	if err != nil {
		p.failed++
		if len(p.errors) < 10 {
			p.errors = append(p.errors, time.Now().Format("15:04:05.000 ")+err.Error())
		}
		return
	}
	p.longest = max(p.longest, time.Since(p.good))
	p.good = time.Now()
}

// request expects the status 200.
func request(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// A dialer connects to a numeric address from somewhere.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newClient returns a client that makes a new connection for each request, and trusts every server.
func newClient(dial dialer) *http.Client {
	return &http.Client{Timeout: probeTimeout, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, TLSHandshakeTimeout: probeTimeout,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			return dial(ctx, network, address)
		},
	}}
}

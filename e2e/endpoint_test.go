//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
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
			holder(t, planes)
		}},
		{"the processes are small", func(t *testing.T) {
			for _, h := range s.Hosts {
				t.Logf("%s: %s", h.Name, run(t, h, "sh", "-c", "grep -E 'VmRSS|RssAnon|RssFile' /proc/$(systemctl show -P MainPID airlift-endpoint)/status; systemctl show -P CPUUsageNSec airlift-endpoint"))
			}
		}},
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

type probe struct {
	sent, failed int
	longest      time.Duration
	done         chan struct{}
}

func startProbe(ctx context.Context, from *lab.Host, address string) *probe {
	p := &probe{done: make(chan struct{})}
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return from.Dial(ctx, network, address)
		},
	}}
	go func() {
		defer close(p.done)
		last := time.Now()
		for ctx.Err() == nil {
			began := time.Now()
			p.sent++
			resp, err := client.Get("https://" + address + "/readyz")
			if err == nil {
				resp.Body.Close()
			}
			if err == nil && resp.StatusCode == http.StatusOK {
				p.longest = max(p.longest, time.Since(last))
				last = time.Now()
			} else {
				p.failed++
			}
			select {
			case <-time.After(100*time.Millisecond - time.Since(began)):
			case <-ctx.Done():
			}
		}
		p.longest = max(p.longest, time.Since(last))
	}()
	return p
}

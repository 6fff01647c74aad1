//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/images/release"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// Addresses of the pool: no host of the lab has them.
const pool4, web4, asked4 = "10.77.0.200-10.77.0.202", "10.77.0.200", "10.77.0.202"

// webServices are a server on each node, and Services of each kind for it.
const webServices = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      containers:
      - {name: web, image: %s, imagePullPolicy: Never, args: [netexec, --http-port=8080]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: asked, annotations: {airlift.dev/load-balancer-address: 10.77.0.202}}
spec: {type: LoadBalancer, loadBalancerClass: airlift.dev/load-balancer, allocateLoadBalancerNodePorts: false, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {type: LoadBalancer, loadBalancerClass: example.com/other, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// TestLoadBalancer: Services get addresses, and a host in no cluster reaches them. It measures for how long it does not, after a power
// cut of the node that answers, and while that node is drained.
func TestLoadBalancer(t *testing.T) {
	virtual := []netip.Addr{netip.MustParseAddr(web4), netip.MustParseAddr("10.77.0.201"), netip.MustParseAddr(asked4)}
	s := up(t, lab.Options{Name: "e2e-lb", Hosts: 4, Virtual: virtual})
	nodes, client := s.Hosts[:3], s.Hosts[3]
	control := nodes[0]
	path := filepath.Join(t.TempDir(), "install")
	build := exec.CommandContext(t.Context(), "go", "run", "./scripts/buildbundle", "--version", version, "--compression", "fastest", "--output", path, "--addon", release.LoadBalancer)
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the bundle: %v\n%s", err, out)
	}
	before := map[*lab.Host]string{}
	for _, h := range nodes {
		if _, err := h.CopyIn(t.Context(), path, site.Installer, 0o755); err != nil {
			t.Fatal(err)
		}
		before[h] = untouched(t, h)
	}
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	ingress := func(service string) string {
		return kubectl(t, s, "get", "service", service, "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	}
	has := func(t *testing.T, service, want string) {
		t.Helper()
		eventually(t, time.Minute, func() string {
			if got := ingress(service); got != want {
				return fmt.Sprintf("Service %s has %q, want %q\n%s", service, got, want, kubectl(t, s, "describe", "service", service))
			}
			return ""
		})
	}
	event := func(t *testing.T, service, want string) {
		t.Helper()
		eventually(t, time.Minute, func() string {
			if out := kubectl(t, s, "describe", "service", service); !strings.Contains(out, want) {
				return out
			}
			return ""
		})
	}
	answers := func(t *testing.T, address string) {
		t.Helper()
		eventually(t, time.Minute, func() string {
			r, err := newClient(client.Dial).Get("http://" + address + "/hostname")
			if err != nil {
				return err.Error()
			}
			_ = r.Body.Close()
			return ""
		})
	}
	// speaker is the node with the hardware address that the kernel of the client has for an address.
	speaker := func(t *testing.T, address string) (at *lab.Host) {
		t.Helper()
		answers(t, address)
		_, rest, _ := strings.Cut(run(t, client, "ip", "neighbour", "show", address), "lladdr ")
		mac, _, _ := strings.Cut(rest, " ")
		for _, h := range nodes {
			if out, err := h.Output(t.Context(), "ip", "-brief", "link", "show", "eth0"); err == nil && mac != "" && strings.Contains(out, " "+mac+" ") {
				at = h
			}
		}
		if at == nil {
			t.Fatalf("no node has the hardware address %q", mac)
		}
		return at
	}
	// measure sends a request every 100 ms, and returns the longest time without an answer.
	measure := func(t *testing.T, address string, seconds int, during func()) time.Duration {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		p := startRequests(ctx, newClient(client.Dial), "http://"+address+"/hostname")
		time.Sleep(2 * time.Second)
		during()
		time.Sleep(time.Duration(seconds) * time.Second)
		stop()
		<-p.done
		t.Logf("%s: %d of %d requests failed, longest time without an answer %s", address, p.failed, p.sent, p.longest.Round(10*time.Millisecond))
		return p.longest
	}
	nothing := func(t *testing.T, h *lab.Host) {
		t.Helper()
		if out := run(t, h, "ip", "address", "show"); strings.Contains(out, "10.77.0.20") {
			t.Errorf("%s has an address of a Service:\n%s", h.Name, out)
		}
	}
	pools := func(t *testing.T, text string) {
		t.Helper()
		if err := s.Apply(t.Context(), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pools, namespace: load-balancer}\ndata: {default: \""+text+"\"}\n"); err != nil {
			t.Fatal(err)
		}
	}
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"three nodes with the add-on, which does nothing without pools", func(t *testing.T) {
			out := install(t, control, 0, "init")
			join, err := site.JoinArgs(out)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range nodes[1:] {
				install(t, h, 0, join...)
			}
			kubectl(t, s, "rollout", "status", "daemonset/load-balancer", "-n", "load-balancer", "--timeout=120s")
			if err := s.Apply(t.Context(), fmt.Sprintf(webServices, image)); err != nil {
				t.Fatal(err)
			}
			kubectl(t, s, "rollout", "status", "daemonset/web", "--timeout=120s")
			time.Sleep(10 * time.Second)
			if got := ingress("web") + ingress("asked") + ingress("other"); got != "" {
				t.Errorf("without pools: %s", got)
			}
		}},
		{"pools that overlap the cluster are refused, and good ones are used", func(t *testing.T) {
			pools(t, control.Addr.String())
			eventually(t, time.Minute, func() string {
				out := kubectl(t, s, "describe", "configmap", "pools", "-n", "load-balancer")
				if !strings.Contains(out, "the address of node "+control.Name) {
					return out
				}
				return ""
			})
			pools(t, pool4)
			has(t, "web", web4)
			has(t, "asked", asked4)
			answers(t, web4)
			answers(t, asked4)
			event(t, "web", "answers for "+web4)
			if got := ingress("other"); got != "" {
				t.Errorf("the Service of another controller got %s", got)
			}
			for _, h := range nodes {
				nothing(t, h)
			}
		}},
		{"airlift test asks for an address, and names what fails", func(t *testing.T) {
			found := func(want string, parts ...string) {
				t.Helper()
				r := tested(t, control)
				if len(r.Findings) != 1 || r.Findings[0].Name != want {
					t.Fatalf("want %s: %+v", want, r.Findings)
				}
				for _, part := range parts {
					if f := r.Findings[0]; !strings.Contains(f.Text+"\n"+f.Fix, part) {
						t.Errorf("%q is not in %q, %q", part, f.Text, f.Fix)
					}
				}
			}
			r := tested(t, control)
			if !r.Passed || len(r.Addresses) != 1 || r.Addresses[0].Address != "10.77.0.201" || !strings.Contains(strings.Join(r.Notes, "\n"), "2 of 2 other nodes in its network heard that") {
				t.Fatalf("%+v", r)
			}
			t.Log(install(t, control, 0, "test"))

			pools(t, control.Addr.String())
			found("address-pools", "the address of node "+control.Name)
			if out := run(t, control, "sh", "-c", "/root/install status || true"); !strings.Contains(out, "the pools of the load balancer are refused") {
				t.Error(out)
			}
			pools(t, pool4)

			run(t, client, "ip", "address", "add", "10.77.0.201/32", "dev", "eth0")
			mac := strings.Fields(run(t, client, "ip", "-brief", "link", "show", "eth0"))[2] // sysfs has the interfaces of the machine
			found("address-taken", "another host has 10.77.0.201", mac)
			run(t, client, "ip", "address", "delete", "10.77.0.201/32", "dev", "eth0")

			// The speakers are stopped before the Service of the test gets its address: nobody decides.
			for _, h := range nodes {
				run(t, h, "pkill", "-STOP", "-f", "airlift load-balancer")
			}
			found("address-decider", "no node decides")
			for _, h := range nodes {
				run(t, h, "pkill", "-CONT", "-f", "airlift load-balancer")
			}
			has(t, "web", web4)
			answers(t, web4)
		}},
		{"an exhausted pool is an event", func(t *testing.T) {
			kubectl(t, s, "create", "service", "loadbalancer", "third", "--tcp=80:8080")
			has(t, "third", "10.77.0.201")
			kubectl(t, s, "create", "service", "loadbalancer", "fourth", "--tcp=80:8080")
			event(t, "fourth", "has no free IPv4 address")
			kubectl(t, s, "delete", "service", "third")
			has(t, "fourth", "10.77.0.201")
			kubectl(t, s, "delete", "service", "fourth")
		}},
		{"the power of the node that answers is cut", func(t *testing.T) {
			at := speaker(t, web4)
			if at == control { // the API goes with it: a drained node gives the address to another one
				kubectl(t, s, "cordon", at.Name)
				eventually(t, time.Minute, func() string {
					if at = speaker(t, web4); at == control {
						return "it still answers"
					}
					return ""
				})
			}
			if longest := measure(t, web4, 20, func() {
				if err := at.PowerCut(t.Context()); err != nil {
					t.Fatal(err)
				}
			}); longest > 10*time.Second {
				t.Errorf("no answer for %s", longest)
			}
			if now := speaker(t, web4); now == at {
				t.Errorf("%s still answers", at.Name)
			}
			if err := at.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			kubectl(t, s, "wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
			kubectl(t, s, "uncordon", control.Name)
		}},
		{"the node that answers is drained", func(t *testing.T) {
			at := speaker(t, web4)
			measure(t, web4, 15, func() { kubectl(t, s, "drain", at.Name, "--ignore-daemonsets", "--delete-emptydir-data") })
			eventually(t, time.Minute, func() string {
				run(t, client, "ip", "neighbour", "flush", web4)
				if speaker(t, web4) == at {
					return "the drained node still answers"
				}
				return ""
			})
			kubectl(t, s, "uncordon", at.Name)
		}},
		{"a Service that is deleted or has another type loses its address", func(t *testing.T) {
			kubectl(t, s, "delete", "service", "asked")
			kubectl(t, s, "patch", "service", "web", "-p", `{"spec":{"type":"ClusterIP"}}`)
			for _, address := range []string{web4, asked4} {
				eventually(t, time.Minute, func() string {
					run(t, client, "ip", "neighbour", "flush", address)
					if r, err := newClient(client.Dial).Get("http://" + address + "/"); err == nil {
						_ = r.Body.Close()
						return "it answers"
					}
					if out := run(t, client, "ip", "neighbour", "show", address); strings.Contains(out, "lladdr") {
						return out
					}
					return ""
				})
			}
			kubectl(t, s, "patch", "service", "web", "-p", `{"spec":{"type":"LoadBalancer"}}`)
			has(t, "web", web4)
		}},
		{"switched off, nothing is left", func(t *testing.T) {
			kubectl(t, s, "delete", "configmap", "pools", "-n", "load-balancer")
			has(t, "web", "")
			kubectl(t, s, "delete", "namespace", "load-balancer", "--timeout=60s")
			for _, h := range nodes {
				nothing(t, h)
				if out, _ := h.Output(t.Context(), "pgrep", "-f", "airlift load-balancer"); out != "" {
					t.Errorf("%s still has the process %s", h.Name, out)
				}
			}
			for _, h := range slices.Backward(nodes) {
				install(t, h, 0, "reset", "--force")
				same(t, before[h], untouched(t, h))
			}
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/images/release"
	"airlift/installer/clustertest"
	"airlift/installer/clustertest/diagnosis"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// tested runs the test of the cluster on a control plane.
func tested(t *testing.T, h *lab.Host) (r clustertest.Result) {
	t.Helper()
	out, err := h.Output(t.Context(), "sh", "-c", "/root/install test -o json 2>/root/test.log; code=$?; test $code -le 1 || cat /root/test.log; exit 0")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v:\n%s\n%s", err, out, run(t, h, "cat", "/root/test.log"))
	}
	for _, f := range r.Findings {
		t.Logf("%s on %v: %s\n  seen: %q\n  type: %s (explains %d)", f.Name, f.Nodes, f.Text, f.Evidence, f.Fix, f.Explains)
	}
	t.Logf("%d findings after %.1f s, notes: %q, losses: %+v", len(r.Findings), r.Seconds, r.Notes, r.Losses)
	if left := kubectlAt(t, h, "get", "namespace", clustertest.Namespace, "--ignore-not-found", "-o", "name"); left != "" {
		t.Errorf("the test has left %s", left)
	}
	return r
}

// A clusterFault is put into the cluster and removed again.
type clusterFault struct {
	name  string
	put   func(t *testing.T)
	heal  func(t *testing.T)
	want  string   // name of the finding
	nodes []string // that it names; the text must have them
	text  string   // in the text or in the command
}

// TestClusterTest puts faults into a cluster of a control plane and two workers, one after the other. The test of the cluster names each of
// them, and passes again when it is removed.
func TestClusterTest(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-clustertest", Hosts: 3})
	plane, w1, w2 := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	join, err := site.JoinArgs(install(t, plane, 0, "init", "--embedded-registry"))
	if err != nil {
		t.Fatal(err)
	}
	install(t, w1, 0, join...)
	install(t, w2, 0, join...)
	systemIsUp(t, s, 3)
	kubectl(t, s, "-n", "kube-system", "rollout", "restart", "deployment/coredns") // its pods are on the control plane, which was alone
	kubectl(t, s, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout", "2m")

	sh := func(h *lab.Host, script string) func(t *testing.T) {
		return func(t *testing.T) { t.Helper(); run(t, h, "sh", "-ec", script) }
	}
	cidr := func(h *lab.Host) string {
		return strings.TrimSpace(kubectl(t, s, "get", "node", h.Name, "-o", "jsonpath={.spec.podCIDR}"))
	}
	restartFlannel := func(h *lab.Host) func(t *testing.T) {
		return func(t *testing.T) {
			kubectl(t, s, "-n", "kube-flannel", "delete", "pod", "-l", "app=flannel", "--field-selector", "spec.nodeName="+h.Name)
			kubectl(t, s, "-n", "kube-flannel", "rollout", "status", "daemonset/kube-flannel-ds", "--timeout", "2m")
			systemIsUp(t, s, 3)
		}
	}
	var dnsNode, dnsIP string
	eventually(t, 2*time.Minute, func() string { // the pods of init are replaced when there are other nodes
		list := strings.Fields(kubectl(t, s, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns", "-o", `jsonpath={range .items[*]}{.spec.nodeName}={.status.podIP} {end}`))
		if len(list) != 2 {
			return fmt.Sprint(list)
		}
		dnsNode, dnsIP, _ = strings.Cut(list[0], "=")
		if other, _, _ := strings.Cut(list[1], "="); other == dnsNode || dnsIP == "" {
			return fmt.Sprint(list)
		}
		return ""
	})
	dnsHost := map[string]*lab.Host{plane.Name: plane, w1.Name: w1, w2.Name: w2}[dnsNode]
	inDNSPod := func(rule string) string {
		return "for n in /run/netns/cni-*; do if ip -n ${n##*/} -o address | grep -q ' " + dnsIP + "/'; then ip netns exec ${n##*/} iptables " + rule + "; exit 0; fi; done; exit 1"
	}
	drop := func(h *lab.Host, rule string) (put, heal func(t *testing.T)) {
		return sh(h, "iptables -I INPUT "+rule+" -j DROP"), sh(h, "iptables -D INPUT "+rule+" -j DROP")
	}
	vxlanFrom, vxlanFromEnd := drop(w2, "-p udp --dport 8472 -s "+w1.Addr.String())
	vxlan, vxlanEnd := drop(w2, "-p udp --dport 8472")
	// The kubelet keeps its connection: without it, the node would be not Ready after 40 s.
	api, apiEnd := drop(plane, "-p tcp --dport 6443 -m conntrack --ctstate NEW -s "+w2.Addr.String())
	pool := strings.TrimSuffix(cidr(w1), "0/24")
	ready := func(h *lab.Host, want string) {
		eventually(t, 3*time.Minute, func() string {
			if got := kubectl(t, s, "get", "node", h.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); got != want {
				return h.Name + " is Ready: " + got
			}
			return ""
		})
	}
	faults := []clusterFault{
		{"the MTU of a link is too small", func(t *testing.T) { setMTU(t, w2, 1400) }, func(t *testing.T) { setMTU(t, w2, 1500) },
			"mtu-hosts", []string{w2.Name}, "MTU"},
		{"vxlan is blocked in one direction", vxlanFrom, vxlanFromEnd, "tunnel", []string{w1.Name, w2.Name}, w1.Name + " -> " + w2.Name + ": pods cannot reach each other: hosts can, UDP 8472 (vxlan) gets no answer"},
		{"vxlan to a node is blocked", vxlan, vxlanEnd, "tunnel", []string{w2.Name}, "all other nodes -> " + w2.Name},
		{"a DNS pod is dead", sh(dnsHost, inDNSPod("-I INPUT -p udp --dport 53 -j DROP")), sh(dnsHost, inDNSPod("-D INPUT -p udp --dport 53 -j DROP")),
			"dns-pod", []string{dnsNode}, "DNS pod"},
		{"CoreDNS is scaled to 0", func(t *testing.T) {
			kubectl(t, s, "-n", "kube-system", "scale", "deployment", "coredns", "--replicas", "0")
			kubectl(t, s, "-n", "kube-system", "wait", "--for=delete", "pod", "-l", "k8s-app=kube-dns", "--timeout=2m")
		}, func(t *testing.T) {
			kubectl(t, s, "-n", "kube-system", "scale", "deployment", "coredns", "--replicas", "2")
			kubectl(t, s, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout", "2m")
		}, "dns-none", nil, "scale deployment coredns"},
		{"kube-proxy stands still", sh(w2, "pkill -STOP -x kube-proxy"), sh(w2, "pkill -CONT -x kube-proxy"), "kube-proxy", []string{w2.Name}, "kube-proxy"},
		// The plugin of the pod network sets net.ipv4.ip_forward to 1 at the start of each pod, and so of the test.
		{"forwarding is off", sh(w1, "sysctl -w net/ipv4/conf/flannel.1/forwarding=0"), sh(w1, "sysctl -w net/ipv4/conf/flannel.1/forwarding=1"),
			"forwarding", []string{w1.Name}, "sysctl -w net/ipv4/conf/flannel.1/forwarding=1"},
		{"a route is deleted", sh(w1, "ip route delete "+cidr(w2)), restartFlannel(w1), "route", []string{w1.Name}, w1.Name + " -> " + w2.Name},
		{"a route leads past the tunnel", sh(w1, "ip route replace "+cidr(w2)+" dev eth0"), restartFlannel(w1), "route", []string{w1.Name}, "eth0"},
		{"the addresses of a node are used", sh(w1, "cd /var/lib/cni/networks/cbr0; for i in $(seq 2 254); do test -e "+pool+"$i || printf fault >"+pool+"$i; done"),
			sh(w1, "cd /var/lib/cni/networks/cbr0; grep -lx fault "+pool+"* | xargs rm"), "address-range-full", []string{w1.Name}, "/var/lib/cni/networks/cbr0"},
		{"an API server is blocked for a node", api, apiEnd, "api-server", []string{plane.Name}, w2.Name},
		{"the embedded registry is stopped", sh(plane, "systemctl stop airlift-registry"), sh(plane, "systemctl start airlift-registry; sleep 2"), "registry", []string{plane.Name}, "systemctl restart airlift-registry"},
		{"the CNI configuration is lost", func(t *testing.T) { sh(w2, "rm /etc/cni/net.d/10-flannel.conflist")(t); ready(w2, "False") },
			func(t *testing.T) { restartFlannel(w2)(t); ready(w2, "True") }, "node-not-ready", []string{w2.Name}, "delete pod -l app=flannel --field-selector spec.nodeName=" + w2.Name},
		{"the command airlift is missing", sh(w2, "mv /usr/local/bin/airlift /root/airlift"), sh(w2, "mv /root/airlift /usr/local/bin/airlift"), "command-missing", []string{w2.Name}, "no command airlift"},
		{"a host is cut off", func(t *testing.T) {
			if err := w1.Unplug(t.Context()); err != nil {
				t.Fatal(err)
			}
			ready(w1, "Unknown")
		}, func(t *testing.T) {
			if err := w1.Plug(t.Context()); err != nil {
				t.Fatal(err)
			}
			ready(w1, "True")
		}, "node-not-ready", []string{w1.Name}, "no other host reaches it"},
	}
	passes := func(t *testing.T) {
		t.Helper()
		var r clustertest.Result
		for range 3 { // what was repaired may need a moment
			if r = tested(t, plane); r.Passed {
				return
			}
			time.Sleep(10 * time.Second)
		}
		t.Fatalf("the cluster does not pass: %d findings", len(r.Findings))
	}
	stages := []stage{{"the cluster passes", func(t *testing.T) {
		passes(t)
		t.Log(install(t, plane, 0, "test"))
	}}}
	for _, f := range faults {
		stages = append(stages, stage{f.name, func(t *testing.T) {
			f.put(t)
			r := tested(t, plane)
			f.heal(t)
			if len(r.Findings) == 0 {
				t.Fatal("nothing was found")
			}
			first := r.Findings[0]
			if first.Name != f.want || strings.Join(first.Nodes, " ") != strings.Join(f.nodes, " ") || !strings.Contains(first.Text+"\n"+first.Fix, f.text) {
				t.Errorf("%s on %v, want %s on %v with %q", first.Name, first.Nodes, f.want, f.nodes, f.text)
			}
			if len(r.Findings) > 1 {
				t.Errorf("one fault has %d findings", len(r.Findings))
			}
			if r.Seconds > 120 {
				t.Errorf("it took %.0f s", r.Seconds)
			}
			passes(t)
		}})
	}
	stages = append(stages, stage{"a killed test leaves nothing to the next one, and two do not run at once", func(t *testing.T) {
		run(t, plane, "sh", "-c", "/root/install test >/dev/null 2>&1 & sleep 6; kill -9 $!")
		contains(t, kubectl(t, s, "get", "namespace", clustertest.Namespace, "-o", "name"), clustertest.Namespace)
		out, err := plane.Output(t.Context(), "sh", "-c", "/root/install test >/root/first.log 2>&1 & sleep 20; /root/install test 2>&1; echo code $?; wait $!; cat /root/first.log")
		if err != nil {
			t.Fatal(err)
		}
		t.Log(out)
		contains(t, out, "another test of this cluster runs: on "+plane.Name, "code 9", "The cluster passed")
		run(t, plane, "sh", "-c", "/root/install test >/root/first.log 2>&1 & pid=$!; sleep 6; kill -TERM $pid; wait $pid; test $? -eq 130")
		if left := kubectl(t, s, "get", "namespace", clustertest.Namespace, "--ignore-not-found", "-o", "name"); left != "" {
			t.Errorf("SIGTERM has left %s", left)
		}
	}})
	inOrder(t, s, stages)
}

// setMTU sets the MTU of the switch at a host.
func setMTU(t *testing.T, h *lab.Host, bytes int) {
	t.Helper()
	if err := h.SetMTU(t.Context(), bytes); err != nil {
		t.Fatal(err)
	}
}

// TestClusterTestMany: a cluster of ten nodes passes. The time is for docs/test.md.
func TestClusterTestMany(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-clustertestmany", Hosts: 10})
	plane, workers := s.Hosts[0], s.Hosts[1:]
	join, err := site.JoinArgs(install(t, plane, 0, "init", "--embedded-registry"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			if out, err := site.Install(t.Context(), w, io.Discard, join...); err != nil {
				t.Errorf("%s: %v\n%s", w.Name, err, out)
			}
		})
	}
	all.Wait()
	systemIsUp(t, s, len(s.Hosts))
	for range 2 {
		r := tested(t, plane)
		t.Logf("%d nodes: %v", len(r.Nodes), r.Counts)
		if !r.Passed {
			t.Error("it does not pass")
		}
	}
}

// TestClusterTestFamilies: a dual-stack cluster with a default StorageClass passes, and its volume is written. A fault of IPv6 alone is named.
func TestClusterTestFamilies(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-ctest-dual", Hosts: 2})
	plane, worker := s.Hosts[0], s.Hosts[1]
	volumes := slices.Contains(addOnsOfRig(t), release.LocalPathStorage)
	if volumes {
		path := filepath.Join(t.TempDir(), "install")
		buildBundle(t, path, "--addon", release.LocalPathStorage)
		for _, h := range s.Hosts {
			if _, err := h.CopyIn(t.Context(), path, site.Installer, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(t, plane, "ip", "address", "add", "fd77::11/64", "dev", "eth0", "nodad")
	run(t, worker, "ip", "address", "add", "fd77::12/64", "dev", "eth0", "nodad")
	join, err := site.JoinArgs(install(t, plane, 0, "init", "--service-cidr", "10.96.0.0/16,fd00:10:96::/112", "--pod-network-cidr", "10.244.0.0/16,fd00:10:244::/56"))
	if err != nil {
		t.Fatal(err)
	}
	install(t, worker, 0, join...)
	systemIsUp(t, s, 2)
	passes := func(t *testing.T) {
		var r clustertest.Result
		for range 3 { // pods of the add-on may still start
			if r = tested(t, plane); r.Passed {
				break
			}
			time.Sleep(10 * time.Second)
		}
		t.Logf("%v", r.Counts)
		if written := slices.Contains(r.Counts, clustertest.Count{Kind: diagnosis.Volume, Passed: 1}); !r.Passed || written != volumes {
			t.Fatalf("passed: %t, a volume was written: %t, want %t", r.Passed, written, volumes)
		}
	}
	inOrder(t, s, []stage{
		{"the cluster passes", passes},
		{"vxlan over IPv6 is blocked", func(t *testing.T) {
			run(t, worker, "ip6tables", "-I", "INPUT", "-p", "udp", "--dport", "8472", "-j", "DROP")
			r := tested(t, plane)
			run(t, worker, "ip6tables", "-D", "INPUT", "-p", "udp", "--dport", "8472", "-j", "DROP")
			if len(r.Findings) != 1 || r.Findings[0].Name != "tunnel" {
				t.Fatalf("%d findings, want one: tunnel", len(r.Findings))
			}
			if seen := strings.Join(r.Findings[0].Evidence, "\n"); !strings.Contains(seen, "IPv6") || strings.Contains(seen, "IPv4") {
				t.Errorf("seen: %s", seen)
			}
		}},
		{"it passes again", passes},
	})
}

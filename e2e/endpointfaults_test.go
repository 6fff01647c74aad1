//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// A hostFault is what happens to the host that has the address.
type hostFault struct {
	name string
	// before prepares the cluster, after lets the host forget the fault; nil if there is nothing to do. Neither is measured.
	before, after func(t *testing.T, l *endpointLab, h *lab.Host)
	begin, end    func(t *testing.T, l *endpointLab, h *lab.Host)
	// apart: nothing that the host sends arrives, so that another host may have the address too.
	apart bool
	// off: the host has no address.
	off bool
}

// hostFaults are the faults in the order of the table.
func hostFaults(lasts time.Duration) []hostFault {
	nothing := func(*testing.T, *endpointLab, *lab.Host) {}
	signal := func(args ...string) func(*testing.T, *endpointLab, *lab.Host) {
		return func(t *testing.T, _ *endpointLab, h *lab.Host) { attempt(t, h, append([]string{"pkill"}, args...)...) }
	}
	during := " for " + lasts.String()
	return []hostFault{
		{name: "none", begin: nothing, end: nothing},
		{name: "the host loses its power", apart: true, off: true,
			begin: func(t *testing.T, _ *endpointLab, h *lab.Host) { succeeds(t, h.PowerCut(t.Context())) },
			end:   func(t *testing.T, _ *endpointLab, h *lab.Host) { succeeds(t, h.Boot(t.Context())) }},
		{name: "the API server is killed", begin: signal("-KILL", "-x", "kube-apiserver"), end: nothing, after: restartKubelet},
		{name: "the API server is stopped" + during, begin: signal("-STOP", "-x", "kube-apiserver"), end: signal("-CONT", "-x", "kube-apiserver")},
		{name: "etcd is killed", begin: signal("-KILL", "-x", "etcd"), end: nothing, after: restartKubelet},
		{name: "etcd is stopped" + during, begin: signal("-STOP", "-x", "etcd"), end: signal("-CONT", "-x", "etcd")},
		{name: "etcd's disk is full" + during, before: defragment, begin: fillDisk, end: freeDisk, after: forgetFullDisk},
		{name: "the cable is pulled" + during, apart: true,
			begin: func(t *testing.T, _ *endpointLab, h *lab.Host) { succeeds(t, h.Unplug(t.Context())) },
			end:   plug},
		{name: "the host sends, but nothing arrives" + during,
			begin: func(t *testing.T, l *endpointLab, h *lab.Host) {
				succeeds(t, l.Block(t.Context(), l.except(h), []*lab.Host{h}))
			},
			end: unblock},
		{name: "the host reaches no other control plane" + during,
			begin: func(t *testing.T, l *endpointLab, h *lab.Host) {
				others := l.otherPlanes(h)
				succeeds(t, l.Block(t.Context(), []*lab.Host{h}, others))
				succeeds(t, l.Block(t.Context(), others, []*lab.Host{h}))
			},
			end: unblock},
	}
}

// reconnected is how long etcd's members need until each is connected to each again: a member notices after
// five seconds that a connection is dead. Without such a connection, the next fault of another host would leave no
// majority.
const reconnected = 12 * time.Second

func plug(t *testing.T, _ *endpointLab, h *lab.Host) {
	succeeds(t, h.Plug(t.Context()))
	time.Sleep(reconnected)
}

func unblock(t *testing.T, l *endpointLab, _ *lab.Host) {
	succeeds(t, l.Unblock(t.Context()))
	time.Sleep(reconnected)
}

// restartKubelet lets the kubelet forget how often it restarted a container. Otherwise, it would wait for minutes after
// some runs.
func restartKubelet(t *testing.T, _ *endpointLab, h *lab.Host) {
	attempt(t, h, "systemctl", "restart", "kubelet")
	time.Sleep(5 * time.Second) // its first status may be that the node is not Ready
}

// defragment shrinks etcd's databases, so that they need more space for what is written next.
func defragment(t *testing.T, l *endpointLab, _ *lab.Host) {
	install(t, l.planes[0], 0, "etcd", "defrag")
}

// etcdDisk is a file system of its own: on a full one with images, the kubelet would also evict pods.
var etcdDisk = lab.Disk{Path: "/var/lib/etcd", Type: "ext4", Size: 4 * gib, Mkfs: []string{"-m", "0"}}

// fillDisk fills the file system with etcd's data, and writes objects. lost+found is not part of the data.
func fillDisk(t *testing.T, l *endpointLab, h *lab.Host) {
	const process = "pgrep -x etcd; true"
	before, at := attempt(t, h, "sh", "-c", process), l.otherPlanes(h)[0]
	attempt(t, h, "sh", "-c", `cd /var/lib/etcd/lost+found || exit
fallocate -l $(($(df --output=avail -B1 . | tail -n 1) - 1048576)) most
dd if=/dev/zero of=rest bs=4k 2>/dev/null
test "$(df --output=avail -B1 . | tail -n 1)" -eq 0`)
	for began := time.Now(); time.Since(began) < l.lasts; time.Sleep(time.Second) {
		_ = l.api(at, http.MethodPost, "/api/v1/namespaces/default/configmaps", map[string]any{ // etcd may have no leader at this time
			"metadata": map[string]any{"generateName": "full-", "labels": map[string]string{"full": "yes"}},
			"data":     map[string]string{"text": strings.Repeat("x", 700_000)},
		}, nil)
	}
	t.Logf("etcd ended: %t", attempt(t, h, "sh", "-c", process) != before)
}

func freeDisk(t *testing.T, _ *endpointLab, h *lab.Host) {
	attempt(t, h, "sh", "-c", "rm -f /var/lib/etcd/lost+found/*")
}

// forgetFullDisk deletes the objects that fillDisk has written.
func forgetFullDisk(t *testing.T, l *endpointLab, h *lab.Host) {
	kubectl(t, l.Site, "delete", "configmaps", "-l", "full")
	restartKubelet(t, l, h)
}

// attempt runs a command on a host. The test goes on after an error, to end the fault.
func attempt(t *testing.T, h *lab.Host, argv ...string) string {
	t.Helper()
	out, err := h.Output(t.Context(), argv...)
	succeeds(t, err)
	return out
}

func succeeds(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// otherPlanes are the control planes except one.
func (l *endpointLab) otherPlanes(h *lab.Host) []*lab.Host {
	return slices.DeleteFunc(slices.Clone(l.planes), func(other *lab.Host) bool { return other == h })
}

// except are all hosts except one.
func (l *endpointLab) except(h *lab.Host) []*lab.Host {
	return slices.DeleteFunc(slices.Clone(l.Hosts), func(other *lab.Host) bool { return other == h })
}

// An outcome is what all runs of one fault caused.
type outcome struct {
	sent, failed []int             // for each way
	gaps         [][]time.Duration // for each way and run, the longest time without a good answer
	kept         []time.Duration   // how long the host kept the address, of the runs in which it lost it
	both         time.Duration     // the longest time for which two hosts had the address
	lease        time.Duration     // the age of the oldest lease of a node
	notReady     int               // how often a node was not Ready
}

// suffer gives the host with the address a fault, and measures until the cluster is healthy again.
func (l *endpointLab) suffer(t *testing.T, f hostFault, o *outcome) {
	h := l.healthy(t)
	if f.before != nil {
		f.before(t, l, h)
		h = l.healthy(t)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	var apart atomic.Bool
	apart.Store(f.apart)
	var probes []*probe
	for _, w := range l.ways {
		probes = append(probes, startRequests(ctx, newClient(w.dial), w.url("/readyz")))
	}
	owners := l.watchAddress(ctx, h, &apart)
	lease := l.oldestLease(ctx, h)
	f.begin(t, l, h)
	time.Sleep(time.Until(began.Add(l.lasts)))
	apart.Store(false)
	f.end(t, l, h)
	l.healthy(t)
	stop()

	own, age, notReady := <-owners, <-lease, l.notReadySince(t, began, h)
	line := h.Name
	for i, p := range probes {
		<-p.done
		o.sent[i] += p.sent
		o.failed[i] += p.failed
		o.gaps[i] = append(o.gaps[i], p.longest)
		line += fmt.Sprintf("; %s %d of %d, %.2f s", l.ways[i].name, p.failed, p.sent, p.longest.Seconds())
	}
	t.Logf("%s; kept for %s, two hosts for %s; oldest lease %s", line, own.kept, own.both, age)
	if own.kept > 0 && !f.off {
		o.kept = append(o.kept, own.kept)
	}
	o.both, o.lease, o.notReady = max(o.both, own.both), max(o.lease, age), o.notReady+notReady
	if l.balanced && (probes[0].longest > 30*time.Second || own.both > 10*time.Second) {
		t.Errorf("no answer through the balancer for %s, two hosts had the address for %s", probes[0].longest, own.both)
	}
	if f.after != nil {
		f.after(t, l, h)
	}
}

// owners are who had the address during a fault of a host.
type owners struct {
	kept time.Duration // how long the host kept it, 0 if it still has it
	both time.Duration // the longest time for which two hosts had it
}

// watchAddress looks every 50 ms who has the address, until ctx ends. While the host is apart, it does not count as one
// of two.
func (l *endpointLab) watchAddress(ctx context.Context, h *lab.Host, apart *atomic.Bool) <-chan owners {
	result := make(chan owners, 1)
	go func() {
		var o owners
		began, single := time.Now(), time.Now()
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			list := holders(l.planes)
			if o.kept == 0 && !slices.Contains(list, h) {
				o.kept = time.Since(began)
			}
			if apart.Load() {
				list = slices.DeleteFunc(list, func(other *lab.Host) bool { return other == h })
			}
			if len(list) < 2 {
				single = time.Now()
			}
			o.both = max(o.both, time.Since(single))
		}
		result <- o
	}()
	return result
}

// oldestLease returns how old a node's lease became until ctx ends, except that of a host. The controller manager
// treats a node as lost when its lease is 40 s old, since v1.32 50 s.
func (l *endpointLab) oldestLease(ctx context.Context, except *lab.Host) <-chan time.Duration {
	result, at := make(chan time.Duration, 1), l.otherPlanes(except)[0]
	go func() {
		var oldest time.Duration
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			var list struct {
				Items []struct {
					Metadata struct{ Name string }
					Spec     struct{ RenewTime time.Time }
				}
			}
			_ = l.api(at, http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", nil, &list)
			for _, lease := range list.Items {
				if lease.Metadata.Name != except.Name {
					oldest = max(oldest, time.Since(lease.Spec.RenewTime))
				}
			}
		}
		result <- oldest
	}()
	return result
}

// notReadySince counts the nodes that were not Ready at some time, except a host.
func (l *endpointLab) notReadySince(t *testing.T, moment time.Time, except *lab.Host) (count int) {
	t.Helper()
	ready, err := l.readySince(l.planes[0])
	succeeds(t, err)
	for name, since := range ready {
		if name != except.Name && since.After(moment) {
			t.Logf("%s was not Ready until %s", name, since)
			count++
		}
	}
	return count
}

// tableHead is the head of the table of faults.
func (l *endpointLab) tableHead() string {
	columns := []string{"fault, on the control plane that has the address", "runs"}
	for _, w := range l.ways {
		columns = append(columns, w.name)
	}
	columns = append(columns, "the host kept the address", "two hosts had it", "oldest lease of another node", "other nodes not Ready")
	return "| " + strings.Join(columns, " | ") + " |\n" + strings.Repeat("|---", len(columns)) + "|\n"
}

// row is what a fault caused: for each way the failed requests, and the median, the 95th percentile and the maximum of
// the longest time without a good answer.
func (o *outcome) row(name string) string {
	cells := []string{name, fmt.Sprint(len(o.gaps[0]))}
	for i := range o.gaps {
		cells = append(cells, fmt.Sprintf("%d of %d; %s", o.failed[i], o.sent[i], quantiles(o.gaps[i])))
	}
	cells = append(cells, fmt.Sprintf("%s (%d)", quantiles(o.kept), len(o.kept)), fmt.Sprintf("%.2f s", o.both.Seconds()),
		fmt.Sprintf("%.0f s", o.lease.Seconds()), fmt.Sprint(o.notReady))
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// faults lets the cluster have each fault, and logs the table of what they caused after each one.
func (l *endpointLab) faults(t *testing.T) {
	table := l.tableHead()
	for _, f := range hostFaults(l.lasts) {
		ok := t.Run(f.name, func(t *testing.T) {
			o := &outcome{sent: make([]int, len(l.ways)), failed: make([]int, len(l.ways)), gaps: make([][]time.Duration, len(l.ways))}
			defer func() {
				table += o.row(f.name)
				t.Logf("\n%s", table)
			}()
			for range endpointRuns(t) {
				l.suffer(t, f, o)
			}
			for _, h := range l.planes { // a scheduler that has lost its lease many times would wait for minutes
				restartKubelet(t, l, h)
			}
			systemIsUp(t, l.Site, len(l.nodes()))
		})
		if !ok {
			diagnoseEndpoint(t, l.Site)
		}
	}
	counts, err := l.Escapes(t.Context())
	if err != nil || counts.Escaped != 0 {
		t.Errorf("%d packets tried to leave: %v (%v)", counts.Escaped, counts.Offenders, err)
	}
}

// TestEndpointFaults measures the table of faults in docs/high-availability.md, with ENDPOINT_RUNS=20.
func TestEndpointFaults(t *testing.T) {
	l := newEndpointLab(t, lab.Options{Name: "e2e-faults", Disks: []lab.Disk{etcdDisk}}, 3)
	l.lasts = 12 * time.Second
	l.withEndpoint(t)
	l.fromPod(t)
	l.faults(t)
}

// TestEndpointFaultsOfKeepalived measures the same with keepalived and haproxy on the control planes, which have the
// configuration of https://github.com/kubernetes/kubeadm/blob/main/docs/ha-considerations.md. A fault lasts longer,
// because they need longer.
func TestEndpointFaultsOfKeepalived(t *testing.T) {
	l := newEndpointLab(t, lab.Options{Name: "e2e-keepalived", Disks: []lab.Disk{etcdDisk}, ExtraPackages: []string{"haproxy", "keepalived"}}, 1)
	l.lasts = 40 * time.Second
	for i, h := range l.planes {
		state, priority := "BACKUP", 100
		if i == 0 {
			state, priority = "MASTER", 101
		}
		write(t, h, "/etc/keepalived/keepalived.conf", fmt.Sprintf(keepalivedConf, state, priority, virtual))
		write(t, h, "/etc/keepalived/check_apiserver.sh", checkScript)
		write(t, h, "/etc/haproxy/haproxy.cfg", haproxyConf+l.haproxyServers())
		run(t, h, "chmod", "755", "/etc/keepalived/check_apiserver.sh")
		run(t, h, "systemctl", "restart", "haproxy", "keepalived")
	}
	holder(t, l.planes)
	const address = virtual + ":8443"
	l.create(t, "--control-plane-endpoint", address)
	l.ways = []way{
		{"through the address, from a worker", l.workers[0].Dial, address},
		{"through the address, from outside", l.outside.Dial, address},
	}
	l.fromPod(t)
	l.faults(t)
}

// write writes a file on a host.
func write(t *testing.T, h *lab.Host, path, content string) {
	t.Helper()
	if err := h.Exec(t.Context(), strings.NewReader(content), io.Discard, io.Discard, "sh", "-c", "cat >"+path); err != nil {
		t.Fatal(err)
	}
}

func (l *endpointLab) haproxyServers() string {
	var b strings.Builder
	for _, h := range l.planes {
		fmt.Fprintf(&b, "    server %s %s:6443 check verify none\n", h.Name, h.Addr)
	}
	return b.String()
}

// The state, the priority and the virtual address are inserted.
const keepalivedConf = `global_defs {
    router_id LVS_DEVEL
}
vrrp_script check_apiserver {
  script "/etc/keepalived/check_apiserver.sh"
  interval 3
  weight -2
  fall 10
  rise 2
}
vrrp_instance VI_1 {
    state %s
    interface eth0
    virtual_router_id 51
    priority %d
    authentication {
        auth_type PASS
        auth_pass 42
    }
    virtual_ipaddress {
        %s
    }
    track_script {
        check_apiserver
    }
}
`

const checkScript = `#!/bin/sh
curl -sfk --max-time 2 https://localhost:8443/healthz -o /dev/null || { echo "*** Error GET https://localhost:8443/healthz" 1>&2; exit 1; }
`

// The servers follow.
const haproxyConf = `global
    log stdout format raw local0
    daemon
defaults
    mode                    http
    log                     global
    option                  httplog
    option                  dontlognull
    option http-server-close
    option forwardfor       except 127.0.0.0/8
    option                  redispatch
    retries                 1
    timeout http-request    10s
    timeout queue           20s
    timeout connect         5s
    timeout client          35s
    timeout server          35s
    timeout http-keep-alive 10s
    timeout check           10s
frontend apiserver
    bind *:8443
    mode tcp
    option tcplog
    default_backend apiserverbackend
backend apiserverbackend
    option httpchk
    http-check connect ssl
    http-check send meth GET uri /healthz
    http-check expect status 200
    mode tcp
    balance     roundrobin
`

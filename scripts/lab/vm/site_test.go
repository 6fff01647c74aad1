//go:build vm

package vm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab/site"
	"airlift/scripts/lab/vm"
)

const (
	// virtual is the address of the API in TestSite, siteLimit the limit of its whole time.
	virtual   = "192.168.122.100"
	siteLimit = 100 * time.Minute
	// lost is how long the first control plane is without power at least.
	lost = 90 * time.Second
)

// slowHosts are kubeadm's documents with what Airlift advises on slow hosts: longer limits and longer leases.
const slowHosts = `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
timeouts: {controlPlaneComponentHealthCheck: 15m, kubeletHealthCheck: 10m}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
timeouts: {controlPlaneComponentHealthCheck: 15m, kubeletHealthCheck: 10m, discovery: 10m, tlsBootstrap: 10m}
`

// slowCluster has the fields of ClusterConfiguration for slow hosts.
const slowCluster = `controllerManager:
  extraArgs: [{name: leader-elect-lease-duration, value: 60s}, {name: leader-elect-renew-deadline, value: 45s}]
scheduler:
  extraArgs: [{name: leader-elect-lease-duration, value: 60s}, {name: leader-elect-renew-deadline, value: 45s}%s]
etcd:
  local:
    extraArgs: [{name: heartbeat-interval, value: '500'}, {name: election-timeout, value: '5000'}]
`

// A machineSite is three machines, the first of which, or all, are control planes. The commands run on the last one. Each
// machine has the disk with the bundle, but the commands use only that of the last one.
type machineSite struct {
	all    []*vm.Machine
	driver *vm.Machine
	// controlPlanes is 1 or 3.
	controlPlanes int
	took          []string
}

// ofControlPlanes returns how many of the three machines are control planes: three of them need more than two processors, see
// docs/real-machines.md.
func ofControlPlanes(t *testing.T) int {
	switch n := *controlPlanes; {
	case n == 1 || n == 3:
		return n
	case n != 0:
		t.Fatalf("-control-planes %d: it is 1 or 3", n)
	case runtime.NumCPU() >= 6:
		return 3
	}
	fmt.Fprintf(t.Output(), "ONE control plane and two workers: three control planes need six processors, this machine has %d (-control-planes 3 tries it)\n", runtime.NumCPU())
	return 1
}

// TestSite makes three machines a cluster with one command: with a virtual address, the balancer, and files that the first
// control plane serves. Then the configuration changes, the first machine loses its power and comes back, one is removed, and
// the cluster is reset. Each step has a limit, and so has the whole.
func TestSite(t *testing.T) {
	n := ofControlPlanes(t)
	all := create(t, func(o *vm.Options) { o.Machines, o.SSH = 3, true })
	s := &machineSite{all: all, driver: all[2], controlPlanes: n}
	leaves, stay := all[0], all[1:]
	if n == 1 {
		leaves, stay = all[1], []*vm.Machine{all[0], all[2]}
	}
	for _, m := range all {
		m.Memory = 2560
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), siteLimit, fmt.Errorf("the whole test took longer than %s", siteLimit))
	defer cancel()
	defer func() { t.Logf("times:\n%s", strings.Join(s.took, "")) }()
	var bare map[*vm.Machine]string
	for _, step := range []struct {
		name  string
		limit time.Duration
		do    func(t *testing.T, ctx context.Context) error
	}{
		{"power on of three machines", 10 * time.Minute, func(t *testing.T, ctx context.Context) error {
			if err := vm.PowerOnAll(ctx, all...); err != nil {
				return err
			}
			var addresses []netip.Addr
			bare = map[*vm.Machine]string{}
			for _, m := range all {
				bare[m] = files(t, m)
				addresses = append(addresses, m.Addr.Addr())
			}
			t.Logf("each machine:\n%s", run(t, all[0], "sh", "-c", "uname -rv; stat -fc %T /sys/fs/cgroup; nproc; free -m | grep Mem; ip -brief address; ip route"))
			return site.LearnHostKeys(ctx, s.driver, addresses...)
		}},
		{"cluster preflight", 10 * time.Minute, func(t *testing.T, ctx context.Context) error {
			if err := s.describe(ctx, all, "", 110); err != nil {
				return err
			}
			return s.cluster(ctx, t, "preflight")
		}},
		{fmt.Sprintf("cluster apply, %d of three are control planes", n), 35 * time.Minute, func(t *testing.T, ctx context.Context) error {
			return s.cluster(ctx, t, "apply", "--yes")
		}},
		{"until all pods are Ready", 10 * time.Minute, func(t *testing.T, ctx context.Context) error {
			if err := s.isUp(ctx, all); err != nil {
				return err
			}
			for _, m := range all {
				systemdDriver(t, m)
				if served := run(t, m, "cat", "/etc/containerd/certs.d/registry.k8s.io/hosts.toml"); !strings.Contains(served, "//"+all[0].Addr.Addr().String()+":") {
					t.Errorf("%s does not ask the registry of %s:\n%s", m.Name, all[0].Name, served)
				}
			}
			return s.load(ctx)
		}},
		{"a second apply, which changes nothing", 10 * time.Minute, func(t *testing.T, ctx context.Context) error {
			before := s.serves(t)
			err := s.cluster(ctx, t, "apply", "--yes")
			same(t, before, s.serves(t))
			return err
		}},
		{"a changed configuration on three hosts", 30 * time.Minute, func(t *testing.T, ctx context.Context) error {
			if err := s.describe(ctx, all, ", {name: v, value: '3'}", 120); err != nil {
				return err
			}
			if err := s.cluster(ctx, t, "apply", "--yes"); err != nil {
				return err
			}
			for i, m := range all {
				if i < n {
					run(t, m, "grep", "-e", "- --v=3", "/etc/kubernetes/manifests/kube-scheduler.yaml")
				}
				run(t, m, "grep", "-x", "maxPods: 120", "/var/lib/kubelet/config.yaml")
			}
			return s.isUp(ctx, all)
		}},
		{"power cut of the first", 10 * time.Minute, s.loseFirst},
		{"power on of the first, until all pods are Ready", 20 * time.Minute, func(t *testing.T, ctx context.Context) error {
			if err := all[0].PowerOn(ctx); err != nil {
				return err
			}
			if err := s.isUp(ctx, all); err != nil {
				return err
			}
			if !s.showClients(t, "all of it") {
				return errors.New("the last request of a client failed")
			}
			return s.cluster(ctx, t, "apply", "--yes") // which has nothing to do
		}},
		{"removal of " + leaves.Name, 20 * time.Minute, func(t *testing.T, ctx context.Context) error {
			if err := s.describe(ctx, stay, ", {name: v, value: '3'}", 120); err != nil {
				return err
			}
			if err := s.cluster(ctx, t, "apply", "--remove", "--yes"); err != nil {
				return err
			}
			same(t, bare[leaves], files(t, leaves))
			return s.isUp(ctx, stay)
		}},
		{"cluster reset of the others", 15 * time.Minute, func(t *testing.T, ctx context.Context) error {
			run(t, s.driver, "systemctl", "stop", "clients")
			err := s.cluster(ctx, t, "reset", "--force", "--yes")
			for _, m := range stay {
				same(t, bare[m], files(t, m))
			}
			return err
		}},
	} {
		if !t.Run(step.name, func(t *testing.T) { s.step(t, ctx, step.name, step.limit, step.do) }) {
			t.FailNow()
		}
	}
}

// step runs one step, which fails after limit.
func (s *machineSite) step(t *testing.T, ctx context.Context, name string, limit time.Duration, do func(*testing.T, context.Context) error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s", limit))
	defer cancel()
	fmt.Fprintf(t.Output(), "%s %s, at most %s\n", time.Now().UTC().Format(time.TimeOnly), name, limit)
	began := time.Now()
	defer func() { // also after FailNow
		result := time.Since(began).Round(time.Second).String()
		if t.Failed() {
			result = "failed after " + result
		}
		s.took = append(s.took, fmt.Sprintf("| %s | %s |\n", name, result))
	}()
	if err := do(t, ctx); err != nil {
		t.Error(err)
	}
}

// describe writes cluster.yaml with these machines, further arguments of the scheduler, and the maximum of pods.
func (s *machineSite) describe(ctx context.Context, machines []*vm.Machine, scheduler string, pods int) error {
	var hosts string
	for _, m := range machines {
		hosts += site.HostEntry(m.Name, s.isControlPlane(m), m.Addr.Addr(), "")
	}
	text := site.ClusterFile("machines", "endpoint: {vip: "+virtual+", balancer: true}\n", hosts) + slowHosts +
		site.Documents(fmt.Sprintf(slowCluster, scheduler), "maxPods: "+strconv.Itoa(pods)+"\n")
	return s.driver.Exec(ctx, strings.NewReader(text), io.Discard, io.Discard, "sh", "-c", "cat >/root/cluster.yaml")
}

// isControlPlane tells whether a machine is a control plane.
func (s *machineSite) isControlPlane(m *vm.Machine) bool {
	return slices.Contains(s.all[:s.controlPlanes], m)
}

// control is the machine on which kubectl runs: the driver if it has admin.conf.
func (s *machineSite) control() *vm.Machine {
	if s.controlPlanes == 3 {
		return s.driver
	}
	return s.all[0]
}

// load measures what each machine needs of a processor when nothing happens.
func (s *machineSite) load(ctx context.Context) error {
	const during = 2 * time.Minute
	before := make([]time.Duration, len(s.all))
	for i, m := range s.all {
		before[i] = m.ProcessorTime()
	}
	select {
	case <-time.After(during):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for i, m := range s.all {
		s.took = append(s.took, fmt.Sprintf("| %s, nothing to do | %.2f processors |\n", m.Name, (m.ProcessorTime()-before[i]).Seconds()/during.Seconds()))
	}
	return nil
}

// cluster runs "install cluster" on the driver.
func (s *machineSite) cluster(ctx context.Context, t *testing.T, args ...string) error {
	_, err := site.Install(ctx, s.driver, t.Output(), append([]string{"cluster"}, args...)...)
	return err
}

// serves lists what a run that changes nothing leaves alone: processes and manifests.
func (s *machineSite) serves(t *testing.T) (list string) {
	for _, m := range s.all {
		list += run(t, m, "sh", "-c", "systemctl show -p MainPID kubelet containerd; find /etc/kubernetes/manifests -type f -exec sha256sum {} +; pgrep -x etcd; pgrep -x kube-apiserver; true")
	}
	return list
}

// isUp waits until all nodes and all pods are Ready, and each etcd member votes.
func (s *machineSite) isUp(ctx context.Context, machines []*vm.Machine) error {
	for {
		if err := waitUp(ctx, s.control(), len(machines)); err != nil {
			return err
		}
		members, err := s.members(ctx)
		n := 0
		for _, m := range machines {
			if s.isControlPlane(m) {
				n++
			}
		}
		if strings.Count(members, "\n") == n && strings.Count(members, "started") == n && strings.Count(members, ", false\n") == n {
			return nil
		}
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: etcd's members %s (%v)", context.Cause(ctx), members, err)
		}
	}
}

// members are etcd's members, one in a line. The last field of a voter is false: it is no learner.
func (s *machineSite) members(ctx context.Context) (string, error) {
	const pki = "/etc/kubernetes/pki/etcd/"
	c := site.Cluster{Control: s.control()}
	return c.Kubectl(ctx, "-n", "kube-system", "exec", "etcd-"+s.control().Name, "--",
		"etcdctl", "--cacert", pki+"ca.crt", "--cert", pki+"server.crt", "--key", pki+"server.key", "member", "list")
}

// ways are how clients on the driver reach the API.
var ways = []struct{ name, address string }{
	{"the balancer", "127.0.0.1:7443"},
	{"the virtual address", virtual + ":6443"},
}

// startClients asks the API on each way, about once a second, and writes the machine's uptime and the result to a file.
func (s *machineSite) startClients(t *testing.T) {
	script := ""
	for i, w := range ways {
		script += fmt.Sprintf(`while :; do at=$(cut -d' ' -f1 /proc/uptime); code=$(curl -sk -m 10 -o /dev/null -w '%%{http_code}' https://%s/readyz); echo "$at $(cut -d' ' -f1 /proc/uptime) $code" >>/root/clients.%d; sleep 0.5; done & `, w.address, i)
	}
	run(t, s.driver, "systemd-run", "--quiet", "--unit=clients", "sh", "-c", script+"wait")
}

// showClients logs what the clients have seen, and returns whether each had an answer at the end.
func (s *machineSite) showClients(t *testing.T, when string) (answered bool) {
	answered = true
	for i, w := range ways {
		list, err := parseRequests(run(t, s.driver, "cat", fmt.Sprintf("/root/clients.%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		failed, longest, last := withoutAnswer(list)
		s.took = append(s.took, fmt.Sprintf("| clients through %s, %s | %d of %d requests failed; longest without an answer %.1f s |\n", w.name, when, failed, len(list), longest))
		t.Log(s.took[len(s.took)-1])
		answered = answered && last
	}
	return answered
}

// loseFirst cuts the power of the first machine. If others are control planes, it waits until clients have answers and its Node
// is not Ready.
func (s *machineSite) loseFirst(t *testing.T, ctx context.Context) error {
	s.startClients(t)
	time.Sleep(20 * time.Second) // some answers before
	if err := s.all[0].PowerCut(); err != nil {
		return err
	}
	if s.controlPlanes == 1 {
		time.Sleep(lost)
		if s.showClients(t, "power cut") {
			return errors.New("a client had an answer without a control plane")
		}
	} else if err := s.takenOver(t, ctx); err != nil {
		return err
	}
	status, err := site.Install(ctx, s.driver, t.Output(), "cluster", "status")
	if err == nil || !strings.Contains(status, s.all[0].Name) {
		return fmt.Errorf("cluster status: %v, want a failure that names %s", err, s.all[0].Name)
	}
	return nil
}

// takenOver waits until the others serve what the first one served.
func (s *machineSite) takenOver(t *testing.T, ctx context.Context) error {
	cut := time.Now()
	c := site.Cluster{Control: s.driver}
	for {
		ready, err := c.Kubectl(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}`)
		if err == nil && slices.Contains(strings.Fields(ready), s.all[0].Name+"=Unknown") && time.Since(cut) > lost {
			break
		}
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %s %v", context.Cause(ctx), ready, err)
		}
	}
	t.Logf("the Node was not Ready, %s after the cut", time.Since(cut).Round(time.Second))
	if !s.showClients(t, "power cut") {
		return errors.New("the last request of a client failed")
	}
	holder := ""
	for _, m := range s.all[1:] {
		if strings.Contains(run(t, m, "ip", "-4", "-o", "address"), " "+virtual+"/") {
			holder += m.Name
		}
	}
	if holder != s.all[1].Name && holder != s.all[2].Name {
		return fmt.Errorf("the virtual address is on %q", holder)
	}
	t.Logf("%s has the virtual address", holder)
	return nil
}

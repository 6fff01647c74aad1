//go:build e2e

package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// startLabNamed makes this test binary start a lab instead of running tests, so that a test
// can kill it meanwhile. It keeps the lab if keepLab is set.
const (
	startLabNamed = "AIRLIFT_TEST_START_LAB"
	keepLab       = "AIRLIFT_TEST_KEEP_LAB"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(startLabNamed); name != "" {
		if _, err := lab.Up(context.Background(), lab.Options{Name: name, Hosts: 1, Kept: os.Getenv(keepLab) != ""}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// uniqueName gives parallel test runs on one machine different names.
func uniqueName(kind string) string { return fmt.Sprintf("t%s-%d", kind, os.Getpid()) }

func up(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	o.Log = t.Logf
	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { down(t, l.Name) })
	return l
}

func down(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := (&lab.Lab{Name: name}).Down(ctx); err != nil {
		t.Error(err)
	}
	if left := traces(name); len(left) > 0 {
		t.Errorf("left behind by lab %s:\n%s", name, strings.Join(left, "\n"))
	}
}

// traces lists everything on this machine with the lab's name.
func traces(name string) (found []string) {
	for _, pattern := range []string{
		"/var/lib/airlift-lab/" + name, "/run/netns/*." + name + ".*", "/run/systemd/nspawn/*/*." + name + ".*",
	} {
		paths, _ := filepath.Glob(pattern)
		found = append(found, paths...)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "/"+name+"/") || strings.Contains(line, "."+name+".") {
			found = append(found, "mount "+line)
		}
	}
	cgroups, _ := exec.Command("find", "/sys/fs/cgroup", "-type", "d", "-name", "*."+name+".*").Output()
	found = append(found, strings.Fields(string(cgroups))...)
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		if line, _ := os.ReadFile(path); bytes.Contains(line, []byte("/"+name+"/")) || bytes.Contains(line, []byte("."+name+".")) {
			found = append(found, path+" "+string(line))
		}
	}
	return found
}

func output(t *testing.T, h *lab.Host, argv ...string) string {
	t.Helper()
	out, err := h.Output(t.Context(), argv...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// interfaces lists the interfaces of a network namespace, sorted.
func interfaces(t *testing.T, namespace string) string {
	t.Helper()
	out, err := exec.Command("ip", "-n", namespace, "-json", "link").Output()
	var links []struct{ Ifname string }
	if err := errors.Join(err, json.Unmarshal(out, &links)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Ifname)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func counts(t *testing.T, l *lab.Lab) lab.Counts {
	t.Helper()
	c, err := l.Escapes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestHostsSeeEachOtherAndNothingElse(t *testing.T) {
	l := up(t, lab.Options{Name: uniqueName("net")})
	one, two := l.Hosts[0], l.Hosts[1]

	output(t, one, "ping", "-c1", "-W2", two.Addr.String())
	// IPv6 addresses that a test adds, in the prefix of the hosts.
	output(t, one, "ip", "address", "add", "fd77::11/64", "dev", "eth0", "nodad")
	output(t, two, "ip", "address", "add", "fd77::12/64", "dev", "eth0", "nodad")
	output(t, one, "ping", "-c1", "-W2", "fd77::12")
	if route := output(t, one, "ip", "route", "show", "default"); route != "" {
		t.Errorf("default route: %s", route)
	}
	if got := output(t, one, "cat", "/etc/resolv.conf"); got != "" {
		t.Errorf("resolv.conf: %s", got)
	}
	// Every veth pair has an end in the switch and an end in a host: none leads to this machine.
	for _, h := range l.Hosts {
		if got := interfaces(t, "airlift."+l.Name+"."+h.Name); got != "eth0 lo" {
			t.Errorf("interfaces of %s: %s", h.Name, got)
		}
	}
	if got := interfaces(t, "airlift."+l.Name+".switch"); got != "host1.0 host2.0 lo net0" {
		t.Errorf("interfaces of the switch: %s", got)
	}
	if a, b := output(t, one, "cat", "/etc/machine-id"), output(t, two, "cat", "/etc/machine-id"); a == b || len(a) != 32 {
		t.Errorf("machine ids %q and %q", a, b)
	}
	before := counts(t, l)
	if before.Inside == 0 || before.Escaped != 0 || before.NoRoute != 0 {
		t.Errorf("after a ping between hosts: %s", before)
	}
	// 192.0.2.0/24 and 2001:db8::/32 are for documentation: no host uses them.
	if out, err := one.Output(t.Context(), "ping", "-c1", "-W1", "192.0.2.1"); err == nil {
		t.Errorf("192.0.2.1 answered: %s", out)
	}
	after := counts(t, l)
	if after.Escaped != 0 || after.NoRoute == 0 {
		t.Errorf("after a ping without a route: %s", after)
	}
}

// TestSSH logs in from one host at the other, as root and as a user who has to give sudo a password.
func TestSSH(t *testing.T) {
	l := up(t, lab.Options{Name: uniqueName("ssh"), SSH: true})
	one, two := l.Hosts[0], l.Hosts[1]
	keys := map[string]bool{}
	for _, h := range l.Hosts {
		output(t, h, "systemctl", "is-active", "ssh")
		for key := range strings.Lines(output(t, h, "sh", "-c", "cut -d ' ' -f 2 /etc/ssh/ssh_host_*_key.pub")) {
			keys[strings.TrimSpace(key)] = true
		}
	}
	if len(keys) != 6 {
		t.Errorf("%d host keys, want three different ones of each host", len(keys))
	}
	if out, err := one.Output(t.Context(), "ssh", "-o", "BatchMode=yes", two.Addr.String(), "true"); err == nil {
		t.Errorf("ssh accepts a host key that it does not know: %s", out)
	}
	output(t, one, "sh", "-c", "ssh-keyscan "+two.Addr.String()+" >/root/.ssh/known_hosts 2>/dev/null")
	if got := output(t, one, "ssh", two.Addr.String(), "hostname; id -un"); got != "host2\nroot" {
		t.Errorf("root is %q", got)
	}
	sudo := func(password string) (string, error) {
		var out bytes.Buffer
		err := one.Exec(t.Context(), strings.NewReader(password+"\n"), &out, &out, "ssh", lab.SSHUser+"@"+two.Addr.String(), "sudo -k -S -p '' id -un")
		return strings.TrimSpace(out.String()), err
	}
	if got, err := sudo(lab.SSHPassword); err != nil || got != "root" {
		t.Errorf("sudo: %q, %v", got, err)
	}
	if got, err := sudo("wrong"); err == nil {
		t.Errorf("sudo accepts a wrong password: %q", got)
	}
}

// A count of zero means something only if escapes are counted.
func TestEscapesAreSeen(t *testing.T) {
	l := up(t, lab.Options{Name: uniqueName("esc")})
	one, two := l.Hosts[0], l.Hosts[1]
	for _, c := range []struct {
		name  string
		route []string
		send  string
		want  lab.Offender // without the count
	}{
		{"a router that does not exist", []string{"via", "10.77.0.1"}, "ping -c1 -W1 192.0.2.1",
			lab.Offender{Source: one.Addr.String(), Destination: "10.77.0.1", Protocol: "arp"}},
		{"an address on the wire", []string{"dev", "eth0"}, "ping -c1 -W1 192.0.2.2",
			lab.Offender{Source: one.Addr.String(), Destination: "192.0.2.2", Protocol: "arp"}},
		{"ICMP by another host", []string{"via", two.Addr.String()}, "ping -c1 -W1 192.0.2.3",
			lab.Offender{Source: one.Addr.String(), Destination: "192.0.2.3", Protocol: "icmp"}},
		{"TCP by another host", []string{"via", two.Addr.String()}, "timeout 1 bash -c ': </dev/tcp/192.0.2.4/443'",
			lab.Offender{Source: one.Addr.String(), Destination: "192.0.2.4", Protocol: "tcp", Port: 443}},
		{"a DNS question by another host", []string{"via", two.Addr.String()}, "echo x >/dev/udp/192.0.2.5/53",
			lab.Offender{Source: one.Addr.String(), Destination: "192.0.2.5", Protocol: "udp", Port: 53}},
	} {
		before := counts(t, l)
		output(t, one, append([]string{"ip", "route", "replace", "default"}, c.route...)...)
		_, _ = one.Output(t.Context(), "bash", "-c", c.send) // fails without an answer
		output(t, one, "ip", "route", "del", "default")
		after := counts(t, l)
		if after.Escaped <= before.Escaped || !has(after.Offenders, c.want) {
			t.Errorf("%s: want %v in %s", c.name, c.want, after)
		}
	}

	before := counts(t, l)
	output(t, one, "ip", "-6", "route", "replace", "default", "via", "fe80::77:ff:fe00:2", "dev", "eth0")
	_, _ = one.Output(t.Context(), "ping", "-c1", "-W1", "-I", "eth0", "2001:db8::1")
	if after := counts(t, l); after.Escaped <= before.Escaped {
		t.Errorf("IPv6 by another host: %s", after)
	}
}

func has(all []lab.Offender, want lab.Offender) bool {
	for _, o := range all {
		if want.Packets = o.Packets; o == want && o.Packets > 0 {
			return true
		}
	}
	return false
}

func TestRebootKeepsTheDiskOnly(t *testing.T) {
	l := up(t, lab.Options{Name: uniqueName("boot"), Hosts: 1})
	h := l.Hosts[0]
	const mark = "set -e; touch /root/kept /run/lost; " +
		"ip link add cni0 type bridge; ip route add 10.96.0.0/12 dev eth0; iptables -A INPUT -s 192.0.2.1 -j DROP; " +
		"mkdir -p /sys/fs/cgroup/memory/kubepods/pod1; mkdir /mnt/m; mount -t tmpfs t /mnt/m; setsid sleep 1000 >/dev/null 2>&1 &"
	const check = "test -e /root/kept && test ! -e /run/lost && ! ip link show cni0 2>/dev/null && " +
		"test -z \"$(ip route show 10.96.0.0/12)\" && ! iptables -S | grep 192.0.2.1 && test ! -e /sys/fs/cgroup/memory/kubepods && " +
		"! mountpoint -q /mnt/m && ! pgrep sleep"
	restarts := []struct {
		name string
		do   func(context.Context) error
	}{
		{"reboot", h.Reboot},
		{"power off", func(ctx context.Context) error { return errors.Join(h.PowerOff(ctx), h.Boot(ctx)) }},
		{"power cut", func(ctx context.Context) error { return errors.Join(h.PowerCut(ctx), h.Boot(ctx)) }},
	}
	for _, r := range restarts {
		output(t, h, "rm", "-rf", "/root/kept", "/mnt/m")
		output(t, h, "bash", "-c", mark)
		address := output(t, h, "ip", "-o", "-4", "address", "show", "eth0")
		id := output(t, h, "cat", "/etc/machine-id")
		if _, err := h.Output(t.Context(), "ping", "-c1", "-W1", "192.0.2.1"); err == nil {
			t.Error("192.0.2.1 answered")
		}
		noRoute := counts(t, l).NoRoute
		began := time.Now()
		if err := r.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		t.Logf("%s took %.1f s", r.name, time.Since(began).Seconds())
		output(t, h, "bash", "-c", check)
		if got := output(t, h, "ip", "-o", "-4", "address", "show", "eth0"); strings.Fields(got)[3] != strings.Fields(address)[3] {
			t.Errorf("%s: address was %s, is %s", r.name, address, got)
		}
		if got := output(t, h, "cat", "/etc/machine-id"); got != id {
			t.Errorf("%s: machine id was %s, is %s", r.name, id, got)
		}
		if got := counts(t, l).NoRoute; got < noRoute {
			t.Errorf("%s: forgot what had no route: %d, then %d", r.name, noRoute, got)
		}
	}
}

// TestLinks: what the switch does not forward, a host without its cable, and one whose connections do not end when its
// power is cut.
func TestLinks(t *testing.T) {
	l := up(t, lab.Options{Name: uniqueName("links"), Hosts: 3})
	first, second, third := l.Hosts[0], l.Hosts[1], l.Hosts[2]
	reaches := func(from, to *lab.Host, want bool) {
		t.Helper()
		seconds := "1"
		if want {
			seconds = "5" // a connected cable works after a second
		}
		if _, err := from.Output(t.Context(), "ping", "-c1", "-w"+seconds, to.Addr.String()); (err == nil) != want {
			t.Errorf("%s reaches %s: %t (%v)", from.Name, to.Name, !want, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.Block(t.Context(), []*lab.Host{first}, []*lab.Host{second}))
	must(l.Block(t.Context(), []*lab.Host{third}, []*lab.Host{second}))
	reaches(first, second, false)
	reaches(second, third, false)
	reaches(first, third, true)
	must(l.Unblock(t.Context()))
	reaches(first, second, true)

	must(first.Unplug(t.Context()))
	reaches(second, first, false)
	if link := output(t, first, "ip", "link", "show", "eth0"); !strings.Contains(link, "NO-CARRIER") {
		t.Error(link)
	}
	must(first.Plug(t.Context()))
	reaches(second, first, true)

	output(t, first, "systemd-run", "socat", "TCP-LISTEN:7", "EXEC:cat")
	var conn net.Conn
	for { // until it listens
		var err error
		if conn, err = second.Dial(t.Context(), "tcp", first.Addr.String()+":7"); err == nil {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	defer conn.Close()
	if addresses, err := first.Addresses(); err != nil || !slices.Contains(addresses, first.Addrs[0]) {
		t.Errorf("%v (%v)", addresses, err)
	}
	must(first.PowerCut(t.Context()))
	must(conn.SetReadDeadline(time.Now().Add(time.Second)))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the power cut ended a connection: %v", err)
	}
	if addresses, err := first.Addresses(); err == nil {
		t.Errorf("without power, the host has %v", addresses)
	}
	must(first.Boot(t.Context()))
	reaches(second, first, true)
}

func TestHostCanRunContainers(t *testing.T) {
	h := up(t, lab.Options{Name: uniqueName("run"), Hosts: 1}).Hosts[0]
	for _, mountpoint := range []string{"/", "/run"} {
		if got := output(t, h, "findmnt", "-no", "PROPAGATION", mountpoint); got != "shared" {
			t.Errorf("%s is %s", mountpoint, got)
		}
	}
	output(t, h, "bash", "-c", "mkdir -p /var/lib/o/{l,u,w,m} && mount -t overlay o -o lowerdir=/var/lib/o/l,upperdir=/var/lib/o/u,workdir=/var/lib/o/w /var/lib/o/m")
	output(t, h, "bash", "-c", "for c in /sys/fs/cgroup/*/; do mkdir ${c}x && rmdir ${c}x; done")
	output(t, h, "bash", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward; ip link add v type vxlan id 1 dev eth0 dstport 8472; iptables -t nat -A POSTROUTING -j MASQUERADE")
	output(t, h, "dd", "if=/dev/kmsg", "of=/dev/null", "bs=8k", "count=1", "iflag=nonblock")
	if tmp := output(t, h, "findmnt", "-no", "FSTYPE", "--target", "/tmp"); tmp == "tmpfs" {
		t.Error("/tmp is in memory: large files would need it")
	}
}

func TestOptions(t *testing.T) {
	h := up(t, lab.Options{Name: uniqueName("opt"), Hosts: 1, Interfaces: 2, NoexecTmp: true}).Hosts[0]
	addresses := output(t, h, "ip", "-br", "-4", "address")
	for _, p := range h.Addrs {
		if !strings.Contains(addresses, p.String()) {
			t.Errorf("%s is missing in\n%s", p, addresses)
		}
	}
	if _, err := h.CopyIn(t.Context(), "/bin/true", "/tmp/true", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Output(t.Context(), "/tmp/true"); err == nil || !strings.Contains(err.Error(), "Permission denied") {
		t.Errorf("executing in /tmp: %v", err)
	}
}

func TestCopyInFollowsTheHostsSymlinks(t *testing.T) {
	h := up(t, lab.Options{Name: uniqueName("copy"), Hosts: 1}).Hosts[0]
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	local := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(local, content, 0o600); err != nil {
		t.Fatal(err)
	}
	// /var/run is a link to /run, which is a mount on the host.
	for range 2 { // the second time it replaces the first file
		n, err := h.CopyIn(t.Context(), local, "/var/run/new/file", 0o751)
		if err != nil || n != int64(len(content)) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	if got := output(t, h, "stat", "-c", "%a %s", "/run/new/file"); got != fmt.Sprintf("751 %d", len(content)) {
		t.Errorf("mode and size: %s", got)
	}
	if got, err := h.Output(t.Context(), "cat", "/run/new/file"); err != nil || got != string(content) {
		t.Errorf("content differs (%v)", err)
	}
	if _, err := os.Stat("/run/new"); err == nil {
		t.Error("the file went to this machine's /run")
	}
}

func TestExec(t *testing.T) {
	h := up(t, lab.Options{Name: uniqueName("exec"), Hosts: 1}).Hosts[0]
	var stdout, stderr bytes.Buffer
	err := h.Exec(t.Context(), strings.NewReader("in"), &stdout, &stderr, "sh", "-c", "cat; echo err >&2; exit 3")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || stdout.String() != "in" || stderr.String() != "err\n" {
		t.Errorf("%v, %q, %q", err, &stdout, &stderr)
	}
	t.Setenv("SECRET", "x")
	if env := output(t, h, "env"); strings.Contains(env, "SECRET") || !strings.Contains(env, "HOME=/root") {
		t.Errorf("environment:\n%s", env)
	}

	// A command that handles the interrupt can clean up; one that ignores it is killed.
	for _, script := range []string{"trap 'echo cleaned; exit 130' INT; while :; do sleep 0.1; done", "trap '' INT; sleep 1000; sleep 1000"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		out, err := h.Output(ctx, "bash", "-c", script)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", script, err)
		}
		if heeds := strings.Contains(script, "cleaned"); heeds && out != "cleaned\n" {
			t.Errorf("%s: it did not get the interrupt", script)
		}
		if left, err := h.Output(t.Context(), "pgrep", "-a", "bash|sleep"); err == nil {
			t.Errorf("%s: still running: %s", script, left)
		}
	}
}

func TestTwoLabsDoNotMeet(t *testing.T) {
	a := up(t, lab.Options{Name: uniqueName("a"), Hosts: 1})
	b := up(t, lab.Options{Name: uniqueName("b"), Hosts: 2})
	// The same address plan: only b has a second host.
	if _, err := a.Hosts[0].Output(t.Context(), "ping", "-c1", "-W1", b.Hosts[1].Addr.String()); err == nil {
		t.Error("a host of one lab reached a host of another")
	}
	if _, err := lab.Up(t.Context(), lab.Options{Name: a.Name}); err == nil {
		t.Error("a lab of the same name came up")
	}
	down(t, a.Name)
	output(t, b.Hosts[0], "ping", "-c1", "-W2", b.Hosts[1].Addr.String())
}

func TestUpLeavesNothingWhenCancelled(t *testing.T) {
	for _, after := range []time.Duration{10, 50, 150, 400, 800} {
		after *= time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := lab.Up(ctx, lab.Options{Name: uniqueName("cancel")})
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled after %v: %v", after, err)
		}
		if left := traces(uniqueName("cancel")); err != nil && len(left) > 0 {
			t.Errorf("cancelled after %v, left behind:\n%s", after, strings.Join(left, "\n"))
		}
		t.Logf("cancelled after %v: %v", after, err)
		down(t, uniqueName("cancel"))
	}
}

func TestDownAfterAKill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := uniqueName("kill")
	for _, moment := range []string{ // what exists at the time of the kill
		"/var/lib/airlift-lab/" + name,
		"/run/netns/*." + name + ".switch",
		"/var/lib/airlift-lab/" + name + "/host1/usr",
		"/var/lib/airlift-lab/" + name + "/host1.sh",
		"/sys/fs/cgroup/*/*." + name + ".host1/supervisor",
		"/run/netns/*." + name + ".host1",
		"/sys/fs/cgroup/*/*." + name + ".host1/boot/payload/init.scope",
		"/nothing, so the lab is up",
	} {
		var stderr bytes.Buffer
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), startLabNamed+"="+name)
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		killed := false
		for waiting := true; waiting; {
			select {
			case err := <-ended:
				waiting = false
				if !killed && err != nil {
					t.Fatalf("%v: %s", err, &stderr)
				}
			case <-time.After(time.Millisecond):
				if found, _ := filepath.Glob(moment); len(found) > 0 && !killed {
					killed = true
					_ = cmd.Process.Kill()
				}
			}
		}
		t.Logf("killed at %s: %v, %d traces", moment, killed, len(traces(name)))
		down(t, name)
	}
	down(t, name) // nothing is left
}

func TestUpRemovesLabsOfEndedProcesses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(kind string, env ...string) (name string) {
		name = uniqueName(kind)
		t.Cleanup(func() { down(t, name) })
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), append(env, startLabNamed+"="+name)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return name
	}
	used := up(t, lab.Options{Name: uniqueName("used"), Hosts: 1})
	kept := start("kept", keepLab+"=yes")
	ended := start("ended")
	// The name of the lab whose process ended is free, and its hosts are gone.
	again := up(t, lab.Options{Name: ended, Hosts: 1})
	output(t, again.Hosts[0], "true")
	for _, name := range []string{used.Name, kept} {
		l, err := lab.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		output(t, l.Hosts[0], "true")
	}
	ended2 := start("ended2")
	up(t, lab.Options{Name: uniqueName("next"), Hosts: 1})
	if left := traces(ended2); len(left) > 0 {
		t.Errorf("left of a lab whose process ended:\n%s", strings.Join(left, "\n"))
	}
}

//go:build e2e

package host_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/host/kernel"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
	"airlift/installer/host/uninstall"
	"airlift/internal/fault"
	"airlift/scripts/lab"
)

// These tests change the whole machine, so they run on a lab host. The test
// binary is copied there and runs the parts below. If the unit starts it at
// boot, it adds a route as the installer would.
func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == "host-route" {
		if err := kernel.AddRoute(context.Background(), os.Args[3], os.Args[5]); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "-namespace" { // a shim of TestPartPods
		time.Sleep(time.Minute)
		return
	}
	os.Exit(m.Run())
}

const onLabHost = "AIRLIFT_ON_LAB_HOST"

// part marks a test that is one part of TestOnLabHost.
func part(t *testing.T) (context.Context, *host.Host) {
	t.Helper()
	if os.Getenv(onLabHost) == "" {
		t.Skip("runs within TestOnLabHost")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx, open(t, "/")
}

func TestOnLabHost(t *testing.T) {
	if os.Getenv(onLabHost) != "" {
		t.Skip("already there")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	l, err := lab.Up(ctx, lab.Options{Name: "hostpkg", Hosts: 1, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Down(ctx); err != nil {
			t.Error(err)
		}
	})
	h := l.Hosts[0]
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.CopyIn(ctx, self, "/root/host.test", 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(name string) {
		t.Helper()
		out, err := h.Output(ctx, "env", onLabHost+"=1", "/root/host.test", "-test.v", "-test.run=^"+name+"$")
		if err != nil || !strings.Contains(out, "--- PASS: "+name) {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		t.Logf("%s passed on %s", name, h.Name)
	}
	output := func(argv ...string) string {
		t.Helper()
		out, err := h.Output(ctx, argv...)
		if err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
		return out
	}
	before := output("sh", "-c", "find /etc /usr/local /opt -newer /root/host.test -o -name '*airlift*' | sort; ls /var/lib")

	run("TestPartFacts")
	run("TestPartSystemd")
	run("TestPartPods")
	run("TestPartNode")
	if err := h.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	// A reboot must restore the route.
	if out := output("ip", "route"); !strings.Contains(out, "10.96.0.0/12 dev eth0") {
		t.Errorf("no route to the Services after a reboot:\n%s\n%s", out, output("sh", "-c", "systemctl status airlift-service-route.service; true"))
	}
	if out := output("systemctl", "is-active", "airlift-rshared.service"); strings.TrimSpace(out) != "active" {
		t.Errorf("airlift-rshared.service is %s after a reboot", out)
	}
	if out := output("cat", "/proc/1/mountinfo"); !strings.Contains(strings.SplitN(out, "\n", 2)[0], "shared:") {
		t.Errorf("/ is not shared after a reboot:\n%s", out)
	}
	if out := output("cat", "/proc/sys/net/ipv4/ip_forward"); strings.TrimSpace(out) != "1" {
		t.Errorf("ip_forward is %s after a reboot", out)
	}
	run("TestPartReset")
	if out := output("ip", "route"); strings.Contains(out, "10.96.") {
		t.Errorf("routes after reset:\n%s", out)
	}
	after := output("sh", "-c", "find /etc /usr/local /opt -newer /root/host.test -type f -o -name '*airlift*' | sort; ls /var/lib")
	if before != after {
		t.Errorf("files before:\n%s\nafter reset:\n%s", before, after)
	}
	if out := output("systemctl", "list-units", "--all", "--plain", "--no-legend", "airlift-*"); strings.TrimSpace(out) != "" {
		t.Errorf("units after reset:\n%s", out)
	}
}

// A lab host is as LAB.md describes it: a container with cgroup v1, without
// CAP_SYS_RESOURCE, default route or resolver.
func TestPartFacts(t *testing.T) {
	ctx, h := part(t)
	f, err := detection.Detect(ctx, h.Root, detection.Options{AddressFlag: "--x", Networking: config.Networking{PodSubnet: config.ParseCIDRs("10.244.0.0/16"), ServiceSubnet: config.ParseCIDRs("10.96.0.0/12")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", f)
	if f.CgroupVersion != 1 || f.CgroupDriver != "cgroupfs" || !f.RestrictOOMScoreAdj || f.ConntrackWritable || f.DefaultRoute ||
		f.Hostname != "host1" || f.Interface != "eth0" || f.NodeIP != "10.77.0.11" || f.MTU < 1280 || f.NumCPU < 1 || f.MemoryBytes < 1<<30 {
		t.Errorf("facts: %+v", f)
	}
}

func unit(t *testing.T, h *host.Host, name, service string) {
	t.Helper()
	text := "[Service]\n" + service + "\n[Install]\nWantedBy=multi-user.target\n"
	if _, err := h.WriteFile("/etc/systemd/system/"+name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPartSystemd(t *testing.T) {
	ctx, h := part(t)
	const good, bad, slow = "airlift-good.service", "airlift-bad.service", "airlift-slow.service"
	unit(t, h, good, "ExecStart=/bin/sleep infinity")
	unit(t, h, bad, "Type=oneshot\nExecStart=/bin/sh -c 'echo the reason; exit 3'")
	unit(t, h, slow, "Type=oneshot\nExecStart=/bin/sleep 300")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	loaded := func() string { // when systemd last read the files of all units
		t.Helper()
		out, err := exec.Command("systemctl", "show", "--property", "UnitsLoadTimestampMonotonic").Output()
		must(err)
		return string(out)
	}
	before := loaded()
	must(h.Systemd().EnableNow(ctx, good))
	after := loaded()
	if after == before {
		t.Error("systemd has not read a new unit")
	}
	must(h.Systemd().EnableNow(ctx, good))
	must(h.Systemd().Reread(ctx, good, slow))
	if now := loaded(); now != after {
		t.Errorf("systemd has read its units again without a change: %s, before %s", now, after)
	}
	first, err := h.Systemd().Unit(ctx, good)
	must(err)
	if !first.Running() || first.MainPID == 0 || first.File != "/etc/systemd/system/"+good {
		t.Errorf("%+v", first)
	}
	if _, err := os.Stat("/etc/systemd/system/multi-user.target.wants/" + good); err != nil {
		t.Error(err)
	}
	must(h.Systemd().Restart(ctx, good))
	if second, err := h.Systemd().Unit(ctx, good); err != nil || second.MainPID == first.MainPID || !second.Running() {
		t.Errorf("after a restart: %+v %v", second, err)
	}

	err = h.Systemd().Start(ctx, bad)
	if err == nil || !strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "exit-code") || fault.Hint(err) == "" {
		t.Errorf("a unit that fails: %v (hint %q)", err, fault.Hint(err))
	}
	t.Log(err)

	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = h.Systemd().Start(short, slow)
	if err == nil || !strings.Contains(err.Error(), "still not done after 2s") || !strings.Contains(err.Error(), "activating") {
		t.Errorf("a unit that takes too long: %v", err)
	}

	if s, err := h.Systemd().Unit(ctx, "airlift-nosuch.service"); err != nil || s.Load != "not-found" {
		t.Errorf("a unit that does not exist: %+v %v", s, err)
	}
	if err := h.Systemd().Start(ctx, "airlift-nosuch.service"); err == nil {
		t.Error("a unit that does not exist was started")
	}
	must(h.Systemd().Stop(ctx, "airlift-nosuch.service"))
	must(h.Systemd().DisableNow(ctx, "airlift-nosuch.service"))
	must(h.Systemd().Stop(ctx, slow))
	for range 2 {
		must(h.Systemd().DisableNow(ctx, good))
	}
	if s, err := h.Systemd().Unit(ctx, good); err != nil || s.Running() {
		t.Errorf("after disabling: %+v %v", s, err)
	}
	_, err = uninstall.RemoveInstalled(ctx, h)
	must(err)
	if left, _ := filepath.Glob("/etc/systemd/system/*/airlift-*"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestPartNode prepares the host as init does. The test then reboots the host.
func TestPartNode(t *testing.T) {
	ctx, h := part(t)
	// In a container, systemd leaves the root mount private. The lab normally
	// changes that.
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := kernel.LoadModules(ctx, h, kernel.NodeModules()...); err != nil {
			t.Fatal(err)
		}
		warnings, err := kernel.SetSysctls(ctx, h, kernel.NodeSysctls(false, true))
		if err != nil {
			t.Fatal(err)
		}
		t.Log(warnings)
		if changed, err := kernel.ShareRoot(ctx, h); err != nil || changed != (i == 0) {
			t.Fatalf("making / shared, time %d: changed %t, %v", i+1, changed, err)
		}
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.InstallCommand(ctx, fmt.Sprintf("%x", sha256.Sum256(self))); err != nil {
			t.Fatal(err)
		}
		if err := kernel.EnsureServiceRoute(ctx, h, config.ParseCIDRs("10.96.0.0/12").Prefixes(), "eth0"); err != nil {
			t.Fatal(err)
		}
		h = open(t, "/")
	}
}

func TestPartReset(t *testing.T) {
	ctx, h := part(t)
	for range 2 {
		onHost := func(do func(context.Context, *host.Host) error) func(context.Context) error {
			return func(ctx context.Context) error { return do(ctx, h) }
		}
		steps := []struct {
			name string
			run  func(context.Context) error
		}{
			{"StopKubelet", onHost(uninstall.StopKubelet)}, {"KillPods", onHost(uninstall.KillPods)}, {"StopRuntime", onHost(uninstall.StopRuntime)}, {"Unmount", func(ctx context.Context) error { return uninstall.Unmount(ctx, h) }},
			{"RemoveInterfaces", onHost(podnetwork.RemoveInterfaces)}, {"RemoveRoutes", onHost(kernel.RemoveRoutes)},
			{"RemoveState", onHost(uninstall.RemoveState)},
			{"RemoveInstalled", func(ctx context.Context) error { _, err := uninstall.RemoveInstalled(ctx, h); return err }},
		}
		for _, s := range steps {
			if err := s.run(ctx); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		}
		if _, err := podnetwork.RemoveRules(ctx, h); err != nil {
			t.Error(err)
		}
		h = open(t, "/")
	}
	if _, err := os.Stat(ledger.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", ledger.StateDir, err)
	}
}

func TestPartPods(t *testing.T) {
	ctx, h := part(t)
	if err := h.Claim(ledger.Claim{Path: config.KubeletDir}); err != nil {
		t.Fatal(err)
	}
	start := func(path string, args ...string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command(path, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd
	}
	const cgroup = "/sys/fs/cgroup/memory/kubepods/burstable/pod1/container"
	if err := os.MkdirAll(cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	container := start("/bin/sleep", "60")
	if err := os.WriteFile(cgroup+"/cgroup.procs", []byte(strconv.Itoa(container.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	const shimPath = "/root/containerd-shim-runc-v2"
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(self, shimPath); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(shimPath)
	shim := start(shimPath, "-namespace", "k8s.io")
	other := start(shimPath, "-namespace", "moby")

	reaped := make(chan string, 2) // until it is reaped, a killed process keeps its ID
	go func() { reaped <- fmt.Sprint("container: ", container.Wait()) }()
	go func() { reaped <- fmt.Sprint("shim: ", shim.Wait()) }()
	for range 2 {
		if err := uninstall.KillPods(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if how := <-reaped; !strings.Contains(how, "killed") {
			t.Error(how)
		}
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory/kubepods"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pods' cgroups: %v", err)
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("a shim of another namespace was killed: %v", err)
	}
}

package kernel_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	utilsysctl "k8s.io/component-helpers/node/util/sysctl"

	"airlift/installer/host/kernel"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

func TestSetSysctls(t *testing.T) {
	const forward, bridge = "net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables"
	ctx := context.Background()

	t.Run("sets what differs and keeps it for the next boot", func(t *testing.T) {
		root := t.TempDir()
		testhost.Write(t, root+"/proc/sys/net/ipv4/ip_forward", "0\n", 0o644)
		testhost.Write(t, root+"/proc/sys/net/bridge/bridge-nf-call-iptables", "1\n", 0o644)
		warnings, err := kernel.SetSysctls(ctx, testhost.Open(t, root), kernel.NodeSysctls(false, true))
		if err != nil || len(warnings) != 0 {
			t.Fatalf("%v %v", warnings, err)
		}
		if got := testhost.Read(t, root+"/proc/sys/net/ipv4/ip_forward"); got != "1" {
			t.Errorf("ip_forward = %q", got)
		}
		file := testhost.Read(t, root+"/etc/sysctl.d/99-airlift.conf")
		for _, line := range []string{forward + " = 1\n", bridge + " = 1\n"} {
			if !strings.Contains(file, line) {
				t.Errorf("no %q in\n%s", line, file)
			}
		}
	})
	t.Run("a missing optional one is a warning", func(t *testing.T) {
		root := t.TempDir()
		testhost.Write(t, root+"/proc/sys/net/ipv4/ip_forward", "1\n", 0o644)
		warnings, err := kernel.SetSysctls(ctx, testhost.Open(t, root), kernel.NodeSysctls(false, true))
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], bridge) {
			t.Fatalf("%v %v", warnings, err)
		}
		if file := testhost.Read(t, root+"/etc/sysctl.d/99-airlift.conf"); !strings.Contains(file, "-"+bridge+" = 1\n") {
			t.Errorf("systemd-sysctl would fail on\n%s", file)
		}
	})
	t.Run("one that cannot be set is an error unless it is right already", func(t *testing.T) {
		root := t.TempDir()
		// Even root cannot write to a directory as if it were a file.
		testhost.Write(t, root+"/proc/sys/net/ipv4/ip_forward", "0\n", 0o644)
		if err := os.Remove(root + "/proc/sys/net/ipv4/ip_forward"); err != nil {
			t.Fatal(err)
		}
		_, err := kernel.SetSysctls(ctx, testhost.Open(t, root), kernel.NodeSysctls(false, true))
		if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), forward) {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("IPv6", func(t *testing.T) {
		for _, s := range kernel.NodeSysctls(true, false) {
			if strings.Contains(s.Name, "ipv4") || strings.HasSuffix(s.Name, "iptables") {
				t.Errorf("an IPv6 node is given %s", s.Name)
			}
		}
	})
}

// TestKubeletSysctls: a kubelet with protectKernelDefaults compares these parameters with these values.
func TestKubeletSysctls(t *testing.T) {
	want := map[string]int{
		utilsysctl.KernelPanic: utilsysctl.KernelPanicRebootTimeout, utilsysctl.KernelPanicOnOops: utilsysctl.KernelPanicOnOopsAlways,
		utilsysctl.RootMaxBytes: utilsysctl.RootMaxBytesSetting, utilsysctl.RootMaxKeys: utilsysctl.RootMaxKeysSetting,
		utilsysctl.VMOvercommitMemory: utilsysctl.VMOvercommitMemoryAlways, utilsysctl.VMPanicOnOOM: utilsysctl.VMPanicOnOOMInvokeOOMKiller,
	}
	for _, s := range kernel.KubeletSysctls() {
		name := strings.ReplaceAll(s.Name, ".", "/")
		if value, ok := want[name]; !ok || strconv.Itoa(value) != s.Value {
			t.Errorf("%s is %s, want %d", s.Name, s.Value, value)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

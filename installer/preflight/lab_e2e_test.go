//go:build e2e

package preflight_test

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/preflight"
	"airlift/scripts/lab"
)

const onLabHost = "AIRLIFT_ON_LAB_HOST"

// TestOnLabHost runs TestPartPreflight, below, on a host of the lab.
func TestOnLabHost(t *testing.T) {
	if os.Getenv(onLabHost) != "" {
		t.Skip("already there")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	l, err := lab.Up(ctx, lab.Options{Name: "preflight", Hosts: 1, Log: t.Logf})
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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := l.Hosts[0]
	if _, err := h.CopyIn(ctx, self, "/root/preflight.test", 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := h.Output(ctx, "env", onLabHost+"=1", "/root/preflight.test", "-test.v", "-test.run=^TestPartPreflight$")
	if err != nil || !strings.Contains(out, "--- PASS: TestPartPreflight") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
}

func TestPartPreflight(t *testing.T) {
	if os.Getenv(onLabHost) == "" {
		t.Skip("runs within TestOnLabHost")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h, err := host.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	facts, err := h.Detect(ctx, host.Options{AddressFlag: "--apiserver-advertise-address"})
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Facts: facts}
	c.KubernetesVersion = "v1.29.15"
	c.LocalAPIEndpoint = config.APIEndpoint{AdvertiseAddress: facts.NodeIP, BindPort: 6443}
	c.NodeRegistration.Name = facts.Hostname
	c.Networking = config.Networking{ServiceSubnet: "10.96.0.0/12", PodSubnet: "10.244.0.0/16"}
	target := preflight.Target{Config: c, Root: "/"}
	for _, role := range []preflight.Role{preflight.Init, preflight.Join} {
		target.Role = role
		report, err := preflight.Run(ctx, target, nil)
		if err != nil {
			t.Errorf("a fresh host cannot %s: %v", role, err)
		}
		t.Logf("%s: %+v", role, report.Warnings)
	}

	target.Role = preflight.Init
	const cgroup = "/sys/fs/cgroup/memory"
	if err := unix.Mount("", cgroup, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", ":2379")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = preflight.Run(ctx, target, nil)
	for _, want := range []string{"[ERROR SystemVerification]: " + cgroup + " is mounted read-only", "fix: mount -o remount,bind,rw " + cgroup,
		"[ERROR Port-2379]: port 2379 is in use by preflight.test"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	// The fix that it names is one.
	if err := unix.Mount("", cgroup, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := preflight.Run(ctx, target, nil); err != nil {
		t.Error(err)
	}
}

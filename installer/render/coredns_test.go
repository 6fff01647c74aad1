package render_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/render"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
)

// TestCoreDNSWithoutNameserver shows with the real CoreDNS why the Corefile has
// no forward on a host without a nameserver: with one, CoreDNS does not start.
func TestCoreDNSWithoutNameserver(t *testing.T) {
	coredns := rig.Component(t, oracle.Version, "coredns")
	if !inOwnNamespaces(t) {
		return
	}
	run(t, "ip", "link", "set", "lo", "up")
	empty := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "--bind", empty, "/etc/resolv.conf")

	start := func(nameservers []string) string {
		cfg := oracle.Plain(oracle.Version)
		cfg.Facts.Nameservers = nameservers
		corefile := find[*corev1.ConfigMap](t, must(render.CoreDNS(cfg)), "coredns").Data["Corefile"]
		// Outside a cluster, CoreDNS needs the address of an API server. It
		// starts even if none answers there.
		corefile = strings.Replace(corefile, "pods insecure", "endpoint http://127.0.0.1:1\n       pods insecure", 1)
		file := filepath.Join(t.TempDir(), "Corefile")
		if err := os.WriteFile(file, []byte(corefile), 0o644); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, coredns, "-conf", file)
		output, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		buffer := make([]byte, 4096)
		for !strings.Contains(log.String(), "CoreDNS-") { // the first line of a server that has started
			n, err := output.Read(buffer)
			log.Write(buffer[:n])
			if err != nil {
				break
			}
		}
		cancel()
		_ = cmd.Wait() // killed or exited; the log shows which
		return log.String()
	}

	if log := start([]string{"192.0.2.1"}); !strings.Contains(log, "no nameservers found") {
		t.Errorf("with a forward to an empty resolv.conf it says\n%s", log)
	}
	if log := start(nil); !strings.Contains(log, "CoreDNS-") {
		t.Errorf("without a forward it says\n%s", log)
	}
}

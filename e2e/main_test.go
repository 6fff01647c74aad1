//go:build e2e

// Package e2e copies a real bundle to isolated hosts and runs there what an operator
// runs, including failures. No packet leaves the hosts' network.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

var (
	bundlePath = flag.String("bundle", "../out/install", "the bundle file, as 'make bundle' writes it")
	profile    = flag.String("profile", "", "the profile with which init creates clusters")
	version    string // the bundle's Kubernetes version
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *listHosts {
		if err := printHostRows(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	path, err := filepath.Abs(*bundlePath)
	if err == nil {
		*bundlePath = path
		version, err = site.KubernetesVersion(path)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "no bundle to test: %v\nmake bundle builds it; make e2e does both\n", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := writeDurations("../out/e2e-durations.txt"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// up boots a site for the test, whose hosts have the bundle, and removes it at the end.
func up(t *testing.T, o lab.Options) *site.Site {
	t.Helper()
	s := boot(t, o)
	started := time.Now()
	if _, err := s.CopyBundle(t.Context(), *bundlePath); err != nil {
		t.Fatal(err)
	}
	t.Logf("bundle copied in %s", time.Since(started).Round(time.Millisecond))
	return s
}

// boot boots a site for the test and removes it at the end. Tests run in parallel, because
// each mostly waits for Kubernetes.
func boot(t *testing.T, o lab.Options) *site.Site {
	t.Helper()
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("the lab needs root")
	}
	o.Log = t.Logf
	measure(t)
	started := time.Now()
	s, err := site.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The context of the test has ended by now.
		if err := s.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d hosts up in %s", len(s.Hosts), time.Since(started).Round(time.Millisecond))
	return s
}

// install runs the installer and expects an exit code.
func install(t *testing.T, h *lab.Host, wantCode int, args ...string) string {
	t.Helper()
	if *profile != "" && args[0] == "init" && (len(args) == 1 || args[1] != "phase") {
		args = append(args[:len(args):len(args)], "--profile", *profile)
	}
	started := time.Now()
	out, err := site.Install(t.Context(), h, t.Output(), args...)
	t.Logf("%s: install %s took %s", h.Name, args[0], time.Since(started).Round(10*time.Millisecond))
	if code := exitCode(err); code != wantCode {
		t.Fatalf("%s: install %s: exit code %d, want %d: %v\n%s", h.Name, strings.Join(args, " "), code, wantCode, err, out)
	}
	return out
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// run runs a command on a host and returns its output.
func run(t *testing.T, h *lab.Host, argv ...string) string {
	t.Helper()
	out, err := h.Output(t.Context(), argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// contains fails unless text contains all of the given strings.
func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in:\n%s", w, text)
		}
	}
}

// kubectl runs kubectl as the administrator.
func kubectl(t *testing.T, s *site.Site, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually waits for something that takes time in a cluster, such as its recovery after a
// reboot. check returns "" for success, or else what is wrong.
func eventually(t *testing.T, limit time.Duration, check func() string) {
	t.Helper()
	started := time.Now()
	for {
		state := check()
		if state == "" {
			t.Logf("after %s", time.Since(started).Round(100*time.Millisecond))
			return
		}
		if time.Since(started) > limit {
			t.Fatalf("not after %s: %s", limit, state)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// untouched lists the files of a host, except those that every running system changes, to
// compare two listings. It does not include sysctls: reset does not restore them, because
// other software may use them.
func untouched(t *testing.T, h *lab.Host) string {
	t.Helper()
	return run(t, h, "sh", "-c", `
		find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /root \
			-o -path /var/lib/systemd \) -prune -o -printf '%p %y %m %U:%G %s\n' | grep -v -e '^/etc d' -e ' d 755 0:0 [0-9]*$' -e '^/etc/g*\(passwd\|group\|shadow\)- ' | sort # not the backups of the tools for accounts
		find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /root \) -prune -o -type d -print | sort
		ip -o link | sed -e 's/^[0-9]*: //' -e 's/@if[0-9]*//' -e 's/link-netnsid.*//' ; ip -4 route; ip -6 route
		for save in iptables-save ip6tables-save; do $save | grep -v -e '^[#*]' -e COMMIT -e '^:[A-Z]* ACCEPT' | sed 's/\[[0-9:]*\]//'; done
		systemctl list-unit-files --no-legend --state enabled
		awk '$3 !~ /^(cgroup|ramfs)/ {print $2, $3}' /proc/mounts | sort`)
}

// same fails with the differing lines of two listings.
func same(t *testing.T, before, after string) {
	t.Helper()
	have := map[string]int{}
	for line := range strings.Lines(before) {
		have[line]++
	}
	for line := range strings.Lines(after) {
		if have[line]--; have[line] < 0 {
			t.Errorf("new: %s", strings.TrimSpace(line))
		}
	}
	for line, n := range have {
		if n > 0 {
			t.Errorf("gone: %s", strings.TrimSpace(line))
		}
	}
}

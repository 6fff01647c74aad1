//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/fixtures/distro"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// carryPackages builds a bundle with Debian's nfs-common and all that a host needs for it, as apt finds out from the host's list of
// packages, and with packages of the test. It replaces the hosts' bundle by it.
func carryPackages(t *testing.T, hosts ...*lab.Host) {
	t.Helper()
	dir := t.TempDir()
	status, debs, own := filepath.Join(dir, "host.status"), filepath.Join(dir, "debs"), filepath.Join(dir, "own")
	if err := os.WriteFile(status, []byte(run(t, hosts[0], "cat", "/var/lib/dpkg/status")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(debs, "partial"), 0o755); err != nil {
		t.Fatal(err)
	}
	apt := exec.CommandContext(t.Context(), "apt-get", "install", "--download-only", "--no-install-recommends", "--yes", "--quiet",
		"-o", "Dir::State::status="+status, "-o", "Dir::Cache::archives="+debs+"/", "-o", "APT::Sandbox::User=root", "nfs-common")
	if out, err := apt.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"partial", "lock"} {
		if err := os.RemoveAll(filepath.Join(debs, name)); err != nil {
			t.Fatal(err)
		}
	}
	// Its script fails until a file of the test exists.
	distro.Deb(t, own, distro.Package{Name: "site-tool", Version: "1.0-1", Fields: "Depends: nfs-common", Conffile: "tool = 1\n",
		Scripts: map[string]string{"postinst": "test -e /root/fixed || { echo the tool finds no device; exit 1; }"}})
	worker := distro.Deb(t, dir, distro.Package{Name: "site-worker", Version: "1.0-1", Fields: "Pre-Depends: site-tool"})
	file := filepath.Join(dir, "bundle.yaml")
	text := fmt.Sprintf(`apiVersion: airlift/v1
kind: Bundle
packages:
- {source: debs, release: debian-12, installed: host.status}
- {source: own, release: debian-12}
- {source: %s, release: debian-12, nodes: worker}
`, filepath.Base(worker))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "packages")
	out := buildBundle(t, path, "--", "--file", file)
	contains(t, out, "nfs-common", "site-worker 1.0-1")
	if strings.Contains(out, "not checked, because only the hosts know it") {
		t.Errorf("the build did not use the host's list:\n%s", out)
	}
	for _, h := range hosts {
		if _, err := h.CopyIn(t.Context(), path, "/root/install", 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPackages: init and join install packages of Debian without a network, before they check the host. What cannot be installed is
// refused with nothing changed, a script that fails can be repaired, and reset removes only what Airlift installed.
func TestPackages(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-packages", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	carryPackages(t, s.Hosts...)
	installed := func(h *lab.Host) string {
		t.Helper()
		return run(t, h, "sh", "-c", `dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' | grep ' installed$'`)
	}
	before := map[*lab.Host]string{control: installed(control), worker: installed(worker)}
	if strings.Contains(before[control], "nfs-common ") {
		t.Fatal("the hosts have nfs-common already: nothing is tested")
	}
	var join []string
	for _, step := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"another release is refused, and nothing changes", func(t *testing.T) {
			was := untouched(t, control)
			run(t, control, "sh", "-c", `cp /usr/lib/os-release /root/os-release && sed -i 's/^VERSION_ID=.*/VERSION_ID="13"/' /usr/lib/os-release`)
			for _, args := range [][]string{{"init"}, {"packages"}, {"packages", "--dry-run"}, {"preflight", "init"}} {
				contains(t, install(t, control, 3, args...), "for other hosts (debian-12 ", "this host is debian-13")
			}
			run(t, control, "sh", "-c", "cat /root/os-release >/usr/lib/os-release")
			same(t, was, untouched(t, control))
		}},
		{"preflight and dry runs show what is missing", func(t *testing.T) {
			was := untouched(t, control)
			contains(t, install(t, control, 0, "preflight", "init"), "WARNING Packages", "install packages")
			contains(t, install(t, control, 0, "packages", "--dry-run"), "install: nfs-common ", "install: site-tool 1.0-1", "Nothing was changed.")
			contains(t, install(t, control, 0, "init", "--dry-run"), "would install the package nfs-common ")
			run(t, control, "sh", "-c", "rm -rf /tmp/airlift-*")
			same(t, was, untouched(t, control))
		}},
		{"a script that fails stops init before the preflight checks", func(t *testing.T) {
			out := install(t, control, 1, "init")
			contains(t, out, "] packages ", "the tool finds no device", "packages remove")
			if strings.Contains(out, "] preflight ") {
				t.Error("init went on")
			}
			contains(t, run(t, control, "sh", "-c", "dpkg-query -W -f '${db:Status-Status}' site-tool"), "half-configured")
		}},
		{"init completes them", func(t *testing.T) {
			run(t, control, "touch", "/root/fixed")
			out := install(t, control, 0, "init")
			contains(t, out, "] packages ", "completed site-tool 1.0-1, which was half-configured", "] preflight ")
			var err error
			if join, err = site.JoinArgs(out); err != nil {
				t.Fatal(err)
			}
			contains(t, installed(control), "nfs-common ", "rpcbind ", "site-tool 1.0-1 installed")
			if strings.Contains(installed(control), "site-worker") {
				t.Error("the control plane has the workers' package")
			}
			run(t, control, "test", "-x", "/usr/sbin/mount.nfs")
			contains(t, run(t, control, "systemctl", "is-active", "rpcbind.socket"), "active")
			if out, err := control.Output(t.Context(), "ls", "/var/lib/airlift/packages"); err == nil {
				t.Errorf("the packages are left: %s", out)
			}
		}},
		{"a second init changes nothing", func(t *testing.T) {
			contains(t, install(t, control, 0, "init"), "Nothing was changed")
			contains(t, install(t, control, 0, "packages", "--dry-run"), "0 of ")
		}},
		{"a worker gets its own, which waits for a configured one", func(t *testing.T) {
			run(t, worker, "touch", "/root/fixed")
			contains(t, install(t, worker, 0, join...), "] packages ", "installed site-worker 1.0-1")
			contains(t, installed(worker), "site-worker 1.0-1 installed", "nfs-common ")
		}},
		{"status reports what is missing, and packages repairs it", func(t *testing.T) {
			contains(t, install(t, worker, 0, "status"), "packages", "nfs-common ")
			run(t, worker, "dpkg", "--remove", "site-worker")
			contains(t, install(t, worker, 1, "status"), "the package site-worker 1.0-1 is not installed", "install packages")
			contains(t, install(t, worker, 0, "packages"), "installed site-worker 1.0-1")
			install(t, worker, 0, "status")
		}},
		{"packages remove takes only them", func(t *testing.T) {
			contains(t, install(t, worker, 0, "packages", "remove", "--dry-run"), "remove: package nfs-common ", "leave: configuration files of the package site-tool")
			install(t, worker, 0, "packages", "remove", "--yes")
			same(t, before[worker], installed(worker))
			contains(t, install(t, worker, 0, "packages"), "installed nfs-common ", "installed site-worker 1.0-1")
		}},
		{"reset leaves a package that another one needs, and removes the others", func(t *testing.T) {
			user := distro.Deb(t, t.TempDir(), distro.Package{Name: "site-user", Version: "1", Fields: "Depends: rpcbind"})
			if _, err := control.CopyIn(t.Context(), user, "/root/site-user.deb", 0o644); err != nil {
				t.Fatal(err)
			}
			run(t, control, "dpkg", "--install", "/root/site-user.deb")
			contains(t, install(t, control, 0, "reset", "--dry-run"), "package nfs-common ", "package rpcbind ", "site-user needs it")
			install(t, worker, 0, "reset", "--force")
			contains(t, install(t, control, 0, "reset", "--force"), "left: package rpcbind ", "site-user needs it")
			same(t, before[worker], installed(worker))
			now := strings.Split(installed(control), "\n")
			gone := slices.DeleteFunc(now, func(line string) bool {
				return strings.HasPrefix(line, "site-user ") || strings.HasPrefix(line, "rpcbind ") || strings.Contains(before[control], line+"\n")
			})
			for _, line := range gone {
				if line != "" && !strings.HasPrefix(line, "lib") { // libraries that rpcbind needs stay with it
					t.Errorf("%s is still installed", line)
				}
			}
			if strings.Contains(strings.Join(now, "\n"), "nfs-common ") || strings.Contains(strings.Join(now, "\n"), "site-tool ") {
				t.Error("nfs-common or site-tool is still installed")
			}
		}},
	} {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}

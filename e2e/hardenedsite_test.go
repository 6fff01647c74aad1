//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

const hardenedSite = withBalancer + "profile: hardened\n"

// settle runs apply until the plan is empty. A run may end with the exit code of work that is held or left, as the profile needs
// several runs.
func (m *multihost) settle(t *testing.T, apply func(args ...string) (string, int)) {
	t.Helper()
	began := time.Now()
	for n := 1; n <= 6; n++ {
		out, code := apply("cluster", "apply", "--yes")
		t.Logf("run %d of apply: exit code %d, after %.0f s", n, code, time.Since(began).Seconds())
		if code != 0 && code != 8 && code != 9 {
			t.Fatalf("exit code %d:\n%s", code, out)
		}
		plan, code := apply("cluster", "plan", "--detailed-exitcode")
		if code == 0 {
			return
		}
		t.Logf("what is left:\n%s", plan)
	}
	t.Fatal("the plan is not empty after 6 runs")
}

// file runs a bundle on the driver.
func (m *multihost) file(t *testing.T, file string) func(args ...string) (string, int) {
	return func(args ...string) (string, int) {
		var out bytes.Buffer
		err := m.driver.Exec(t.Context(), nil, &out, t.Output(), append([]string{file}, args...)...)
		return out.String(), exitCode(err)
	}
}

// audited expects that no automated check of the benchmark fails on a host of the cluster, and logs the table.
func (m *multihost) audited(t *testing.T, apply func(args ...string) (string, int)) {
	t.Helper()
	out, _ := apply("cluster", "audit", "-o", "json") // manual checks fail
	var report struct {
		Counts map[string]int
		Hosts  []struct {
			Name   string
			Error  string
			Report *auditReport
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %.2000s", err, out)
	}
	t.Logf("all hosts: %v", report.Counts)
	for _, h := range report.Hosts {
		if h.Report == nil {
			t.Errorf("%s: %s", h.Name, h.Error)
			continue
		}
		h.Report.passes(t, h.Name)
	}
	if len(report.Hosts) != len(m.nodes) {
		t.Errorf("%d hosts", len(report.Hosts))
	}
}

// TestHardenedSite takes three control planes and a worker through a life with the profile, by cluster apply: plain, hardened while
// requests flow, a backup, other keys, a restore of the backup with the former key, an upgrade, and plain again.
func TestHardenedSite(t *testing.T) {
	m := newMultihost(t, "e2e-hardsite", 3, 1)
	first, worker := m.nodes[0], m.nodes[3]
	u := &upgraded{Site: m.Site, control: first, worker: worker, planes: m.planes, hosts: m.nodes, to: carryNewer(t, m.driver)}
	older, next := m.file(t, site.Installer), m.file(t, newerFile)
	const backup = "/root/before.tar"
	reaches := func(t *testing.T) {
		for _, h := range m.nodes {
			servesSigned(t, m.nodes[1], h)
		}
	}
	encrypted := func(t *testing.T, h *lab.Host) {
		t.Helper()
		contains(t, install(t, h, 0, "secrets", "status"), "100 %")
		if got := kubectlAt(t, h, "get", "secret", "sealed", "-o", "jsonpath={.data.word}"); got != "a2VwdA==" {
			t.Errorf("the Secret has %q", got)
		}
	}
	inOrder(t, m.Site, []stage{
		{"a plain cluster", func(t *testing.T) {
			for _, h := range m.nodes[:m.planes] {
				if _, err := h.CopyIn(t.Context(), *bundlePath, site.Installer, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			m.describe(t, withBalancer, nil)
			m.apply(t)
			kubectl(t, m.Site, "create", "secret", "generic", "sealed", "--from-literal=word=kept")
			u.ask(t)
		}},
		{"it gets the profile, and Secrets are encrypted", func(t *testing.T) {
			m.describe(t, hardenedSite, nil)
			contains(t, m.cluster(t, 5, "plan", "--detailed-exitcode"), "Secrets are to be encrypted")
			m.settle(t, older)
			systemIsUp(t, m.Site, len(m.nodes))
		}},
		{"every request was answered on the way", u.answered},
		{"kubelets have certificates of the cluster, etcd its user, Secrets a key", func(t *testing.T) {
			reaches(t)
			for _, h := range m.nodes[:m.planes] {
				etcdUser(t, h)
				encrypted(t, h)
			}
		}},
		{"no automated check fails", func(t *testing.T) { m.audited(t, older) }},
		{"other keys, after a backup", func(t *testing.T) {
			install(t, first, 0, "etcd", "snapshot", backup)
			u.start(t)
			for range 6 {
				_, err := first.Output(t.Context(), site.Installer, "secrets", "rotate", "--yes")
				code := exitCode(err)
				if code != 0 && code != 9 {
					t.Fatalf("secrets rotate: exit code %d", code)
				}
				for _, h := range m.nodes[1:m.planes] {
					install(t, h, 0, "reconfigure", "node")
				}
				if code == 0 {
					break
				}
			}
			u.answered(t)
			for _, h := range m.nodes[:m.planes] {
				encrypted(t, h)
			}
		}},
		{"the backup with the former key is restored, and the hosts join", func(t *testing.T) {
			key := run(t, first, "grep", "-c", "retired", encryptionFile)
			if strings.TrimSpace(key) == "0" {
				t.Error("no key is retired")
			}
			m.cluster(t, 0, "reset", "--force", "--yes")
			install(t, first, 0, "etcd", "restore", backup)
			run(t, first, "sh", "-c", "! grep retired "+encryptionFile)
			encrypted(t, first)
			etcdUser(t, first)
			kubectlAt(t, first, "delete", "node", worker.Name)
			m.settle(t, older)
			systemIsUp(t, m.Site, len(m.nodes))
			reaches(t)
			for _, h := range m.nodes[:m.planes] {
				encrypted(t, h)
				etcdUser(t, h)
			}
			m.audited(t, older)
		}},
		{"upgrade", func(t *testing.T) {
			u.start(t)
			m.settle(t, next)
			u.have(t, slices.Repeat([]string{u.to}, len(m.nodes))...)
			u.answered(t)
			reaches(t)
			m.audited(t, next)
		}},
		{"plain again: Secrets stay encrypted", func(t *testing.T) {
			m.describe(t, withBalancer+"profile: none\n", nil)
			u.start(t)
			m.settle(t, next)
			u.answered(t)
			systemIsUp(t, m.Site, len(m.nodes))
			for _, h := range m.nodes[:m.planes] {
				encrypted(t, h)
				run(t, h, "sh", "-c", "! grep ^etcd: /etc/passwd && ! test -e /etc/systemd/system/airlift-serving.service")
			}
		}},
		{"no packet tried to leave", func(t *testing.T) { noEscapes(t, m.Site) }},
	})
}

// TestAdoptHardened gives the profile to a cluster that real kubeadm made, and takes it away.
func TestAdoptHardened(t *testing.T) {
	a := newAdopting(t, lab.Options{Name: "e2e-adopthard", Hosts: 2}, 1, packageLayout, kubesprayLayout)
	profile := func(t *testing.T, name string) {
		for range 2 {
			install(t, a.control, 0, "reconfigure", "--profile", name, "--yes")
			install(t, a.worker, 0, "reconfigure", "node")
			a.ready(t, version)
		}
		install(t, a.control, 0, "reconfigure", "--profile", name, "--plan", "--detailed-exitcode")
	}
	inOrder(t, a.Site, []stage{
		{"kubeadm makes a cluster, and Airlift adopts it", func(t *testing.T) {
			a.make(t)
			for _, h := range a.hosts {
				a.bare[h] = nodeListing(t, h)
				install(t, h, 0, "adopt")
			}
		}},
		{"it gets the profile", func(t *testing.T) {
			profile(t, "hardened")
			servesSigned(t, a.control, a.control)
			etcdUser(t, a.control)
			out, _ := a.control.Output(t.Context(), site.Installer, "audit")
			for line := range strings.Lines(out) {
				if strings.Contains(line, "(automated)") {
					t.Logf("%s", line)
				}
			}
		}},
		{"and loses it: what kubeadm wrote is there again", func(t *testing.T) {
			profile(t, "none")
			for _, h := range a.hosts {
				t.Logf("%s: new: %q", h.Name, newLines(withoutCredentials(a.bare[h]), withoutCredentials(nodeListing(t, h))))
			}
			run(t, a.control, "sh", "-c", "! grep -E 'hardened|audit-|encryption-|profiling=' /etc/kubernetes/manifests/*.yaml; ! grep ^etcd: /etc/passwd; test ! -e /etc/kubernetes/etcd")
		}},
		{"a node that was changed is not reset, but disowned", func(t *testing.T) {
			contains(t, install(t, a.control, 3, "reset", "--force"), "reconfigured after it was adopted", "disown")
			for _, h := range a.hosts {
				install(t, h, 0, "disown", "--yes")
				run(t, h, "sh", "-c", "! test -e /var/lib/airlift && ! test -e /usr/local/bin/airlift")
			}
			a.ready(t, version)
		}},
	})
}

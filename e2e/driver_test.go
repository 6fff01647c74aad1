//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/bundle"
	gauge "airlift/scripts/bench/measure"
	"airlift/scripts/fixtures/sshhost"
)

// driverHosts are the numbers of hosts of BenchmarkDriver. Issues and other tools speak of sites of up to thirty.
var driverHosts = []int{1, 10, 30}

// BenchmarkDriver measures what the machine that runs "install cluster" needs as the number of hosts grows. The hosts are
// real sshd processes, each with a network, a name and files of its own, on the processors of the driver. First, nothing is
// on them, and the driver brings its installer and removes it again; "again" is with an installer in place.
//
//	AIRLIFT_RIG=1 go test -tags e2e ./e2e -run '^$' -bench Driver -benchtime 1x -v
func BenchmarkDriver(b *testing.B) {
	s := newDriverSite(b, slices.Max(driverHosts))
	for _, n := range driverHosts {
		s.describe(b, n)
		s.measure(b, fmt.Sprintf("hosts=%d", n), func(sent int64) bool { return sent > int64(n)*s.size })
		s.place(b, n)
		s.measure(b, fmt.Sprintf("hosts=%d/again", n), func(sent int64) bool { return sent < s.size })
	}
}

// A driverSite is hosts, and a machine next to them.
type driverSite struct {
	network *sshhost.Network
	hosts   []*sshhost.Host
	home    string // of the user on the machine next to them
	gauge   string
	thin    string // the file with the installer
	size    int64  // of thin
}

func newDriverSite(b *testing.B, hosts int) *driverSite {
	s := &driverSite{network: sshhost.NewNetwork(b), home: b.TempDir()}
	var known strings.Builder
	for range hosts {
		h := s.network.Start(b)
		s.hosts = append(s.hosts, h)
		fmt.Fprintf(&known, "%s %s\n", h.Address, h.HostKey)
	}
	s.save(b, ".ssh/known_hosts", known.String())
	var err error
	if s.gauge, err = gauge.BuildGauge(b.Context(), s.home); err != nil {
		b.Fatal(err)
	}
	file, err := bundle.Open(*bundlePath)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	s.thin = filepath.Join(s.home, "thin")
	if s.size, err = bundle.WriteThin(b.Context(), file, s.thin); err != nil {
		b.Fatal(err)
	}
	return s
}

func (s *driverSite) save(b *testing.B, name, text string) {
	name = filepath.Join(s.home, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// describe writes a cluster.yaml of some hosts, all without an installer.
func (s *driverSite) describe(b *testing.B, n int) {
	text := "apiVersion: airlift/v1\nkind: Cluster\nname: site\nhosts:\n"
	role := "control-plane"
	for i, h := range s.hosts[:n] {
		text += fmt.Sprintf("- {name: host%d, role: %s, address: %s, ssh: {keyPath: %s}}\n", i+1, role, h.Address, h.Key)
		role = "worker"
		if err := os.RemoveAll(h.Root() + "/var/lib/airlift"); err != nil {
			b.Fatal(err)
		}
	}
	s.save(b, "cluster.yaml", text)
}

// place puts the installer on hosts.
func (s *driverSite) place(b *testing.B, n int) {
	data, err := os.ReadFile(s.thin)
	if err != nil {
		b.Fatal(err)
	}
	for _, h := range s.hosts[:n] {
		dir := h.Root() + "/var/lib/airlift/cluster"
		if err := os.MkdirAll(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(dir+"/install", data, 0o700); err != nil {
			b.Fatal(err)
		}
	}
}

// measure runs the commands that change nothing. fits judges the bytes that plan has sent.
func (s *driverSite) measure(b *testing.B, name string, fits func(sent int64) bool) {
	for _, c := range []struct {
		verb string
		code int // hosts without systemd fail the preflight checks, and there are no nodes
	}{{"preflight", 3}, {"plan", 0}, {"status", 1}} {
		b.Run(name+"/"+c.verb, func(b *testing.B) {
			receivedBefore, sentBefore := s.network.Traffic(b)
			used := s.run(b, c.code, c.verb)
			received, sent := s.network.Traffic(b)
			if !fits(sent - sentBefore) {
				b.Errorf("%d bytes were sent, and the installer has %d", sent-sentBefore, s.size)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(used.Wall.Seconds(), "s")
			b.ReportMetric(used.CPU.Seconds(), "s-CPU")
			b.ReportMetric(float64(used.Memory)/1e6, "MB-resident")
			b.ReportMetric(float64(sent-sentBefore)/1e6, "MB-sent")
			b.ReportMetric(float64(received-receivedBefore)/1e6, "MB-received")
		})
	}
}

// run runs a command of the driver, and returns what it took.
func (s *driverSite) run(b *testing.B, code int, verb string) (used gauge.Usage) {
	file := filepath.Join(s.home, "used.json")
	cmd := s.network.Command(s.gauge, file, *bundlePath, "cluster", verb, "-f", filepath.Join(s.home, "cluster.yaml"))
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + s.home}
	out, err := cmd.CombinedOutput()
	if exitCode(err) != code {
		b.Fatalf("cluster %s: exit code %d, want %d: %v\n%s", verb, exitCode(err), code, err, out)
	}
	b.Logf("%s\n%s", time.Now().Format(time.TimeOnly), bytes.TrimSpace(out))
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &used)
	}
	if err != nil {
		b.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		b.Fatal(err)
	}
	return used
}

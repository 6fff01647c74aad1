//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// TestSeedTimes measures the same five hosts, three times each and in turns: from power on by a seed, and by `cluster apply` and by one command
// after the other over SSH, from the moment at which all hosts run. It fails on errors only.
func TestSeedTimes(t *testing.T) {
	bundle := buildBundleCommand(t)
	m := newMultihost(t, "e2e-seedtimes", 3, 2)
	m.describeHosts(t, withBalancer, m.entriesByLabel(t))
	userData := writeSeed(t, bundle, run(t, m.driver, "cat", "/root/cluster.yaml"), m.nodes)
	took := map[string][]float64{}
	ways := []struct {
		name         string
		prepare, run func()
	}{
		{"seed", func() {
			for _, h := range m.nodes {
				firstBoot(t, h, userData)
			}
			atOnce(m.nodes, func(h *lab.Host) {
				if err := h.PowerCut(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}, func() {
			began := time.Now()
			for _, h := range m.nodes {
				if err := h.Boot(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("all hosts run after %.1f s", time.Since(began).Seconds())
			var memory string
			eventually(t, 7*time.Minute, func() string {
				if out, err := m.nodes[0].Output(t.Context(), "sh", "-c", "grep VmHWM /proc/$(pgrep -o -f '[s]eed run')/status"); err == nil {
					memory = out
				}
				if record, err := m.nodes[0].Output(t.Context(), "cat", "/var/lib/airlift/seed/record.json"); err != nil || !strings.Contains(record, `"state": "ended"`) {
					return "the first control plane: " + seedLog(t, m.nodes[0], 2)
				}
				return ""
			})
			t.Logf("the seed ended after %.1f s; its own process on the first control plane: %s", time.Since(began).Seconds(), strings.Join(strings.Fields(memory), " "))
		}},
		{"cluster apply", func() {}, func() { m.apply(t) }},
		{"commands", func() {}, func() { m.byCommands(t) }},
	}
	for range 3 {
		for _, way := range ways {
			way.prepare()
			began := time.Now()
			way.run()
			systemIsUp(t, m.Site, len(m.nodes))
			took[way.name] = append(took[way.name], time.Since(began).Seconds())
			for _, h := range m.nodes {
				run(t, h, "/usr/local/bin/airlift", "reset", "--force")
			}
		}
	}
	for _, way := range ways {
		slices.Sort(took[way.name])
		t.Logf("%s: all pods of five hosts Ready after %.1f s", way.name, took[way.name])
	}
}

// entriesByLabel returns the nodes for cluster.yaml, and gives each host its label.
func (m *multihost) entriesByLabel(t *testing.T) string {
	t.Helper()
	var hosts strings.Builder
	for _, h := range m.nodes {
		run(t, h, "mkdir", "-p", "/etc/airlift")
		write(t, h, "/etc/airlift/label", "rack-"+h.Name+"\n")
		hosts.WriteString(m.entry(h, ", nodeIP: "+h.Addr.String()+", match: {label: rack-"+h.Name+"}"))
	}
	return hosts.String()
}

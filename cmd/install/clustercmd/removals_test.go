package clustercmd

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"airlift/installer/multihost/spec"
	"airlift/scripts/fixtures/modelsite"
	"airlift/scripts/fixtures/seed"
)

// state is what a removal may change on a host: the node, and what was begun there.
func state(m *modelsite.Machine) string {
	return fmt.Sprintf("version %q, unfinished %q, adopted %v", m.Version, m.Unfinished, m.Adopted)
}

// Removals on random sites: hosts of another cluster and other nodes at the addresses, adopted nodes, an endpoint at a host, no API,
// and a driver that is killed at any of its commands. A host that is not the one in cluster.yaml never changes, a refusal changes
// nothing, a host that stays in the file stays a node, and on a site that is as described the same command again ends.
func TestGeneratedRemovals(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	c := newConsole(t)
	for range 25 {
		c.use()
		c.describe(description)
		c.clear()
		c.want(0, nil, "", "apply", "--yes")
		strange := map[string]bool{}
		var story []string
		for _, name := range []string{"cp1", "cp2", "cp3", "w1", "w2"} {
			m := c.w.Hosts[name]
			what := []string{"", "", "", "", "another cluster", "another node", "another role", "adopted"}[random.IntN(8)]
			switch what {
			case "another cluster":
				m.Cluster = "plant"
			case "another node":
				m.Hostname = "other-" + name
			case "another role":
				m.Is = map[string]string{spec.ControlPlane: spec.Worker, spec.Worker: spec.ControlPlane}[m.Role]
			case "adopted":
				m.Adopted = true
			}
			strange[name] = what != "" && what != "adopted"
			story = append(story, name+" is "+what)
		}
		args, leaves, whole := []string{"reset", "--force", "--yes"}, "", random.IntN(2) == 0
		c.w.APIDown = whole && random.IntN(2) == 0
		if !whole {
			leaves = []string{"cp3", "w1", "w2"}[random.IntN(3)]
			text := description
			if random.IntN(3) == 0 {
				c.w.Endpoint = "10.0.0.12:6443" // of cp3
				text = strings.Replace(text, "vip: 10.0.0.9", "address: 10.0.0.12", 1)
			}
			c.describe(without(text, leaves))
			args = []string{"apply", "--yes", "--remove"}
		}
		story = append(story, fmt.Sprint(args, " ", leaves, " ", c.w.Endpoint, " API down ", c.w.APIDown))
		before, states := c.w.State(), map[string]string{}
		for name, m := range c.w.Hosts {
			states[name] = state(m)
		}
		check := func(code any) {
			t.Helper()
			for name, m := range c.w.Hosts {
				mayGo := whole || name == leaves
				if now := state(m); now != states[name] && (strange[name] || !mayGo) {
					t.Fatalf("%q: %s changed from %s to %s (%v)", story, name, states[name], now, code)
				}
			}
		}
		if random.IntN(2) == 0 {
			c.kill(1+random.IntN(60), 1+random.IntN(3), args...)
			check("killed")
			before = c.w.State()
		}
		out, code := c.run("", args...)
		check(code)
		if code == 3 && c.w.State() != before {
			t.Fatalf("%q: refused, and\n%s\nis\n%s\n%s", story, before, c.w.State(), out)
		}
		anyStrange := slices.Contains([]bool{strange["cp1"], strange["cp2"], strange["cp3"], strange["w1"], strange["w2"]}, true)
		atEndpoint := leaves == "cp3" && c.w.Endpoint == "10.0.0.12:6443"
		switch {
		case (anyStrange && whole || atEndpoint) && code != 3:
			t.Fatalf("%q: exit code %d\n%s", story, code, out)
		case !anyStrange && !atEndpoint && code != 0:
			t.Fatalf("%q: exit code %d\n%s", story, code, out)
		case code == 0 && !anyStrange:
			for name, m := range c.w.Hosts {
				if (whole || name == leaves) && (m.Version != "" || len(m.Files) > 0) {
					t.Fatalf("%q: %s still is a node\n%s", story, name, out)
				}
			}
		}
	}
}

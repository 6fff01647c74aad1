package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
)

// aNode is what answers at an address: which node of which cluster it is in truth, and what its facts are.
type aNode struct {
	cluster, name, role string // cluster is its CA; "" for a bare host
	clusterName         string
	*facts.Facts
}

// answering draws what answers at the address of a host of the file.
func answering(t *rapid.T, h spec.Host) aNode {
	n := aNode{cluster: "aa", name: h.Name, role: h.Role, clusterName: "site"}
	names := rapid.SampledFrom([]string{"cp0", "cp1", "w0", "w1", "x"})
	switch rapid.SampledFrom([]string{"it", "it", "it", "another", "another host", "bare"}).Draw(t, "what answers") {
	case "another":
		n.cluster, n.clusterName = "bb", rapid.SampledFrom([]string{"site", "plant"}).Draw(t, "name of the other cluster")
		fallthrough
	case "another host":
		n.name, n.role = names.Draw(t, "its name"), rapid.SampledFrom([]string{spec.ControlPlane, spec.Worker}).Draw(t, "its role")
	case "bare":
		n.cluster = ""
		n.Facts = &facts.Facts{Hostname: h.Name, Unfinished: rapid.SampledFrom([]string{"", "import", "join"}).Draw(t, "unfinished")}
		return n
	}
	n.Facts = &facts.Facts{Hostname: rapid.SampledFrom([]string{n.name, n.name, "machine-" + n.name}).Draw(t, "hostname")}
	n.Node = &facts.Node{Name: n.name, Role: n.role, Airlift: true, Adopted: rapid.Bool().Draw(t, "adopted"), CASHA256: n.cluster}
	if n.role == spec.ControlPlane {
		n.Node.ClusterName = n.clusterName
		if rapid.Bool().Draw(t, "its API answers") {
			n.Cluster = &facts.Cluster{Name: n.clusterName}
		}
	}
	n.interrupt(t)
	return n
}

// interrupt draws a reset that did not finish: a part of the files is gone, and the ledger has what the node was.
func (n *aNode) interrupt(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "interrupted") > 0 {
		return
	}
	n.Unfinished, n.Cluster = "reset", nil
	was := *n.Node
	n.Was, n.Node.Adopted = &was, false
	if rapid.Bool().Draw(t, "manifests are gone") {
		n.Node.Role, n.Node.ClusterName = spec.Worker, ""
	}
	if rapid.Bool().Draw(t, "certificates are gone") {
		n.Node.Name, n.Node.CASHA256 = "", ""
	}
	if rapid.Bool().Draw(t, "all files are gone") {
		n.Node = nil
	}
}

// A reset that is not refused finds at each address the host that the file describes, all of one cluster with the name in the file.
// If all hosts are as described, also after an interrupted reset, it is not refused. Each refusal names the host and a way out.
func TestResetOfTheHostsInTheFile(t *testing.T) {
	refused, allowed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := &spec.Cluster{Name: "site"}
		for _, name := range []string{"cp0", "cp1", "w0", "w1"} {
			role := spec.ControlPlane
			if strings.HasPrefix(name, "w") {
				role = spec.Worker
			}
			c.Hosts = append(c.Hosts, spec.Host{Name: name, Role: role})
		}
		answers, hosts := map[string]plan.Answer{}, []aNode{}
		for _, h := range c.Hosts {
			n := answering(t, h)
			hosts = append(hosts, n)
			answers[h.Name] = plan.Answer{Facts: n.Facts}
		}
		var strange []string
		known, first := false, ""
		for i, h := range c.Hosts {
			n := hosts[i]
			if n.cluster == "" {
				continue
			}
			if n.name != h.Name || n.role != h.Role || n.clusterName != c.Name || first != "" && n.cluster != first {
				strange = append(strange, h.Name)
			}
			known = known || n.role == spec.ControlPlane
			if first == "" {
				first = n.cluster
			}
		}
		problems := plan.CheckReset(c, answers)
		text := fmt.Sprintf("%+v", problems)
		switch {
		case len(problems) == 0 && len(strange) > 0:
			t.Fatalf("%q are other hosts, and would be reset", strange)
		case len(problems) > 0 && len(strange) == 0 && (known || first == ""):
			t.Fatalf("all hosts are as described: %s", text)
		case len(problems) > 0:
			refused++
		default:
			allowed++
		}
		for _, p := range problems {
			if p.Host == "" || p.What == "" || p.Why == "" || !strings.Contains(p.Hint, "./install reset") {
				t.Fatalf("%+v", p)
			}
		}
	})
	if refused == 0 || allowed == 0 {
		t.Errorf("%d refused, %d allowed", refused, allowed)
	}
}

// What a worker reports of the cluster, and which CA it shows, makes no other host a stranger, and hides none.
func TestAWorkerClaimsNoCluster(t *testing.T) {
	claims := 0
	rapid.Check(t, func(t *rapid.T) {
		c := &spec.Cluster{Name: "site"}
		answers, lies := map[string]plan.Answer{}, map[string]bool{}
		for _, name := range rapid.Permutation([]string{"cp0", "cp1", "w0", "w1", "w2"}).Draw(t, "order") {
			role := spec.ControlPlane
			if strings.HasPrefix(name, "w") {
				role = spec.Worker
			}
			c.Hosts = append(c.Hosts, spec.Host{Name: name, Role: role})
			f := &facts.Facts{Hostname: name, Node: &facts.Node{Name: name, Role: role, Airlift: true, CASHA256: "aa"}}
			switch {
			case role == spec.ControlPlane:
				f.Node.ClusterName = "site"
			case rapid.Bool().Draw(t, name+" lies"):
				f.Node.CASHA256 = rapid.SampledFrom([]string{"aa", "bb", "cc"}).Draw(t, "CA")
				f.Node.ClusterName = rapid.SampledFrom([]string{"", "site", "plant"}).Draw(t, "name of the cluster")
				if rapid.Bool().Draw(t, "reports the state of a cluster") {
					f.Cluster = &facts.Cluster{Name: rapid.SampledFrom([]string{"site", "plant"}).Draw(t, "its name")}
				}
				lies[name] = f.Node.CASHA256 != "aa"
			}
			answers[name] = plan.Answer{Facts: f}
		}
		for what, problems := range map[string][]plan.Problem{"commands": plan.OtherClusters(c, answers), "reset": plan.CheckReset(c, answers)} {
			named := map[string]bool{}
			for _, p := range problems {
				named[p.Host] = true
			}
			for _, h := range c.Hosts {
				if named[h.Name] != lies[h.Name] {
					t.Fatalf("%s: %s has another CA: %v; %+v", what, h.Name, lies[h.Name], problems)
				}
			}
			claims += len(problems)
		}
	})
	if claims == 0 {
		t.Error("no worker has another CA")
	}
}

package clustertest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
)

// A Result is what a test found. Its JSON is documented in docs/test.md: fields are only added.
type Result struct {
	Passed  bool      `json:"passed"`
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"`
	Nodes   []Node    `json:"nodes"`
	// Findings are what is wrong, causes first.
	Findings []diagnosis.Finding `json:"findings"`
	Notes    []string            `json:"notes"` // what was not tested, and what is no failure
	Counts   []Count             `json:"counts"`
	Losses   []probe.Loss        `json:"losses"` // of requests that were sent again and again while the test ran
	// Addresses are the addresses that the load balancer gave to the Service of the test.
	Addresses []Address `json:"addresses"`
}

// A Node is a node of the cluster.
type Node struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	Ready    bool   `json:"ready"`
	Cordoned bool   `json:"cordoned"`
}

// An Address is an address of a Service of type LoadBalancer, and the node that answers for it.
type Address struct {
	Address string `json:"address"`
	Node    string `json:"node"`
}

// A Count is how many observations of a kind there are.
type Count struct {
	Kind   diagnosis.Kind `json:"kind"`
	Passed int            `json:"passed"`
	Failed int            `json:"failed"`
}

func (t *Test) result(began time.Time) *Result {
	r := &Result{Time: began.UTC().Truncate(time.Second), Nodes: []Node{}, Counts: []Count{}, Losses: []probe.Loss{}, Addresses: append([]Address{}, t.balanced...)}
	facts := diagnosis.Facts{Nodes: t.site.names, Planes: sorted(t.site.api), Tunnel: t.tunnel}
	for _, p := range t.site.system {
		if p.Namespace == flannelNamespace && p.Labels["app"] != "" {
			facts.Network = p.Namespace + " app=" + p.Labels["app"]
		}
	}
	for _, n := range t.site.nodes {
		ready, _ := cluster.NodeReady(&n)
		_, plane := n.Labels[cluster.ControlPlaneLabel]
		role := cluster.WorkerRole
		if plane {
			role = cluster.ControlPlaneRole
		}
		r.Nodes = append(r.Nodes, Node{n.Name, role, ready, n.Spec.Unschedulable})
	}
	for _, l := range t.losses {
		o := diagnosis.Observation{Kind: diagnosis.Steady, Via: l.Via, OK: l.Lost == 0}
		if !o.OK {
			o.Detail = fmt.Sprintf("%d of %d requests: %s", l.Lost, l.Sent, l.Error)
		}
		t.seen = append(t.seen, o)
	}
	r.Losses = append(r.Losses, sums(t.losses, t.reports)...)
	r.Findings = append([]diagnosis.Finding{}, diagnosis.Diagnose(facts, t.seen)...)
	r.Notes = append([]string{}, t.notes...)
	for _, kind := range diagnosis.Kinds {
		c := Count{Kind: kind}
		for _, o := range t.seen {
			switch {
			case o.Kind != kind:
			case o.OK:
				c.Passed++
			default:
				c.Failed++
			}
		}
		if c.Passed+c.Failed > 0 {
			r.Counts = append(r.Counts, c)
		}
	}
	r.Passed = len(r.Findings) == 0 && len(t.site.tested) > 0
	r.Seconds = float64(time.Since(began).Milliseconds()) / 1000
	return r
}

// sums adds up the losses of all probes, by what was asked.
func sums(losses []probe.Loss, reports []*probe.Report) (list []probe.Loss) {
	list = append(list, losses...)
	for _, r := range reports {
	next:
		for _, l := range r.Losses {
			for i := range list {
				if list[i].Via == l.Via {
					list[i].Sent, list[i].Lost = list[i].Sent+l.Sent, list[i].Lost+l.Lost
					if list[i].Error == "" {
						list[i].Error = l.Error
					}
					continue next
				}
			}
			list = append(list, l)
		}
	}
	return list
}

// Write prints the result.
func (r *Result) Write(out io.Writer) {
	var names []string
	for _, n := range r.Nodes {
		name := n.Name
		switch {
		case !n.Ready:
			name += " (not Ready)"
		case n.Cordoned:
			name += " (cordoned)"
		}
		names = append(names, name)
	}
	fmt.Fprintf(out, "%d nodes in %.0f s: %s\n", len(r.Nodes), r.Seconds, strings.Join(names, ", "))
	passed, failed := 0, 0
	for _, c := range r.Counts {
		passed, failed = passed+c.Passed, failed+c.Failed
	}
	for _, g := range groups {
		ok, all := 0, 0
		for _, c := range r.Counts {
			if strings.Contains(g.kinds, " "+string(c.Kind)+" ") {
				ok, all = ok+c.Passed, all+c.Passed+c.Failed
			}
		}
		if all > 0 {
			fmt.Fprintf(out, "  %-18s %d of %d\n", g.title, ok, all)
		}
	}
	for _, l := range r.Losses {
		fmt.Fprintf(out, "  requests to %s: %d lost of %d\n", l.Via, l.Lost, l.Sent)
	}
	for i, f := range r.Findings {
		fmt.Fprintf(out, "\n%d. %s: %s\n", i+1, f.Layer, f.Text)
		for _, e := range f.Evidence {
			fmt.Fprintf(out, "   seen: %s\n", e)
		}
		if more := f.Explains - len(f.Evidence); more > 0 {
			fmt.Fprintf(out, "         and %d more\n", more)
		}
		fmt.Fprintf(out, "   type: %s\n", f.Fix)
	}
	for i, n := range r.Notes {
		if i == 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "note: %s\n", n)
	}
	if r.Passed {
		fmt.Fprintf(out, "\nThe cluster passed: %d of %d.\n", passed, passed+failed)
	}
}

// groups are the lines of the text, with the kinds that each counts.
var groups = []struct{ title, kinds string }{
	{"nodes", " node component pod-start probe clock forwarding "},
	{"hosts", " host host-large "},
	{"pods", " pod pod-heard pod-large pod-bulk host-pod route "},
	{"Services", " proxy-health local service node-port host-port "},
	{"DNS", " dns-pods dns-pod dns-service resolver "},
	{"NetworkPolicy", " policy "},
	{"API", " api "},
	{"embedded registry", " registry pull "},
	{"volume", " volume "},
	{"load balancer", " address address-node address-heard address-reach "},
}

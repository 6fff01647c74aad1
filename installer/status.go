package installer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/host"
	"airlift/installer/pki"
)

// States of a manifest.
const (
	stateApplied    = "applied"            // as it is in this bundle
	stateDifferent  = "different"          // another version of it is applied
	stateIncomplete = "incomplete"         // a run was interrupted, or objects wait for a worker
	stateMissing    = "not applied"        // only in this bundle
	stateElsewhere  = "not in this bundle" // only in the cluster
)

// A Status is the state of this node and of the site's manifests.
type Status struct {
	Node      cluster.NodeState `json:"node"`
	Manifests []ManifestStatus  `json:"manifests"`

	apply string // the command that applies the manifests of this bundle
}

// A ManifestStatus is the state of one of the site's manifests in the cluster.
type ManifestStatus struct {
	Name    string                `json:"name"`
	Chart   string                `json:"chart,omitempty"`
	State   string                `json:"state"`
	Applied string                `json:"applied,omitempty"` // when init last changed something
	Objects []cluster.ObjectState `json:"objects,omitempty"`
	Later   []string              `json:"later,omitempty"` // objects that are not applied before a worker joins
}

// ReadStatus reads the state of this node and of the site's manifests from the cluster.
// kubeconfig is that of an administrator.
func ReadStatus(ctx context.Context, b *Bundle, h *host.Host, kubeconfig string) (*Status, error) {
	name := pki.NodeName(newMachine(h, &Console{}).files())
	switch {
	case name == "" && fileExists(h, kubeletConf):
		return nil, fault.New(fault.Failure, "run it with sudo or as root", "%s does not have this node's name, or cannot be read", kubeletConf)
	case name == "":
		return nil, fault.New(fault.Failure, "run it on a control plane", "this host is not a node of a cluster")
	}
	client, err := adminClient(ctx, h, kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &Status{Manifests: []ManifestStatus{}, apply: b.applyCommand()}
	if s.Node, err = client.Node(ctx, name); err != nil {
		return nil, err
	}
	inventory, err := client.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	site := client.Site(nodeTimeout, nil)
	listed := map[string]bool{}
	for _, m := range b.manifest.Manifests {
		listed[m.Name] = true
		one := ManifestStatus{Name: m.Name, Chart: m.Chart, State: stateMissing}
		if e, ok := inventory[m.Name]; ok {
			one = statusOf(m.Name, e)
			if e.SHA256 != b.manifestOf(m).SHA256 {
				one.State = stateDifferent
			}
		}
		s.Manifests = append(s.Manifests, one)
	}
	var others []string
	for name := range inventory {
		if !listed[name] {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range others {
		one := statusOf(name, inventory[name])
		one.State = stateElsewhere
		s.Manifests = append(s.Manifests, one)
	}
	for i, m := range s.Manifests {
		if s.Manifests[i].Objects, err = site.States(ctx, inventory[m.Name], b.hasImage); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// adminClient connects to the cluster with the kubeconfig of an administrator.
func adminClient(ctx context.Context, h *host.Host, kubeconfig string) (*cluster.Client, error) {
	if kubeconfig == adminConf && !fileExists(h, adminConf) {
		is := "not a node of a cluster"
		if fileExists(h, kubeletConf) {
			is = "a worker"
		}
		return nil, fault.New(fault.Failure, "run it on a control plane, or set --kubeconfig", "this host is %s: it has no kubeconfig of an administrator", is)
	}
	client, err := cluster.Load(kubeconfig, "")
	if err != nil {
		return nil, fault.Wrap(err, fault.Failure, "run it on a control plane as root, or set --kubeconfig")
	}
	if !client.Answers(ctx) {
		return nil, fault.New(fault.Failure, "see the kubelet's log: journalctl -u kubelet -e; and those of the containers below /var/log/pods",
			"the API server at %s does not answer", client.Server())
	}
	return client, nil
}

func statusOf(name string, e cluster.InventoryEntry) ManifestStatus {
	state := stateApplied
	if e.Applied == "" || len(e.Later) > 0 {
		state = stateIncomplete
	}
	return ManifestStatus{Name: name, Chart: e.Chart, State: state, Applied: e.Applied, Later: e.Later}
}

// Write prints the status for people.
func (s *Status) Write(out io.Writer) {
	ready := "Ready"
	if !s.Node.Ready {
		ready = "not Ready: " + s.Node.Reason
	}
	fmt.Fprintf(out, "node %s: %s, %s, %s\n", s.Node.Name, s.Node.Role, s.Node.Version, ready)
	if len(s.Manifests) == 0 {
		fmt.Fprintln(out, "\nThis bundle has no manifests, and none were applied.")
		return
	}
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "MANIFEST\tCHART\tSTATE\tREADY\tAPPLIED")
	var problems []string
	for _, m := range s.Manifests {
		n := 0
		for _, o := range m.Objects {
			if o.Ready {
				n++
				continue
			}
			problems = append(problems, m.Name+": "+o.Object+": "+strings.ReplaceAll(o.Reason, "\n", "\n      "))
		}
		chart := m.Chart
		if chart == "" {
			chart = "-"
		}
		applied := m.Applied
		if applied == "" {
			applied = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d/%d\t%s\n", m.Name, chart, m.State, n, len(m.Objects), applied)
	}
	_ = table.Flush() // a lost output cancels the command
	if len(problems) > 0 {
		fmt.Fprintf(out, "\nNot ready:\n  - %s\n", strings.Join(problems, "\n  - "))
	}
	if slices.ContainsFunc(s.Manifests, func(m ManifestStatus) bool {
		return len(m.Later) > 0 || m.State == stateDifferent || m.State == stateMissing
	}) {
		fmt.Fprintf(out, "\nTo apply the manifests of this bundle: %s\n", s.apply)
	}
}

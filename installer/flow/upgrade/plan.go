package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"airlift/installer/cluster"
	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/patches"
	"airlift/installer/payload"
	"airlift/installer/preflight"
	"airlift/installer/redact"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/installer/upgradecheck"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// PlanOptions are the user's options for upgrade plan and upgrade diff.
type PlanOptions struct {
	config.UpgradePlan
	Kubeconfig string
	Patches    string
	Drain      bool
	Context    int // lines around a change in a diff
}

// A Plan lists the changes of an upgrade of this node and its cluster, and the problems that
// prevent it.
type Plan struct {
	From       string                `json:"from"`
	To         string                `json:"to"`
	Node       string                `json:"node"`
	Nodes      []PlannedNode         `json:"nodes"`
	Components []PlannedComponent    `json:"components"`
	Changes    []revision.Difference `json:"changes"`
	// Notes are what the first upgrade of an adopted node carries over, a line each.
	Notes    []string            `json:"notes,omitempty"`
	Warnings []preflight.Problem `json:"warnings"`
	Errors   []preflight.Problem `json:"errors"`
	// Configuration is the ClusterConfiguration that the upgrade stores.
	Configuration string `json:"configuration,omitempty"`

	flags string // with which upgrade apply does what the plan shows, each after a space
}

// A PlannedNode is a node with the version of its kubelet after the upgrade.
type PlannedNode struct {
	inventory.Node
	To string `json:"to"`
}

// A PlannedComponent is a component with its version before and after the upgrade.
type PlannedComponent struct {
	inventory.Component
	From string `json:"from"`
	To   string `json:"to,omitempty"` // empty if it stays
}

// ReadPlan finds out what an upgrade to the version of a bundle would change. It changes
// nothing. The error is one of fault.Preflight if a check failed; then the plan has the errors.
func ReadPlan(ctx context.Context, b *payload.Bundle, o PlanOptions, h *host.Host, c *workflow.Console) (*Plan, error) {
	if _, _, err := patches.Load(o.Patches); err != nil {
		return nil, err
	}
	u := New(b, Options{Kubeconfig: o.Kubeconfig, UpgradeRun: config.UpgradeRun{
		EtcdUpgrade: o.EtcdUpgrade, Drain: o.Drain, Patches: o.Patches, IgnorePreflightErrors: o.IgnorePreflightErrors,
	}}, false, h, c)
	defer u.Close()
	t, err := u.planTarget(ctx, o)
	if err != nil {
		return nil, err
	}
	p := &Plan{From: t.From, To: t.To, Node: t.NodeName, Nodes: []PlannedNode{}, Components: []PlannedComponent{}, Changes: []revision.Difference{}, flags: o.flags()}
	p.versions(u, t)
	if u.Stored != nil { // the new configuration is known
		if p.Changes, err = u.Differences(ctx, u.computable(t), o.Context); err != nil {
			return nil, err
		}
		text, err := render.ClusterConfiguration(u.Config)
		if err != nil {
			return nil, err
		}
		p.Configuration = string(redact.Documents(text))
		if u.Adopted != nil {
			p.Notes = u.Adopted.Notes
		}
	}
	report, err := u.check(ctx, t)
	p.Warnings, p.Errors = report.Warnings, report.Errors
	return p, err
}

// flags returns the flags of upgrade apply and upgrade node that say the same, each after a space.
func (o PlanOptions) flags() (text string) {
	if !o.EtcdUpgrade {
		text += " --etcd-upgrade=false"
	}
	if !o.Drain {
		text += " --drain=false"
	}
	if o.Patches != "" {
		text += " --patches " + o.Patches
	}
	if len(o.IgnorePreflightErrors) > 0 {
		text += " --ignore-preflight-errors=" + strings.Join(o.IgnorePreflightErrors, ",")
	}
	return text
}

// planTarget reads what the checks look at. With a file of an unsuitable version, or with
// unsuitable images, the new configuration of this node cannot be computed: then the checks report
// only this problem and problems of the cluster.
func (u *Upgrade) planTarget(ctx context.Context, o PlanOptions) (*upgradecheck.Target, error) {
	if err := u.CheckNode(); err != nil {
		return nil, err
	}
	c, err := u.LocalConfig()
	if err != nil {
		return nil, err
	}
	if err := u.Connect(c); err != nil {
		return nil, err
	}
	if err := cluster.Answering(ctx, u.API.Client, fault.Preflight); err != nil {
		return nil, err
	}
	fetched, err := u.API.Client.FetchConfig(ctx)
	if err != nil {
		return nil, err
	}
	t, err := u.VersionTarget(ctx, upgradecheck.Plan, c, fetched.Cluster)
	if err != nil {
		return nil, err
	}
	allow := func(t *upgradecheck.Target) *upgradecheck.Target {
		t.AllowExperimental, t.AllowRC = o.AllowExperimental, o.AllowRC
		return t
	}
	if _, t.ImageNames = (&config.Config{Cluster: fetched.Cluster}).ImageNames(u.Bundle.Images); t.ImageNames != nil || t.Unsuitable() {
		return allow(t), nil
	}
	if err := u.Learn(ctx); err != nil {
		return nil, err
	}
	if t, err = u.target(ctx, upgradecheck.Plan); err != nil {
		return nil, err
	}
	return allow(t), nil
}

// versions lists the nodes and the components with their versions.
func (p *Plan) versions(u *Upgrade, t *upgradecheck.Target) {
	for _, n := range t.Cluster.Nodes {
		p.Nodes = append(p.Nodes, PlannedNode{n, t.To})
	}
	for _, c := range t.Cluster.Components {
		one := PlannedComponent{Component: c, From: upgradecheck.Tag(c.Image)}
		if to := upgradecheck.Tag(u.Bundle.Images[c.Name]); to != one.From {
			one.To = to
		}
		if c.Name == node.EtcdPod && u.Stored != nil && u.Plans[node.EtcdPod] == nil {
			one.To = "" // with --etcd-upgrade=false, or older in this file
		}
		p.Components = append(p.Components, one)
	}
}

// computable returns the steps, without the add-ons if this file has not all images. A check reports a missing image.
func (u *Upgrade) computable(t *upgradecheck.Target) []workflow.Step {
	return slices.DeleteFunc(u.Steps(), func(s workflow.Step) bool { return s.Name == "addon" && len(t.MissingImages) > 0 })
}

// Write prints the plan for people. With diffs, it also prints what changes in files and objects.
func (p *Plan) Write(out io.Writer, diffs bool) {
	fmt.Fprintf(out, "The cluster has Kubernetes %s, and this file %s.\n\n", p.From, p.To)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODE\tROLE\tREADY\tKUBELET\tUPGRADE TO\tKERNEL\tCONTAINER RUNTIME")
	for _, n := range p.Nodes {
		role := "worker"
		if n.ControlPlane {
			role = "control plane"
		}
		fmt.Fprintf(table, "%s\t%s\t%t\t%s\t%s\t%s\t%s\n", n.Name, role, n.Ready, n.KubeletVersion, orStays(n.To, n.KubeletVersion), n.Kernel, n.ContainerRuntime)
	}
	_ = table.Flush() // a lost output cancels the command
	fmt.Fprintln(out)
	fmt.Fprintln(table, "COMPONENT\tNODE\tCURRENT\tUPGRADE TO")
	for _, c := range p.Components {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.Name, cmp.Or(c.Node, "-"), c.From, orStays(c.To, ""))
	}
	_ = table.Flush()
	p.writeChanges(out, diffs)
	if len(p.Warnings)+len(p.Errors) > 0 {
		fmt.Fprintln(out)
		preflight.Report{Warnings: p.Warnings, Errors: p.Errors}.Write(out)
	}
	if len(p.Errors) == 0 {
		fmt.Fprintf(out, "\nTo upgrade, run on this control plane:\n\n    ./install upgrade apply%s\n\nThen copy this file to every other node and run there: ./install upgrade node%[1]s\n", p.flags)
	}
}

// orStays returns the new version, or a word for none.
func orStays(to, from string) string {
	if to == "" || to == from {
		return "stays"
	}
	return to
}

func (p *Plan) writeChanges(out io.Writer, diffs bool) {
	var names []string
	for _, c := range p.Changes {
		names = append(names, c.Name)
	}
	if len(names) > 0 {
		fmt.Fprintf(out, "\nOn node %s, the upgrade replaces:\n\n    %s\n", p.Node, strings.Join(names, "\n    "))
		if !diffs {
			fmt.Fprintln(out, "\nTo see the differences: ./install upgrade diff")
		}
	}
	if len(p.Notes) > 0 {
		fmt.Fprintf(out, "\nThis node was adopted:\n\n    %s\n", strings.Join(p.Notes, "\n    "))
	}
	if diffs {
		p.WriteDiffs(out)
	}
}

// WriteDiffs prints the differences as one unified diff.
func (p *Plan) WriteDiffs(out io.Writer) {
	for _, c := range p.Changes {
		if c.Diff == "" {
			fmt.Fprintf(out, "# %s changes: its contents are not shown\n", c.Name)
		}
		progress.WriteDiff(out, fault.Printable(c.Diff))
	}
}

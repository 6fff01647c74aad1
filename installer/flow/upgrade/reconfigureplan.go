package upgrade

import (
	"context"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

// A ReconfigurePlan lists what a reconfiguration changes on this node, on the others and in the cluster, and what prevents it.
type ReconfigurePlan struct {
	Node string `json:"node"`
	// Nodes are all nodes, this one first, with what restarts there. On a worker, it is the only one.
	Nodes []ReconfiguredNode `json:"nodes"`
	// Changes are the files of this host and the objects of the cluster that change.
	Changes      []PlannedChange      `json:"changes"`
	Certificates []PlannedCertificate `json:"certificates"`
	// Marks are the labels and taints of this node that change: "+zone=a", "-taint key:Effect".
	Marks []string `json:"marks"`
	// AddOns are the workloads whose pods are replaced on all nodes.
	AddOns []string `json:"addOns"`
	// Images reports whether images of this node get other names.
	Images   bool                      `json:"images"`
	Refused  []reconfiguration.Refusal `json:"refused"`
	Warnings []preflight.Problem       `json:"warnings"`
	Errors   []preflight.Problem       `json:"errors"`
}

// A ReconfiguredNode is a node with what restarts there.
type ReconfiguredNode struct {
	Name string `json:"name"`
	Role string `json:"role"`
	// Restarts are components, in the order in which they restart.
	Restarts []string `json:"restarts"`
	// Command is what to run there, "" for nothing.
	Command string `json:"command,omitempty"`
}

// Empty reports whether there is nothing to do.
func (p *ReconfigurePlan) Empty() bool {
	return len(p.Changes)+len(p.Certificates)+len(p.Marks)+len(p.AddOns) == 0 && !slices.ContainsFunc(p.Nodes, func(n ReconfiguredNode) bool { return n.Command != "" })
}

// ReadReconfigurePlan finds out what a reconfiguration would change, and changes nothing. lines is the number of lines around a
// change in a diff. The error is one of fault.Preflight if something prevents it; then the plan has the reason.
func ReadReconfigurePlan(ctx context.Context, b *payload.Bundle, o ReconfigureOptions, lines int, h *host.Host, console *workflow.Console) (*ReconfigurePlan, error) {
	r := NewReconfigure(b, o, h, console)
	defer r.Close()
	u, c := r.run, r.change
	if err := u.learn(ctx); err != nil {
		return nil, err
	}
	if err := r.checkHost(); err != nil {
		return nil, err
	}
	if err := u.record.checkGoal(); err != nil {
		return nil, err
	}
	p := &ReconfigurePlan{
		Node: c.config().NodeRegistration.Name, Nodes: []ReconfiguredNode{}, Changes: []PlannedChange{}, Certificates: []PlannedCertificate{}, Marks: []string{}, AddOns: []string{},
		Refused: append([]reconfiguration.Refusal{}, c.refused...), Warnings: []preflight.Problem{}, Errors: []preflight.Problem{},
	}
	refused := c.refusal()
	if refused != nil {
		return p, refused
	}
	if err := r.fill(ctx, p, lines); err != nil {
		return nil, err
	}
	report, err := r.check(ctx)
	p.Warnings, p.Errors = report.Warnings, report.Errors
	return p, err
}

// fill adds what changes.
func (r *Reconfigure) fill(ctx context.Context, p *ReconfigurePlan, lines int) (err error) {
	u, c := r.run, r.change
	changes, err := u.changes(ctx, r.Steps(), lines)
	if err != nil {
		return err
	}
	p.Changes = append(p.Changes, changes...)
	certificates, err := serving{c}.planned()
	if err != nil {
		return err
	}
	p.Certificates = append(p.Certificates, certificates...)
	_, _, marks, err := marks{c}.wanted(ctx)
	if err != nil {
		return err
	}
	p.Marks = append(p.Marks, marks...)
	for part, name := range map[string]string{corednsPart: "Deployment kube-system/coredns", proxyPart: "DaemonSet kube-system/kube-proxy", flannelPart: "DaemonSet kube-flannel/kube-flannel-ds"} {
		if c.concerns(part) && !c.options.Node && slices.ContainsFunc(changes, func(change PlannedChange) bool { return ofAddon(change.Name, part) }) {
			p.AddOns = append(p.AddOns, name)
		}
	}
	slices.Sort(p.AddOns)
	p.Images = c.renamesImages(ctx)
	own, err := c.restarts()
	if err != nil {
		return err
	}
	self := ReconfiguredNode{Name: p.Node, Role: cluster.WorkerRole, Restarts: own, Command: "./install " + u.facts.options.command()}
	if c.isControlPlane() {
		self.Role = cluster.ControlPlaneRole
	}
	p.Nodes = append(p.Nodes, self)
	if p.Nodes[0].Command = ""; !p.Empty() || len(own) > 0 {
		p.Nodes[0].Command = self.Command
	}
	return c.others(ctx, p)
}

func ofAddon(object, part string) bool {
	return strings.HasSuffix(object, "/"+part) || part == flannelPart && strings.HasSuffix(object, "/kube-flannel-ds")
}

// restarts returns what restarts on this node, in order.
func (c *change) restarts() (names []string, err error) {
	names = []string{}
	list, err := c.differing()
	if err != nil {
		return nil, err
	}
	differs := func(files ...string) bool {
		return slices.ContainsFunc(list, func(f node.DifferingFile) bool { return slices.Contains(files, f.Path) })
	}
	for _, name := range pods.StaticPodOrder {
		files := []string{node.ManifestPath(name)}
		for _, f := range c.carried.written() {
			if slices.Contains(reconfiguration.UsersOf(&c.config().Cluster, f.Path), name) {
				files = append(files, f.Path)
			}
		}
		if differs(files...) || c.run.record.state.IsPending(name) {
			names = append(names, name)
		}
	}
	names = pods.WithAPIServer(names)
	runtime, err := c.runtime(context.Background())
	if err != nil {
		return nil, err
	}
	if len(runtime.Files) > 0 || c.run.record.state.IsPending(runtimePart) {
		names = append(names, "containerd")
	}
	if differs(config.KubeletConfigFile, config.KubeletFlagsFile, render.KubeletUnitPath, render.KubeletDropInPath) || c.run.record.state.IsPending(kubeletPart) {
		names = append(names, kubeletPart)
	}
	return names, nil
}

// others adds the other nodes that must follow.
func (c *change) others(ctx context.Context, p *ReconfigurePlan) error {
	nodes, err := c.run.facts.api.Client.Nodes(ctx)
	if err != nil { // a worker may not list them
		return nil
	}
	stored := c.run.facts.stored.Cluster.Reconfiguration
	for _, n := range nodes {
		if n.Name == p.Node {
			continue
		}
		one := ReconfiguredNode{Name: n.Name, Role: n.Role, Restarts: []string{}}
		plane := n.Role == cluster.ControlPlaneRole
		for _, part := range c.parts {
			static := slices.Contains(pods.StaticPodOrder, part)
			if !c.options.Node && (static && plane && c.planes || part == kubeletPart && c.workers) {
				one.Restarts = append(one.Restarts, part)
			}
		}
		one.Restarts = pods.WithAPIServer(one.Restarts)
		if plane && c.planes || c.workers || !stored.Follows(n.Reconfiguration, plane) {
			one.Command = "./install reconfigure node"
		}
		p.Nodes = append(p.Nodes, one)
	}
	return nil
}

// isSecret reports whether nobody may see the contents of a file or an object.
func (u *Upgrade) isSecret(file string) bool {
	if file == node.KubeletConf || strings.HasPrefix(file, "Secret ") { // the kubeconfig may contain a key
		return true
	}
	c := u.facts.change
	return c != nil && (c.carried.brings(file) || path.Ext(file) == ".key")
}

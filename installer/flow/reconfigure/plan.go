package reconfigure

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/installer/serving"
	"airlift/installer/workflow"
)

// A Plan lists what a reconfiguration changes on this node, on the others and in the cluster, and what prevents it.
type Plan struct {
	Node string `json:"node"`
	// Nodes are all nodes, this one first, with what restarts there. On a worker, it is the only one.
	Nodes []PlannedNode `json:"nodes"`
	// Changes are the files of this host and the objects of the cluster that change.
	Changes      []revision.Difference `json:"changes"`
	Certificates []PlannedCertificate  `json:"certificates"`
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

// A PlannedNode is a node with what restarts there.
type PlannedNode struct {
	Name string `json:"name"`
	Role string `json:"role"`
	// Restarts are components, in the order in which they restart.
	Restarts []string `json:"restarts"`
	// Command is what to run there, "" for nothing.
	Command string `json:"command,omitempty"`
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool {
	return len(p.Changes)+len(p.Certificates)+len(p.Marks)+len(p.AddOns) == 0 && !slices.ContainsFunc(p.Nodes, func(n PlannedNode) bool { return n.Command != "" })
}

// ReadPlan finds out what a reconfiguration would change, and changes nothing. lines is the number of lines around a
// change in a diff. The error is one of fault.Preflight if something prevents it; then the plan has the reason.
func ReadPlan(ctx context.Context, b *payload.Bundle, o Options, lines int, h *host.Host, console *workflow.Console) (*Plan, error) {
	r := New(b, o, h, console)
	defer r.Close()
	if err := r.Learn(ctx); err != nil {
		return nil, err
	}
	if err := r.checkHost(); err != nil {
		return nil, err
	}
	if err := r.CheckGoal(); err != nil {
		return nil, err
	}
	p := &Plan{
		Node: r.Config.NodeRegistration.Name, Nodes: []PlannedNode{}, Changes: []revision.Difference{}, Certificates: []PlannedCertificate{}, Marks: []string{}, AddOns: []string{},
		Refused: append([]reconfiguration.Refusal{}, r.refused...), Warnings: []preflight.Problem{}, Errors: []preflight.Problem{},
	}
	refused := r.refusal()
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
func (r *Reconfigure) fill(ctx context.Context, p *Plan, lines int) (err error) {
	changes, err := r.Differences(ctx, r.Steps(), lines)
	if err != nil {
		return err
	}
	p.Changes = append(p.Changes, changes...)
	certificates, err := r.plannedCertificates()
	if err != nil {
		return err
	}
	p.Certificates = append(p.Certificates, certificates...)
	own, err := r.restarts()
	if err != nil {
		return err
	}
	etcd, err := r.plannedForEtcd(certificates, slices.Contains(own, node.EtcdPod))
	if err != nil {
		return err
	}
	p.Changes = append(p.Changes, etcd...)
	kubelet, err := r.plannedForKubelet(ctx, lines)
	if err != nil {
		return err
	}
	p.Changes = append(p.Changes, kubelet...)
	_, _, marks, err := r.wantedMarks(ctx)
	if err != nil {
		return err
	}
	p.Marks = append(p.Marks, marks...)
	for part, name := range map[string]string{corednsPart: "Deployment kube-system/coredns", proxyPart: "DaemonSet kube-system/kube-proxy", flannelPart: "DaemonSet kube-flannel/kube-flannel-ds"} {
		if r.Concerns(part) && !r.options.Node && slices.ContainsFunc(changes, func(change revision.Difference) bool { return ofAddon(change.Name, part) }) {
			p.AddOns = append(p.AddOns, name)
		}
	}
	slices.Sort(p.AddOns)
	p.Images = r.renamesImages(ctx)
	self := PlannedNode{Name: p.Node, Role: cluster.WorkerRole, Restarts: own, Command: "./install " + r.Options.Command}
	if r.IsControlPlane() {
		self.Role = cluster.ControlPlaneRole
	}
	p.Nodes = append(p.Nodes, self)
	if p.Nodes[0].Command = ""; !p.Empty() || len(own) > 0 {
		p.Nodes[0].Command = self.Command
	}
	return r.others(ctx, p)
}

// plannedForEtcd lists what is written for etcd's user: the declaration of the user, and copies of certificates and keys: those of certificates that are
// renewed, and all that differ if etcd restarts. If etcd restarts without this user, it lists what is removed.
func (r *Reconfigure) plannedForEtcd(renewed []PlannedCertificate, restarts bool) (list []revision.Difference, err error) {
	if !r.IsControlPlane() || r.Config.Etcd.External != nil {
		return nil, nil
	}
	manifest, err := r.Present(node.EtcdManifest)
	if err != nil {
		return nil, err
	}
	wants, err := r.localFiles()
	if err != nil {
		return nil, err
	}
	for _, f := range wants {
		if f.Path == node.EtcdManifest {
			manifest = f.Data
		}
	}
	copies, err := node.EtcdCopies(manifest)
	if err != nil {
		return nil, err
	}
	if restarts && len(copies) > 0 {
		_, user, group, err := r.Existing.FindAccount(host.EtcdAccount)
		if err != nil {
			return nil, err
		}
		if !user || !group {
			list = append(list, revision.Difference{Name: host.AccountFile})
		}
	}
	if restarts {
		released, err := r.ReleasedByEtcd(manifest)
		if err != nil {
			return nil, err
		}
		for _, file := range released {
			list = append(list, revision.Difference{Name: file, Removed: true})
		}
	}
	listed := map[string]bool{} // several flags may name one file
	for _, c := range copies {
		of := func(p PlannedCertificate) bool {
			return c.Of == p.File || c.Of == strings.TrimSuffix(p.File, ".crt")+".key"
		}
		differs := slices.ContainsFunc(renewed, of)
		if !differs && restarts {
			if differs, err = r.otherContents(c); err != nil {
				return nil, err
			}
		}
		if differs && !listed[c.Path] {
			list = append(list, revision.Difference{Name: c.Path})
			listed[c.Path] = true
		}
	}
	return list, nil
}

// plannedForKubelet lists the kernel parameters that are set for the kubelet, and what of its signed certificates is removed.
func (r *Reconfigure) plannedForKubelet(ctx context.Context, lines int) (list []revision.Difference, err error) {
	stops, err := r.stopsApprover()
	if err != nil {
		return nil, err
	}
	if stops {
		for _, file := range []string{serving.SettingsPath, serving.UnitPath} {
			if r.exists(file) {
				list = append(list, revision.Difference{Name: file, Removed: true})
			}
		}
	}
	if !r.Concerns(revision.KubeletPart) {
		return list, nil
	}
	wants, err := r.kubeletFiles(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range wants.Files {
		if f.Path != config.KubeletConfigFile {
			continue
		}
		if phases.ProtectsKernelDefaults(f.Data) {
			differing, err := r.Differing(r.Node.SysctlFile(f.Data))
			if err != nil {
				return nil, err
			}
			for _, d := range differing {
				list = append(list, r.Differs(d.Path, d.Now, d.Data, lines))
			}
		}
		var settings kubeletv1.KubeletConfiguration
		if err := yaml.Unmarshal(f.Data, &settings); err != nil {
			return nil, fmt.Errorf("reading the new %s: %w", f.Path, err)
		}
		if link := phases.ServingLink(r.Machine); link != "" && !settings.ServerTLSBootstrap {
			list = append(list, revision.Difference{Name: link, Removed: true})
		}
	}
	return list, nil
}

// otherContents reports whether a copy differs from its original, or does not exist.
func (r *Reconfigure) otherContents(c node.EtcdCopy) (bool, error) {
	is, err := r.Present(c.Path)
	if err != nil {
		return false, err
	}
	of, err := r.Present(c.Of)
	return is == nil || !bytes.Equal(is, of), err
}

func ofAddon(object, part string) bool {
	return strings.HasSuffix(object, "/"+part) || part == flannelPart && strings.HasSuffix(object, "/kube-flannel-ds")
}

// restarts returns what restarts on this node, in order.
func (r *Reconfigure) restarts() (names []string, err error) {
	names = []string{}
	list, err := r.differing()
	if err != nil {
		return nil, err
	}
	differs := func(files ...string) bool {
		return slices.ContainsFunc(list, func(f node.DifferingFile) bool { return slices.Contains(files, f.Path) })
	}
	for _, name := range pods.StaticPodOrder {
		files := []string{node.ManifestPath(name)}
		for _, f := range r.writtenFiles() {
			if slices.Contains(reconfiguration.UsersOf(&r.Config.Cluster, f.Path), name) {
				files = append(files, f.Path)
			}
		}
		if differs(files...) || r.Record.IsPending(name) {
			names = append(names, name)
		}
	}
	names = pods.WithAPIServer(names)
	runtime, err := r.runtime(context.Background())
	if err != nil {
		return nil, err
	}
	if len(runtime.Files) > 0 || r.Record.IsPending(revision.RuntimePart) {
		names = append(names, "containerd")
	}
	if differs(config.KubeletConfigFile, config.KubeletFlagsFile, render.KubeletUnitPath, render.KubeletDropInPath) || r.Record.IsPending(revision.KubeletPart) {
		names = append(names, revision.KubeletPart)
	}
	return names, nil
}

// others adds the other nodes that must follow.
func (r *Reconfigure) others(ctx context.Context, p *Plan) error {
	nodes, err := r.API.Client.Nodes(ctx)
	if err != nil { // a worker may not list them
		return nil
	}
	stored := r.Stored.Cluster.Reconfiguration
	for _, n := range nodes {
		if n.Name == p.Node {
			continue
		}
		one := PlannedNode{Name: n.Name, Role: n.Role, Restarts: []string{}}
		plane := n.Role == cluster.ControlPlaneRole
		for _, part := range r.parts {
			static := slices.Contains(pods.StaticPodOrder, part)
			if !r.options.Node && (static && plane && r.planes || part == revision.KubeletPart && r.kubelet) {
				one.Restarts = append(one.Restarts, part)
			}
		}
		one.Restarts = pods.WithAPIServer(one.Restarts)
		if plane && r.planes || r.workers || !stored.Follows(n.Follows.Reconfiguration, plane) {
			one.Command = "./install reconfigure node"
		}
		p.Nodes = append(p.Nodes, one)
	}
	return nil
}

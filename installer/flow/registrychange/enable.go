package registrychange

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/registry"
	"airlift/installer/registry/hosts"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// An Enable gives this node its part in the embedded registry of a running cluster. The first control plane creates it.
type Enable struct {
	*node.Machine
	bundle *payload.Bundle
	ignore []string // preflight checks
	config *config.Config
	client *cluster.Client
}

// NewEnable connects to the cluster, and refuses what is not possible on this host.
func NewEnable(ctx context.Context, b *payload.Bundle, ignore []string, h *host.Host, c *workflow.Console) (*Enable, error) {
	e := &Enable{Machine: node.NewMachine(h, c), bundle: b, ignore: ignore, config: new(config.Config)}
	if err := e.checkHost(); err != nil {
		return nil, err
	}
	if err := e.connect(ctx); err != nil {
		return nil, err
	}
	return e, e.checkCluster()
}

// checkHost refuses a host that is not a node of Airlift's, or that another command has not finished.
func (e *Enable) checkHost() error {
	if e.config.NodeRegistration.Name = pki.NodeName(e.Files()); e.config.NodeRegistration.Name == "" {
		return fault.New(fault.Preflight, "this host is not a node of a cluster: %s does not have a node's name", node.KubeletConf).Hint("run it on a node of the cluster; for a new cluster: ./install init --embedded-registry")
	}
	if err := node.Managed(e.Existing, ""); err != nil {
		return err
	}
	return node.Unfinished(e.Existing)
}

// connect loads a client, of the administrator on a control plane and else of the kubelet, and reads the configuration.
func (e *Enable) connect(ctx context.Context) (err error) {
	kubeconfig, server := node.KubeletConf, ""
	if e.IsControlPlane() {
		kubeconfig, server = node.AdminConf, node.OwnAPIServer(e.Existing)
	}
	if e.client, err = node.LoadClient(e.Existing, kubeconfig, server, 0); err != nil {
		return err
	}
	fetched, err := e.client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	e.config.Cluster = fetched.Cluster
	if e.config.CertificatesDir == "" {
		e.config.CertificatesDir = config.CertificatesDir
	}
	e.config.Facts, err = detection.Detect(ctx, e.Existing.Root, detection.Options{Networking: fetched.Cluster.Networking, Peer: strings.TrimPrefix(e.client.Server, "https://")})
	return err
}

// checkCluster refuses a file that could not add nodes to the cluster, and a worker of a cluster without the embedded
// registry.
func (e *Enable) checkCluster() error {
	if !e.IsControlPlane() {
		if !e.config.Registry.Used {
			return fault.New(fault.Preflight, "this host is a worker, and the cluster has no embedded registry yet").Hint("run it on a control plane first; then here again")
		}
		return nil
	}
	if err := e.bundle.NeedsKubernetes("registry enable"); err != nil {
		return err
	}
	if have, is := e.bundle.KubernetesVersion(), e.config.KubernetesVersion; have != is {
		return fault.New(fault.Preflight, "this file has Kubernetes %s, and the cluster has %s", have, is).Hint("run it with the file that installed or upgraded the cluster: ./FILE registry enable")
	}
	return nil
}

// steps returns the steps of this node.
func (e *Enable) steps() []workflow.Step {
	return []workflow.Step{
		{Name: "preflight", Doc: "check this file and this host", Run: e.preflight},
		{Name: "server", Doc: "keep this file, and serve it to the nodes", Run: e.serve, Empty: !e.IsControlPlane()},
		{Name: "node", Doc: "let containerd ask the control planes for images", Run: e.use},
		{Name: "next", Doc: "find the nodes that do not use it yet", Run: e.next, Empty: !e.IsControlPlane()},
	}
}

// Run gives this node its part. It is safe to run it again: it finishes what an interrupted run left.
func (e *Enable) Run(ctx context.Context) error {
	return workflow.Run(ctx, e.Console, e.steps(), nil)
}

// DryRun prints what Run would do.
func (e *Enable) DryRun() { e.Console.WouldRun("", e.steps()) }

// kept is the registry with this file.
func (e *Enable) kept() config.EmbeddedRegistry {
	r := e.config.Registry
	r.Used = true
	r.Keep(registry.Describe(e.bundle.File, e.bundle.Manifest))
	return r
}

func (e *Enable) preflight(ctx context.Context) error {
	if !e.IsControlPlane() {
		return nil
	}
	if err := e.bundle.Checked(ctx, e.Console); err != nil {
		return err
	}
	if err := e.bundle.AttachNode(ctx, e.Existing, e.Console); err != nil { // a thin file reads the rest from another control plane
		return err
	}
	c := *e.config
	c.Registry = e.kept()
	t := preflight.Target{Config: &c, Root: string(e.Existing.Root), Role: preflight.JoinControlPlane, Rerun: true, Disk: []preflight.Space{phases.KeptSpace(e.Existing, c.Registry)}}
	report, err := preflight.Registry(ctx, t, e.ignore)
	for _, w := range report.Warnings {
		e.Console.Warn("[%s]: %s", w.Name, w.Message)
	}
	return err
}

func (e *Enable) serve(ctx context.Context) error {
	if err := phases.KeepFile(ctx, e.Machine, registry.For(e.config), e.bundle.File); err != nil {
		return err
	}
	c := *e.config
	c.Registry = e.kept()
	l, err := phases.RegistryServer(&c)
	if err != nil {
		return err
	}
	if err := phases.ServeRegistry(ctx, e.Machine, e.client, l, registry.Describe(e.bundle.File, e.bundle.Manifest)); err != nil {
		return err
	}
	stored, err := e.client.Registry(ctx)
	if err == nil && stored != nil {
		e.config.Registry = *stored
	}
	return err
}

func (e *Enable) use(ctx context.Context) error {
	if err := e.client.NodeObjects().UsesRegistry(ctx, e.config.NodeRegistration.Name); err != nil { // before, so that disable waits for this node
		return err
	}
	if err := e.configure(ctx); err != nil {
		return err
	}
	changed, err := e.Host.EnsureTimer(ctx, hosts.Timer)
	e.Changed(changed)
	return err
}

// configure writes containerd's configuration.
func (e *Enable) configure(ctx context.Context) error {
	if !e.Existing.Records().OwnsRuntime() {
		e.Console.Warn("%s", phases.ExistingRuntime)
		return nil
	}
	servers, err := e.client.APIServers(ctx)
	if err != nil {
		return err
	}
	n, err := nodeOf(e.Machine, e.config.NodeRegistration.Name, phases.RegistryAddresses(servers))
	if err != nil {
		return err
	}
	if err := n.Check(e.Host); err != nil {
		return err
	}
	change, err := n.Change(e.Host, e.config.Registry.Registries())
	if err != nil {
		return err
	}
	for _, name := range change.Left {
		e.Console.Warn("%s", phases.LeftAlone(name))
	}
	for _, f := range change.Write {
		e.Console.Debug(1, "wrote %s", path.Clean(f.Path))
	}
	e.Changed(!change.Empty())
	return change.Apply(e.Host)
}

// next sets the text that names the nodes that do not use the registry yet.
func (e *Enable) next(ctx context.Context) error {
	nodes, err := e.client.Nodes(ctx)
	if err != nil {
		return err
	}
	var planes, workers []string
	for _, n := range nodes {
		switch {
		case n.Follows.UsesRegistry || n.Name == e.config.NodeRegistration.Name:
		case n.Role == cluster.ControlPlaneRole:
			planes = append(planes, n.Name)
		default:
			workers = append(workers, n.Name)
		}
	}
	text := "This control plane serves the embedded registry.\n"
	if left := slices.Concat(planes, workers); len(left) > 0 {
		text += "\nRun on these nodes, in this order:\n\n    " + strings.Join(left, "\n    ") + "\n\n    ./install registry enable\n"
	} else {
		text += fmt.Sprintf("All %s use it.\n", workflow.Count(len(nodes), "node"))
	}
	e.Console.Summary(text)
	return nil
}

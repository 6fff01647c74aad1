package registrychange

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/registry/hosts"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A Disable removes the embedded registry from a running cluster, on a control plane.
type Disable struct {
	*node.Machine
	client *cluster.Client
	// generation is what the nodes follow when the registry is disabled.
	generation int
	off        []string // nodes that are not Ready
}

// NewDisable connects to the cluster.
func NewDisable(ctx context.Context, h *host.Host, c *workflow.Console) (*Disable, error) {
	d := &Disable{Machine: node.NewMachine(h, c)}
	if !d.IsControlPlane() {
		return nil, fault.New(fault.Preflight, "this host is not a control plane").Hint("run it on one control plane: the other nodes follow within two minutes")
	}
	var err error
	d.client, err = node.LoadClient(h, node.AdminConf, node.OwnAPIServer(h), 0)
	return d, err
}

// steps returns the steps in order. The permissions go last: with them, the nodes see that there is no registry any more.
func (d *Disable) steps() []workflow.Step {
	return []workflow.Step{
		{Name: "cluster", Doc: "let all nodes stop using the embedded registry", Run: d.announce},
		{Name: "node", Doc: "remove its part from this node", Run: d.remove},
		{Name: "nodes", Doc: "wait for the other nodes", Run: d.wait},
		{Name: "cleanup", Doc: "remove the configuration and the permissions in the cluster", Run: d.cleanup},
	}
}

// Run removes it. It is safe to run it again: it finishes what an interrupted run left.
func (d *Disable) Run(ctx context.Context) error {
	return workflow.Run(ctx, d.Console, d.steps(), nil)
}

// DryRun prints what Run would do.
func (d *Disable) DryRun() { d.Console.WouldRun("", d.steps()) }

func (d *Disable) announce(ctx context.Context) error {
	now, err := d.client.Registry(ctx)
	if err != nil || now == nil {
		return err
	}
	changed, err := d.client.EditRegistry(ctx, func(r *config.EmbeddedRegistry) {
		r.Disable()
		d.generation = r.Generation
	})
	d.Changed(changed)
	return err
}

// remove removes everything from this node, with the record of what it follows.
func (d *Disable) remove(ctx context.Context) error {
	edited, err := remove(ctx, d.Machine)
	if err != nil {
		return err
	}
	for _, file := range edited {
		d.Console.Warn("%s", isEdited(file))
	}
	if err := d.client.NodeObjects().ForgetRegistry(ctx, pki.NodeName(d.Files())); err != nil {
		return err
	}
	if !d.Exists(hosts.Timer.UnitPath()) {
		return nil
	}
	d.Changed(true)
	return d.Host.RemoveTimer(ctx, hosts.Timer)
}

func (d *Disable) wait(ctx context.Context) (err error) {
	d.off, err = phases.WaitFollowed(ctx, d.Machine, d.client, d.generation)
	return err
}

// cleanup deletes the objects, unless a node that is off still has to see that there is no registry.
func (d *Disable) cleanup(ctx context.Context) error {
	if len(d.off) > 0 {
		d.Console.Summary("These nodes are not Ready. They follow when they are back: " + strings.Join(d.off, ", ") +
			".\nThen run here once more: ./install registry disable; if a node is lost: ./install node remove NAME\n")
		return nil
	}
	nodes, err := d.client.Nodes(ctx)
	if err != nil {
		return err
	}
	endpoint, err := d.client.Endpoint(ctx)
	if err != nil {
		return err
	}
	if err := d.Applied(d.client.Delete(ctx, objects(nodes, endpoint.Used())...)); err != nil {
		return err
	}
	for _, n := range nodes {
		if !n.Follows.UsesRegistry {
			continue
		}
		if err := d.client.NodeObjects().ForgetRegistry(ctx, n.Name); err != nil {
			return err
		}
	}
	d.Console.Summary("The cluster has no embedded registry any more.\n")
	if d.Changes == 0 {
		d.Console.Summary("The cluster has no embedded registry. Nothing was changed.\n")
	}
	return nil
}

// objects are the objects of the embedded registry in the cluster. The endpoint needs the addresses of the API servers, too.
func objects(nodes []cluster.NodeState, endpointUsed bool) []runtime.Object {
	list, _ := render.UploadRegistry(new(config.Config)) // an empty list can be encoded
	if endpointUsed {
		list = list[:len(list)-len(render.APIServersRBAC())]
	}
	for _, n := range nodes {
		list = append(list, render.RegistryServer(n.Name))
	}
	return list
}

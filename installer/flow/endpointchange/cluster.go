package endpointchange

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"airlift/installer/cluster/wait"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/render"
)

// A clusterPart changes what the cluster stores, and its add-ons.
type clusterPart struct {
	*node.Machine
	run *run
}

// limit limits a wait for the cluster.
func (p *clusterPart) limit() wait.Limit { return wait.Limit{Timeout: timeout, Report: p.Report} }

// upload stores the endpoint in the cluster, from which joining nodes and the other nodes read it.
func (p *clusterPart) upload(ctx context.Context) error {
	change := p.run.config.Endpoint.Change
	if change.Number == p.run.number() && change.Pending == nil {
		return nil
	}
	// What was before must be known before anything changes, and a repeated run must not take a part of the change for it.
	agreed := *change
	agreed.Pending = nil
	if err := p.storeChange(ctx, p.run.pending()); err != nil {
		return err
	}
	configuration, err := render.UploadClusterConfig(p.run.config)
	if err != nil {
		return err
	}
	if err := p.Applied(p.run.client.Apply(ctx, configuration...)); err != nil {
		return err
	}
	return p.storeChange(ctx, agreed)
}

// storeChange stores the endpoint with a change.
func (p *clusterPart) storeChange(ctx context.Context, change config.EndpointChange) error {
	p.run.config.Endpoint.Change = &change
	objects, err := render.UploadEndpoint(p.run.config)
	if err != nil {
		return err
	}
	return p.Applied(p.run.client.Apply(ctx, objects...))
}

// record records that this node follows the change, or only serves the endpoint.
func (p *clusterPart) record(ctx context.Context) error {
	if p.run.config.Endpoint.Change.Number == 0 { // init made it, and nodes record only changes
		p.Console.Summary("This node has the cluster's endpoint, " + p.run.config.Endpoint.Change.Server + ".\n")
		return nil
	}
	changed, err := p.run.client.NodeObjects().SetEndpointChange(ctx, p.run.config.NodeRegistration.Name, p.run.config.Endpoint.Change.Number, p.run.late)
	p.Changed(changed)
	if err == nil {
		p.summarize(ctx)
	}
	return err
}

// recordUse records that this control plane uses the former endpoint again, and still serves what others may use.
func (p *clusterPart) recordUse(ctx context.Context) error {
	if p.run.late = p.run.config.Endpoint.Change.Number > 0; !p.run.late {
		return nil
	}
	for _, n := range p.run.nodes {
		if n.Name == p.run.config.NodeRegistration.Name && p.run.follows(n) {
			return nil
		}
	}
	changed, err := p.run.client.NodeObjects().SetEndpointChange(ctx, p.run.config.NodeRegistration.Name, p.run.config.Endpoint.Change.Number, p.run.late)
	p.Changed(changed)
	return err
}

// publish publishes the endpoint to joining nodes, when all control planes serve it.
func (p *clusterPart) publish(ctx context.Context) error {
	planes, _, err := p.run.behind(ctx, p.run.serves)
	if err != nil {
		return err
	}
	if len(planes) > 0 && !p.run.undoes() {
		p.Console.Note("not yet: these control planes do not serve it: %s", strings.Join(planes, ", "))
		return nil
	}
	published := *p.run.config.Endpoint.Change
	changed, err := p.run.client.PublishServer(ctx, published.Server)
	p.Changed(changed)
	if err != nil || published.Published || published.Number == 0 {
		return err
	}
	published.Published = true
	return p.storeChange(ctx, published)
}

// useInAddons lets kube-proxy and flannel use the endpoint, when all nodes follow: then it answers on each of them. It records that.
func (p *clusterPart) useInAddons(ctx context.Context) error {
	if !p.run.undoes() {
		planes, workers, err := p.run.behind(ctx, p.run.follows)
		if err != nil {
			return err
		}
		if left := append(planes, workers...); len(left) > 0 {
			p.Console.Note("not yet: these nodes do not use the endpoint: %s", strings.Join(left, ", "))
			return nil
		}
	}
	if err := p.pointAddons(ctx); err != nil {
		return err
	}
	used := *p.run.config.Endpoint.Change
	if used.InAddOns || used.Number == 0 {
		return nil
	}
	used.InAddOns = true
	if p.run.undoes() && (used.Number != p.run.number() || used.Pending != nil) {
		p.run.config.Endpoint.Change = &used // upload stores it, together with what kubeadm-config is to have
		return nil
	}
	return p.storeChange(ctx, used)
}

func (p *clusterPart) pointAddons(ctx context.Context) error {
	server := p.run.addonServer()
	if server == p.run.formerAddonServer() {
		return nil
	}
	now, changed, err := p.run.client.PointProxies(ctx, p.run.formerServers(), server)
	p.Changed(changed)
	if err != nil {
		return err
	}
	if now != "" && now != server {
		p.Console.Warn("kube-proxy uses %s, which the user chose: it is not changed", now)
	}
	if now == server {
		reason := "endpoint change " + strconv.Itoa(p.run.config.Endpoint.Change.Number)
		restarted, err := workloads.RestartDaemonSet(ctx, p.run.client.API, reason, "kube-system", "kube-proxy")
		p.Changed(restarted)
		if err != nil {
			return err
		}
	}
	now, changed, err = p.run.client.PointFlannel(ctx, p.run.formerServers(), server)
	p.Changed(changed)
	if err != nil {
		return err
	}
	if now != "" && now != server {
		p.Console.Warn("flannel uses %s, which the user chose: it is not changed", now)
	}
	for namespace, name := range map[string]string{"kube-system": "kube-proxy", "kube-flannel": "kube-flannel-ds"} {
		if err := workloads.WaitForDaemonSet(ctx, p.run.client.API, p.limit(), namespace, name); err != nil && ctx.Err() == nil {
			p.Console.Warn("%v: until then it uses the former address", err) // of a node that is off, for example
		}
	}
	return ctx.Err()
}

// summarize sets the text that says what to run next, and where.
func (p *clusterPart) summarize(ctx context.Context) {
	self, server := p.run.config.NodeRegistration.Name, p.run.config.Endpoint.Change.Server
	text := self + " follows the change of the endpoint.\n"
	if p.run.late {
		text = self + " serves both endpoints for now.\n"
	}
	defer func() { p.Console.Summary(text) }()
	if !p.IsControlPlane() {
		return
	}
	planes, workers, err := p.run.behind(ctx, p.run.follows)
	if err != nil {
		return
	}
	planes = slices.DeleteFunc(planes, func(name string) bool { return name == self })
	left := append(planes, workers...)
	if p.run.undoes() { // control planes serve what workers may use
		left = append(workers, planes...)
	}
	if p.run.late { // again, at the end
		left = append(left, self)
	}
	switch {
	case len(left) > 0:
		text += "\nRun on these nodes, in this order:\n\n    " + strings.Join(left, "\n    ") + "\n\n    ./install endpoint node\n"
		if !p.run.undoes() && !slices.Contains(left, self) {
			text += "\nand then the same here once more, for kube-proxy and flannel.\n"
		}
	case p.run.undoes():
		text = "The change of the endpoint is undone: the API is reached at " + server + ".\n"
	default:
		text = "All nodes reach the API at " + server + ".\n\nTo add control planes, run here, and then on each new host the command that it prints:\n\n" +
			"    key=$(./install certs certificate-key)\n    ./install init phase upload-certs --upload-certs --certificate-key $key\n" +
			"    ./install token create --print-join-command --certificate-key $key\n"
	}
}

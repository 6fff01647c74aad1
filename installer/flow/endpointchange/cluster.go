package endpointchange

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/render"
)

// limit limits a wait for the cluster.
func (c *Change) limit() wait.Limit { return wait.Limit{Timeout: timeout, Report: c.Report} }

// upload stores the endpoint in the cluster, from which joining nodes and the other nodes read it.
func (c *Change) upload(ctx context.Context) error {
	change := c.config.Endpoint.Change
	if change.Number == c.number() && change.Pending == nil {
		return nil
	}
	// What was before must be known before anything changes, and a repeated run must not take a part of the change for it.
	agreed := *change
	agreed.Pending = nil
	if err := c.storeChange(ctx, c.pending()); err != nil {
		return err
	}
	configuration, err := render.UploadClusterConfig(c.config)
	if err != nil {
		return err
	}
	if err := c.Applied(c.client.Apply(ctx, configuration...)); err != nil {
		return err
	}
	return c.storeChange(ctx, agreed)
}

// storeChange stores the endpoint with a change.
func (c *Change) storeChange(ctx context.Context, change config.EndpointChange) error {
	c.config.Endpoint.Change = &change
	objects, err := render.UploadEndpoint(c.config)
	if err != nil {
		return err
	}
	return c.Applied(c.client.Apply(ctx, objects...))
}

// record records that this node follows the change, or only serves the endpoint.
func (c *Change) record(ctx context.Context) error {
	if c.config.Endpoint.Change.Number == 0 { // init made it, and nodes record only changes
		c.Console.Summary("This node has the cluster's endpoint, " + c.config.Endpoint.Change.Server + ".\n")
		return nil
	}
	err := c.follow(ctx)
	if err == nil {
		c.summarize(ctx)
	}
	return err
}

func (c *Change) follow(ctx context.Context) error {
	changed, err := c.client.NodeObjects().Follow(ctx, c.config.NodeRegistration.Name, func(f *cluster.Follows) {
		f.Endpoint, f.OnlyServes = c.config.Endpoint.Change.Number, c.late
	})
	c.Changed(changed)
	return err
}

// recordUse records that this control plane uses the former endpoint again, and still serves what others may use.
func (c *Change) recordUse(ctx context.Context) error {
	if c.late = c.config.Endpoint.Change.Number > 0; !c.late {
		return nil
	}
	for _, n := range c.nodes {
		if n.Name == c.config.NodeRegistration.Name && c.follows(n) {
			return nil
		}
	}
	return c.follow(ctx)
}

// publish publishes the endpoint to joining nodes, when all control planes serve it.
func (c *Change) publish(ctx context.Context) error {
	planes, _, err := c.behind(ctx, c.serves)
	if err != nil {
		return err
	}
	if len(planes) > 0 && !c.undoes() {
		c.Console.Note("not yet: these control planes do not serve it: %s", strings.Join(planes, ", "))
		return nil
	}
	published := *c.config.Endpoint.Change
	changed, err := c.client.PublishServer(ctx, published.Server)
	c.Changed(changed)
	if err != nil || published.Published || published.Number == 0 {
		return err
	}
	published.Published = true
	return c.storeChange(ctx, published)
}

// useInAddons lets kube-proxy and flannel use the endpoint, when all nodes follow: then it answers on each of them. It records that.
func (c *Change) useInAddons(ctx context.Context) error {
	if !c.undoes() {
		planes, workers, err := c.behind(ctx, c.follows)
		if err != nil {
			return err
		}
		if left := append(planes, workers...); len(left) > 0 {
			c.Console.Note("not yet: these nodes do not use the endpoint: %s", strings.Join(left, ", "))
			return nil
		}
	}
	if err := c.pointAddons(ctx); err != nil {
		return err
	}
	used := *c.config.Endpoint.Change
	if used.InAddOns || used.Number == 0 {
		return nil
	}
	used.InAddOns = true
	if c.undoes() && (used.Number != c.number() || used.Pending != nil) {
		c.config.Endpoint.Change = &used // upload stores it, together with what kubeadm-config is to have
		return nil
	}
	return c.storeChange(ctx, used)
}

func (c *Change) pointAddons(ctx context.Context) error {
	server := c.addonServer()
	if server == c.formerAddonServer() {
		return nil
	}
	now, changed, err := c.client.PointProxies(ctx, c.formerServers(), server)
	c.Changed(changed)
	if err != nil {
		return err
	}
	if now != "" && now != server {
		c.Console.Warn("kube-proxy uses %s, which the user chose: it is not changed", now)
	}
	if now == server {
		reason := "endpoint change " + strconv.Itoa(c.config.Endpoint.Change.Number)
		restarted, err := workloads.RestartDaemonSet(ctx, c.client.API, reason, "kube-system", "kube-proxy")
		c.Changed(restarted)
		if err != nil {
			return err
		}
	}
	now, changed, err = c.client.PointFlannel(ctx, c.formerServers(), server)
	c.Changed(changed)
	if err != nil {
		return err
	}
	if now != "" && now != server {
		c.Console.Warn("flannel uses %s, which the user chose: it is not changed", now)
	}
	for namespace, name := range map[string]string{"kube-system": "kube-proxy", "kube-flannel": "kube-flannel-ds"} {
		if err := workloads.WaitForDaemonSet(ctx, c.client.API, c.limit(), namespace, name); err != nil && ctx.Err() == nil {
			c.Console.Warn("%v: until then it uses the former address", err) // of a node that is off, for example
		}
	}
	return ctx.Err()
}

// summarize sets the text with what to run next, and where.
func (c *Change) summarize(ctx context.Context) {
	self, server := c.config.NodeRegistration.Name, c.config.Endpoint.Change.Server
	text := self + " follows the change of the endpoint.\n"
	if c.late {
		text = self + " serves both endpoints for now.\n"
	}
	defer func() { c.Console.Summary(text) }()
	if !c.IsControlPlane() {
		return
	}
	planes, workers, err := c.behind(ctx, c.follows)
	if err != nil {
		return
	}
	planes = slices.DeleteFunc(planes, func(name string) bool { return name == self })
	left := append(planes, workers...)
	if c.undoes() { // control planes serve what workers may use
		left = append(workers, planes...)
	}
	if c.late { // again, at the end
		left = append(left, self)
	}
	switch {
	case len(left) > 0:
		text += "\nRun on these nodes, in this order:\n\n    " + strings.Join(left, "\n    ") + "\n\n    ./install endpoint node\n"
		if !c.undoes() && !slices.Contains(left, self) {
			text += "\nand then the same here once more, for kube-proxy and flannel.\n"
		}
	case c.undoes():
		text = "The change of the endpoint is undone: the API is reached at " + server + ".\n"
	default:
		text = "All nodes reach the API at " + server + ".\n\nTo add control planes, run here, and then on each new host the command that it prints:\n\n" +
			"    key=$(./install certs certificate-key)\n    ./install init phase upload-certs --upload-certs --certificate-key $key\n" +
			"    ./install token create --print-join-command --certificate-key $key\n"
	}
}

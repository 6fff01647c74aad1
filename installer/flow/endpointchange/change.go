// Package endpointchange changes how a running cluster reaches its API servers: it adds a virtual address, a balancer on
// each node, or another control-plane endpoint, and undoes that. Each node follows with one command, and records it.
package endpointchange

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/cluster/rotation"
	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/workflow"
)

// timeout limits the waits for the API server, for the new endpoint and for the pods of the add-ons.
const timeout = 5 * time.Minute

// A Verb is what a run does.
type Verb int

const (
	Apply  Verb = iota // change the endpoint, on a control plane
	Follow             // let this node follow the last change
	Undo               // undo the last change, on a control plane
)

// Options are the user's options.
type Options struct {
	Verb Verb
	// Of Apply. What the cluster has already stays.
	VIPs                  []string
	Balancer              bool
	ControlPlaneEndpoint  string
	IgnorePreflightErrors []string
}

// A Change takes this node through a change of the endpoint.
type Change struct {
	*node.Machine
	options Options
	client  *cluster.Client // on a control plane, of its own API server
	config  *config.Config  // this node's, with the new endpoint
	stored  config.Cluster  // as the cluster has it now
	// warnings are about fields of the stored configuration that are not kept.
	warnings []string
	turn     *node.Turn
	nodes    []cluster.NodeState // nil on a worker, which may not list them
	// late is set if another run has to finish the change on this control plane: it serves the new endpoint, but cannot use
	// it before the others serve it too; or it still serves one that was undone, because others may use it.
	late bool
}

// New connects to the cluster, and finds out what the change is. It refuses a change that is not possible on this host.
func New(ctx context.Context, o Options, h *host.Host, console *workflow.Console) (*Change, error) {
	c := &Change{Machine: node.NewMachine(h, console), options: o}
	err := c.checkHost()
	if err == nil {
		err = c.connect(ctx)
	}
	if err == nil {
		err = c.find(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close gives up the turn of this control plane.
func (c *Change) Close() { c.turn.End() }

// checkHost refuses a host that is not a node of Airlift's, or that another command has not finished.
func (c *Change) checkHost() error {
	switch {
	case pki.NodeName(c.Files()) == "":
		return fault.New(fault.Preflight, "this host is not a node of a cluster: %s does not have a node's name", node.KubeletConf).Hint("run it on a node of the cluster")
	case !c.Existing.Records().Used():
		return fault.New(fault.Preflight, "Airlift did not install this node: it has no ledger, in which changes are recorded").Hint("change its kubelet.conf by hand, as the tool describes that installed it")
	case c.options.Verb != Follow && !c.IsControlPlane():
		return fault.New(fault.Preflight, "this host is a worker").Hint("run it on a control plane; then here: ./install endpoint node")
	}
	if err := node.UnfinishedRestore(c.Existing); err != nil {
		return err
	}
	if err := node.UnfinishedReset(c.Existing); err != nil {
		return err
	}
	upgrade, err := node.ReadUpgradeState(c.Existing)
	if err == nil && upgrade != nil && !upgrade.Finished {
		err = fault.New(fault.Preflight, "an upgrade of this node to %s was not finished", upgrade.To).Hint("finish the upgrade first, or undo it: ./install upgrade undo")
	}
	return err
}

// connect connects to the API server of this host, or on a worker to the kubelet's. If that does not answer, its balancer may be
// what this run repairs: then it uses an API server that the service knew.
func (c *Change) connect(ctx context.Context) (err error) {
	if c.IsControlPlane() {
		if c.client, err = node.LoadClient(c.Host, node.AdminConf, node.OwnAPIServer(c.Host), 0); err != nil {
			return err
		}
		return c.client.Waits().WaitForAPI(ctx, timeout, c.Report)
	}
	known, err := c.knownAPIServers()
	if err != nil {
		return err
	}
	if c.client, err = c.ready(ctx, append([]string{""}, known...)); err != nil || c.client != nil {
		return err
	}
	if c.client, err = node.LoadClient(c.Host, node.KubeletConf, "", 0); err != nil {
		return err
	}
	err = c.client.Waits().WaitForAPI(ctx, timeout, c.Report)
	if err != nil && ctx.Err() == nil {
		err = fault.Wrap(err, fault.Failure, otherServerHint)
	}
	return err
}

const otherServerHint = "set the server in " + node.KubeletConf + " to the address of a control plane, https://ADDRESS:6443; then: systemctl restart kubelet; ./install endpoint node"

// knownAPIServers returns the addresses of API servers, "host:port", that the service of this host knows or knew last.
func (c *Change) knownAPIServers() (list []string, err error) {
	settings, err := endpoint.Read(c.Existing)
	if err != nil {
		return nil, err
	}
	if settings != nil {
		list = settings.ControlPlanes
	}
	last, err := os.ReadFile(c.Existing.Path(endpoint.StateFile))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return append(slices.Clip(list), strings.Fields(string(last))...), nil
}

// ready returns a client with the kubelet's identity of the first API server that is ready; nil if none is. "" is the kubelet's.
func (c *Change) ready(ctx context.Context, servers []string) (*cluster.Client, error) {
	for _, server := range servers {
		client, err := node.LoadClient(c.Host, node.KubeletConf, server, 0)
		if err != nil {
			return nil, err
		}
		if ready, _ := client.Ready(ctx); ready {
			return client, nil
		}
	}
	return nil, ctx.Err()
}

// find reads how the cluster is reached now, and computes how it will be.
func (c *Change) find(ctx context.Context) error {
	if state, err := rotation.Read(ctx, c.client.API); err != nil {
		return err
	} else if state != nil {
		return fault.New(fault.Preflight, "the cluster's CAs are being rotated (stage %q)", state.Stage).Hint("finish or cancel the rotation first, see: ./install certs rotate-ca status")
	}
	if c.IsControlPlane() {
		var err error
		if c.nodes, err = c.client.Nodes(ctx); err != nil {
			return err
		}
	}
	fetched, err := c.client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	c.stored, c.warnings = withPending(fetched.Cluster), fetched.Warnings
	c.config = &config.Config{Cluster: c.stored, NodeRegistration: config.NodeRegistration{Name: pki.NodeName(c.Files())}}
	if err := c.useAPIServer(); err != nil {
		return err
	}
	c.config.CompleteUpgrade(c.IsControlPlane())
	switch c.options.Verb {
	case Apply:
		return c.plan(ctx)
	case Undo:
		return c.planUndo()
	}
	return c.planFollow(ctx)
}

// planFollow lets this node follow the last change of the cluster. If there was none, it repairs what this node has of the
// endpoint that init made, or removes what is left of another one: the cluster may have been restored from a backup.
func (c *Change) planFollow(ctx context.Context) error {
	e := c.stored.Endpoint
	left := !e.Used() && c.Exists(endpoint.SettingsPath)
	switch {
	case e.Change != nil:
		return nil
	case !e.Used() && !left:
		return fault.New(fault.Preflight, "the endpoint of this cluster was not changed: this node has nothing to follow").Hint("change it on a control plane: ./install endpoint apply --help")
	}
	server := c.config.ServerURL()
	if c.config.ControlPlaneEndpoint == "" && !c.IsControlPlane() {
		var err error
		if server, err = c.onlyAPIServer(ctx); err != nil {
			return err
		}
	}
	c.config.Endpoint.Change = &config.EndpointChange{Undone: left, Server: server, Before: config.FormerEndpoint{
		VIPs: e.VIPs, Balancer: e.Balancer, ControlPlaneEndpoint: c.stored.ControlPlaneEndpoint, CertSANs: c.stored.APIServer.CertSANs, Server: server,
	}}
	return nil
}

// onlyAPIServer returns the URL of the API server of a cluster without an endpoint, for a worker. The Role that lets nodes read
// it may not be in the backup that was restored: the settings of the service have the addresses of that time.
func (c *Change) onlyAPIServer(ctx context.Context) (string, error) {
	var known []string
	servers, err := c.client.APIServers(ctx)
	for _, s := range servers {
		known = append(known, s.String())
	}
	if apierrors.IsForbidden(err) {
		known, err = c.knownAPIServers()
	}
	if err != nil {
		return "", err
	}
	client, err := c.ready(ctx, known)
	if err != nil {
		return "", err
	}
	if client == nil {
		return "", fault.New(fault.Failure, "no API server answers at %s", orNone(strings.Join(known, ", "))).Hint(otherServerHint)
	}
	return client.Server, nil
}

// withPending returns the configuration of a cluster with what an interrupted run was about to store.
func withPending(c config.Cluster) config.Cluster {
	if change := c.Endpoint.Change; change != nil && change.Pending != nil {
		c.ControlPlaneEndpoint, c.APIServer.CertSANs = change.Pending.ControlPlaneEndpoint, change.Pending.CertSANs
	}
	return c
}

// useAPIServer sets where the API server of this control plane listens.
func (c *Change) useAPIServer() error {
	if !c.IsControlPlane() {
		return nil
	}
	flags, _, err := node.ReadStaticPod(c.Existing, "kube-apiserver")
	if err != nil {
		return err
	}
	e := config.APIEndpoint{AdvertiseAddress: flags["advertise-address"], BindPort: config.DefaultBindPort}
	if e.AdvertiseAddress == "" {
		return fault.New(fault.Preflight, "reading %s: it has no --advertise-address", node.APIServerManifest).Hint("write it again: ./install init phase control-plane apiserver")
	}
	if port := flags["secure-port"]; port != "" {
		if _, err := fmt.Sscan(port, &e.BindPort); err != nil {
			return fmt.Errorf("reading %s: --secure-port=%q: %w", node.APIServerManifest, port, err)
		}
	}
	c.config.LocalAPIEndpoint = e
	return nil
}

// plan computes the endpoint that the options add to the cluster's.
func (c *Change) plan(ctx context.Context) error {
	now := c.stored.Endpoint
	want := config.Endpoint{VIPs: canonical(c.options.VIPs), Balancer: c.options.Balancer || now.Balancer, Change: now.Change}
	switch {
	case len(want.VIPs) == 0:
		want.VIPs = now.VIPs
	case !slices.Equal(now.VIPs, want.VIPs) && len(now.VIPs) > 0:
		return fault.New(fault.Usage, "the cluster has the virtual address %s already", strings.Join(now.VIPs, ", ")).
			Hint("keep it; or, if './install endpoint apply' added it, remove it first: ./install endpoint undo")
	}
	if !want.Used() && c.options.ControlPlaneEndpoint == "" {
		return fault.New(fault.Usage, "no endpoint was given").Hint("for a free address in the subnet of the control planes: ./install endpoint apply --control-plane-vip ADDRESS --control-plane-balancer")
	}
	for _, n := range c.nodes {
		for _, vip := range want.VIPs {
			if slices.Contains(n.Addresses, vip) {
				return fault.New(fault.Usage, "%s is the address of node %s", vip, n.Name).Hint("choose a free address in the subnet of the control planes")
			}
		}
	}
	if c.options.ControlPlaneEndpoint != "" {
		c.config.ControlPlaneEndpoint = c.options.ControlPlaneEndpoint
	}
	c.config.Endpoint = want
	if err := c.config.CompleteEndpoint(); err != nil {
		return err
	}
	if c.equal(now, want) {
		return nil
	}
	if err := c.checkFollowed(); err != nil {
		return err
	}
	before, err := c.present(ctx)
	if err != nil {
		return err
	}
	c.config.Endpoint.Change = &config.EndpointChange{Number: c.number() + 1, Server: c.config.ServerURL(), Before: before}
	return nil
}

// checkFollowed fails if nodes do not follow the last change: they may use what the next one takes away, and only the last
// one says what they had before.
func (c *Change) checkFollowed() error {
	var left []string
	for _, n := range c.nodes {
		if c.stored.Endpoint.Change != nil && !c.follows(n) {
			left = append(left, n.Name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fault.New(fault.Preflight, "the last change of the endpoint is not finished on: %s", strings.Join(left, ", ")).
		Hint("run there, and then here again: ./install endpoint node; a node that is lost: ./install node remove NAME; or go back first: ./install endpoint undo")
}

// canonical returns addresses as Kubernetes and certificates write them; what is none stays, and validation refuses it.
func canonical(addresses []string) (list []string) {
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			text = a.String()
		}
		list = append(list, text)
	}
	return list
}

// equal reports whether the cluster has the new endpoint already: then a repeated run finishes the last change.
func (c *Change) equal(now, want config.Endpoint) bool {
	return slices.Equal(now.VIPs, want.VIPs) && now.Balancer == want.Balancer &&
		c.stored.ControlPlaneEndpoint == c.config.ControlPlaneEndpoint && !c.undoes()
}

// undoes reports whether the last change of the cluster undid one.
func (c *Change) undoes() bool {
	last := c.config.Endpoint.Change
	return last != nil && last.Undone
}

// number is the number of the last change.
func (c *Change) number() int {
	if c.stored.Endpoint.Change == nil {
		return 0
	}
	return c.stored.Endpoint.Change.Number
}

// present is how the cluster is reached now.
func (c *Change) present(ctx context.Context) (config.FormerEndpoint, error) {
	server, err := c.client.ClusterInfoServer(ctx)
	if server == "" {
		now := *c.config
		now.Cluster = c.stored
		server = now.ServerURL()
	}
	e := c.stored.Endpoint
	if e.Change != nil { // cluster-info may not have it yet
		server = e.Change.Server
	}
	return config.FormerEndpoint{
		VIPs: e.VIPs, Balancer: e.Balancer, ControlPlaneEndpoint: c.stored.ControlPlaneEndpoint, CertSANs: c.stored.APIServer.CertSANs, Server: server,
	}, err
}

// planUndo computes the endpoint before the last change.
func (c *Change) planUndo() error {
	last := c.stored.Endpoint.Change
	switch {
	case last == nil:
		return fault.New(fault.Preflight, "the endpoint of this cluster was not changed").Hint("to see how the API is reached: ./install endpoint status")
	case last.Undone: // a repeated run finishes it
		return nil
	}
	planes := 0
	for _, n := range c.nodes {
		if n.Role == cluster.ControlPlaneRole {
			planes++
		}
	}
	if planes > 1 && last.Before.ControlPlaneEndpoint == "" {
		return fault.New(fault.Preflight, "without an endpoint, the cluster can have only one control plane, and it has %d", planes).
			Hint("remove the others first: ./install node remove NAME")
	}
	now, server := c.stored, last.Before.Server
	if last.Before.ControlPlaneEndpoint == "" { // the control plane of that time may have been removed
		server = c.config.LocalURL()
	}
	added := c.config.EndpointNames()
	c.config.APIServer.CertSANs = slices.DeleteFunc(slices.Clone(now.APIServer.CertSANs), func(name string) bool {
		return slices.Contains(added, name) && !slices.Contains(last.Before.CertSANs, name)
	})
	c.config.ControlPlaneEndpoint = last.Before.ControlPlaneEndpoint
	c.config.Endpoint = config.Endpoint{
		VIPs: last.Before.VIPs, Balancer: last.Before.Balancer,
		Change: &config.EndpointChange{Number: last.Number + 1, Undone: true, Server: server, Before: config.FormerEndpoint{
			VIPs: now.Endpoint.VIPs, Balancer: now.Endpoint.Balancer, ControlPlaneEndpoint: now.ControlPlaneEndpoint, CertSANs: now.APIServer.CertSANs, Server: last.Server,
		}},
	}
	return nil
}

// steps returns the steps of this node. A change first adds what is new, then uses it, and at the end removes what
// nobody uses any more: so the API can be reached at each moment, and an interrupted run can be repeated.
func (c *Change) steps() []workflow.Step {
	steps := []workflow.Step{{Name: "preflight", Doc: "check the new endpoint on this host", Run: c.preflight}}
	record := workflow.Step{Name: "record", Doc: "record that this node follows the change", Run: c.record}
	if !c.IsControlPlane() {
		return append(steps,
			workflow.Step{Name: "endpoint", Doc: "start the balancer", Run: c.serve, Empty: c.undoes() || !c.config.Endpoint.Balancer},
			workflow.Step{Name: "kubeconfig", Doc: "let the kubelet use the new endpoint", Run: c.useEndpoint},
			workflow.Step{Name: "cleanup", Doc: "stop the balancer", Run: c.cleanup, Empty: !c.undoes()}, record)
	}
	addons := workflow.Step{Name: "addon", Doc: "let kube-proxy and flannel use the new endpoint", Run: c.useInAddons}
	upload := workflow.Step{Name: "upload-config", Doc: "store the endpoint in the cluster", Run: c.upload}
	if c.undoes() {
		return append(steps, addons, upload,
			workflow.Step{Name: "kubeconfig", Doc: "let the kubelet and administrators use the former endpoint", Run: c.useEndpoint},
			workflow.Step{Name: "cluster-info", Doc: "publish the endpoint to joining nodes", Run: c.publish},
			workflow.Step{Name: "record", Doc: "record that this node uses the former endpoint", Run: c.recordUse},
			workflow.Step{Name: "cleanup", Doc: "remove the address, the balancer and their names, if no other node needs them", Run: c.cleanup}, record)
	}
	return append(steps, upload,
		workflow.Step{Name: "certs", Doc: "add the names of the endpoint to the API server's certificate", Run: c.addNames},
		workflow.Step{Name: "endpoint", Doc: "start the balancer and the virtual address", Run: c.serve, Empty: !c.config.Endpoint.Used()},
		workflow.Step{Name: "kubeconfig", Doc: "let the kubelet and administrators use the new endpoint", Run: c.useEndpoint},
		record,
		workflow.Step{Name: "cluster-info", Doc: "publish the endpoint to joining nodes", Run: c.publish},
		addons)
}

// Run changes this node, and on a control plane the cluster. It is safe to run it again: it finishes what an interrupted
// run left.
func (c *Change) Run(ctx context.Context) error { return workflow.Run(ctx, c.Console, c.steps(), nil) }

// DryRun prints what Run would do.
func (c *Change) DryRun() {
	var b strings.Builder
	b.WriteString(c.Describe() + "\nNothing was changed. The command would run these steps:\n\n")
	for _, s := range c.steps() {
		if !s.Empty {
			fmt.Fprintf(&b, "  - %s: %s\n", s.Name, s.Doc)
		}
	}
	c.Console.Summary(b.String())
	c.Console.Close()
}

// Describe returns the text that shows the change.
func (c *Change) Describe() string {
	change := c.config.Endpoint.Change
	var b strings.Builder
	line := func(key, before, after string) {
		if before != after {
			fmt.Fprintf(&b, "  %-20s %s -> %s\n", key+":", orNone(before), orNone(after))
		}
	}
	if change == nil {
		return "  the cluster has this endpoint since its init\n"
	}
	line("API", change.Before.Server, change.Server)
	line("controlPlaneEndpoint", change.Before.ControlPlaneEndpoint, c.config.ControlPlaneEndpoint)
	line("virtual address", strings.Join(change.Before.VIPs, ", "), strings.Join(c.config.Endpoint.VIPs, ", "))
	line("balancer", balancerText(change.Before.Balancer), balancerText(c.config.Endpoint.Balancer))
	return b.String()
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func balancerText(has bool) string {
	if has {
		return "on each node"
	}
	return ""
}

// follows reports whether a node has recorded that it has nothing left to do.
func (c *Change) follows(n cluster.NodeState) bool {
	return n.EndpointChange == c.config.Endpoint.Change.Number && !n.OnlyServes
}

// serves reports whether a node has recorded that it serves the new endpoint, or uses the former one again.
func (c *Change) serves(n cluster.NodeState) bool {
	return n.EndpointChange == c.config.Endpoint.Change.Number
}

// behind returns the names of the nodes, control planes first, that do not pass the test. It reads the nodes again.
func (c *Change) behind(ctx context.Context, passes func(cluster.NodeState) bool) (planes, workers []string, err error) {
	if c.nodes, err = c.client.Nodes(ctx); err != nil {
		return nil, nil, err
	}
	for _, n := range c.nodes {
		switch {
		case passes(n):
		case n.Role == cluster.ControlPlaneRole:
			planes = append(planes, n.Name)
		default:
			workers = append(workers, n.Name)
		}
	}
	return planes, workers, nil
}

// limit limits a wait for the cluster.
func (c *Change) limit() wait.Limit { return wait.Limit{Timeout: timeout, Report: c.Report} }

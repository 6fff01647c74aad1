// Package endpointchange changes how a running cluster reaches its API servers: it adds a virtual address, a balancer on
// each node, or another control-plane endpoint, and undoes that. Each node follows with one command, and records it.
package endpointchange

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"airlift/installer/cluster"
	"airlift/installer/cluster/rotation"
	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
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
	options      Options
	controlPlane bool            // this node is one
	client       *cluster.Client // on a control plane, of its own API server
	config       *config.Config  // this node's, with the new endpoint
	stored       config.Cluster  // as the cluster has it now
	warnings     []string        // about fields of the stored configuration that are not kept
	turn         *node.Turn
	nodes        []cluster.NodeState // nil on a worker, which may not list them
	// late is set if another run has to finish the change on this control plane: it serves the new endpoint, but cannot use
	// it before the others serve it too; or it still serves one that was undone, because others may use it.
	late bool
}

// New connects to the cluster, and finds out what the change is. It refuses a change that is not possible on this host.
func New(ctx context.Context, o Options, h *host.Host, console *workflow.Console) (*Change, error) {
	c := &Change{Machine: node.NewMachine(h, console), options: o}
	c.controlPlane = c.IsControlPlane()
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
	case !c.Existing.Records().Manages():
		return node.Managed(c.Existing, "; or change its kubelet.conf by hand, as the tool describes that installed it")
	case c.options.Verb != Follow && !c.IsControlPlane():
		return fault.New(fault.Preflight, "this host is a worker").Hint("run it on a control plane; then here: ./install endpoint node")
	}
	return revision.Unfinished(c.Existing)
}

// connect connects to the API server of this host, or on a worker to the kubelet's. If that does not answer, its balancer may be
// what this run repairs: then it uses an API server that the service knew.
func (c *Change) connect(ctx context.Context) (err error) {
	if c.IsControlPlane() {
		if c.client, err = node.LoadClient(c.Host, node.AdminConf, node.OwnAPIServer(c.Host), 0); err != nil {
			return err
		}
		return c.client.WaitForAPI(ctx, timeout, c.Report)
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
	err = c.client.WaitForAPI(ctx, timeout, c.Report)
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
		c.Console.Warn("%v: this run writes the file again", err)
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
	c.keep(server, left)
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

// useAPIServer sets where the API server of this control plane listens.
func (c *Change) useAPIServer() error {
	if !c.IsControlPlane() {
		return nil
	}
	flags, _, err := node.ReadStaticPod(c.Existing, "kube-apiserver")
	if err != nil {
		return err
	}
	if flags["advertise-address"] == "" {
		return fault.New(fault.Preflight, "reading %s: it has no --advertise-address", node.APIServerManifest).Hint("write it again: ./install init phase control-plane apiserver")
	}
	c.config.LocalAPIEndpoint, err = node.APIEndpoint(flags)
	return err
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
			workflow.Step{Name: "cleanup", Doc: "stop the balancer" + c.removes(), Run: c.cleanup, Empty: !c.undoes()}, record)
	}
	addons := workflow.Step{Name: "addon", Doc: "let kube-proxy and flannel use the new endpoint", Run: c.useInAddons}
	upload := workflow.Step{Name: "upload-config", Doc: "store the endpoint in the cluster", Run: c.upload}
	if c.undoes() {
		return append(steps, addons, upload,
			workflow.Step{Name: "kubeconfig", Doc: "let the kubelet and administrators use the former endpoint", Run: c.useEndpoint},
			workflow.Step{Name: "cluster-info", Doc: "publish the endpoint to joining nodes", Run: c.publish},
			workflow.Step{Name: "record", Doc: "record that this node uses the former endpoint", Run: c.recordUse},
			workflow.Step{Name: "cleanup", Doc: "remove the address, the balancer and their names, if no other node needs them" + c.removes(), Run: c.cleanup}, record)
	}
	return append(steps, upload,
		workflow.Step{Name: "certs", Doc: "add the names of the endpoint to the API server's certificate", Run: c.addNames},
		workflow.Step{Name: "endpoint", Doc: "start the balancer and the virtual address", Run: c.serve, Empty: !c.config.Endpoint.Used()},
		workflow.Step{Name: "kubeconfig", Doc: "let the kubelet and administrators use the new endpoint", Run: c.useEndpoint},
		record,
		workflow.Step{Name: "cluster-info", Doc: "publish the endpoint to joining nodes", Run: c.publish},
		addons)
}

// removes names the files that an undo removes.
func (c *Change) removes() string {
	list, err := phases.EndpointFiles(c.config, c.IsControlPlane(), nil)
	files := slices.DeleteFunc(slices.Clone(phases.EndpointPaths), func(file string) bool { return !c.Exists(file) })
	if err != nil || len(list.Files) > 0 || len(files) == 0 {
		return ""
	}
	return "; this removes " + strings.Join(files, ", ")
}

// Run changes this node, and on a control plane the cluster. It is safe to run it again: it finishes what an interrupted
// run left.
func (c *Change) Run(ctx context.Context) error { return workflow.Run(ctx, c.Console, c.steps(), nil) }

// DryRun prints what Run would do.
func (c *Change) DryRun() { c.Console.WouldRun(c.Describe(), c.steps()) }

// Describe returns the text that shows the change.
func (c *Change) Describe() string {
	change := c.config.Endpoint.Change
	var b strings.Builder
	line := func(key, before, after string) {
		if before != after {
			fmt.Fprintf(&b, "  %-20s %s -> %s\n", key+":", orNone(before), orNone(after))
		}
	}
	if change.Number == 0 {
		return "  the cluster has this endpoint since its init, or none\n"
	}
	line("API", change.Before.Server, change.Server)
	line("controlPlaneEndpoint", change.Before.ControlPlaneEndpoint, c.config.ControlPlaneEndpoint)
	line("virtual address", strings.Join(change.Before.VIPs, ", "), strings.Join(c.config.Endpoint.VIPs, ", "))
	line("balancer", balancerText(change.Before.Balancer), balancerText(c.config.Endpoint.Balancer))
	return b.String()
}

// preflight waits until no other control plane changes the cluster, and checks the new endpoint on this host.
func (c *Change) preflight(ctx context.Context) (err error) {
	if c.IsControlPlane() {
		if c.turn, err = node.TakeTurn(ctx, c.Machine, c.TurnName(), node.AdminConf, 0, c.client.Server); err != nil {
			return err
		}
		undoes, used := c.undoes(), c.config.Endpoint.Used()
		if err := c.find(ctx); err != nil { // as it is now
			return err
		}
		if c.undoes() != undoes || c.config.Endpoint.Used() != used { // the steps are for the former one
			return fault.New(fault.Failure, "another control plane has changed the endpoint meanwhile").Hint("run the same command again")
		}
	}
	for _, w := range c.warnings {
		c.Console.Warn("%s", w)
	}
	for line := range strings.Lines(c.Describe()) {
		c.Console.Note("%s", strings.TrimSpace(line))
	}
	if c.undoes() {
		return c.checkFormer(ctx)
	}
	if err := c.checkCertificate(); err != nil {
		return err
	}
	t := preflight.Target{Config: c.config, Root: string(c.Existing.Root), Rerun: c.Exists(endpoint.SettingsPath), Role: preflight.Join}
	if c.IsControlPlane() {
		t.Role = preflight.JoinControlPlane
		if c.newAddress() {
			t.Role = preflight.Init
		}
	}
	report, err := preflight.Endpoint(ctx, t, c.options.IgnorePreflightErrors)
	for _, w := range report.Warnings {
		c.Console.Warn("[%s]: %s", w.Name, w.Message)
	}
	return err
}

// checkFormer waits until the API answers where it is after an undo, before anything is sent there.
func (c *Change) checkFormer(ctx context.Context) error {
	_, err := c.reachable(ctx)
	if err != nil && ctx.Err() == nil {
		err = fault.Wrap(err, fault.Preflight, "nothing was changed: the former endpoint must answer on this host, try: curl -k "+c.config.Endpoint.Change.Server+"/readyz")
	}
	return err
}

// checkCertificate fails if the API server of this host cannot get the names of the endpoint: its CA may be external.
func (c *Change) checkCertificate() error {
	if !c.IsControlPlane() {
		return nil
	}
	_, err := pki.Rename(c.config, c.Files(), time.Now(), "apiserver")
	if err != nil {
		return fmt.Errorf("the API server's certificate needs the names %s: %w", strings.Join(c.names(), ", "), err)
	}
	return nil
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

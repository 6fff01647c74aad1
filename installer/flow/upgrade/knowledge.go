package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/cluster/facts"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/internal/fault"
)

// knowledge has the facts about this node and its cluster.
type knowledge struct {
	node    *phases.Node
	api     *phases.API
	options Options
	bundle  *payload.Bundle
	change  *change // of a reconfiguration; nil in an upgrade

	stored *cluster.Stored   // nil until all is known
	self   facts.UpgradeNode // this node, when the run began
}

// checkNode refuses a host that is not Airlift's node, or not the right node.
func (f *knowledge) checkNode() error {
	switch {
	case !node.FileExists(f.node.Existing, node.KubeletConf):
		return fault.New(fault.Preflight, "this host is not a node of a cluster: %s does not exist", node.KubeletConf).Hint("run it on a node; to make this host one: ./install init, or ./install join")
	case !f.node.Existing.Records().Used():
		return node.Managed(f.node.Existing, "; or upgrade it with the tool that installed it")
	case !f.options.Node && !f.node.IsControlPlane():
		return fault.New(fault.Preflight, "this host is a worker, and %s must run on a control plane", f.options.command()).Hint("run it on a control plane first; then, on this host: ./install " + strings.Fields(f.options.command())[0] + " node")
	}
	return nil
}

// localConfig returns the node's configuration from the files of this host.
func (f *knowledge) localConfig() (*config.Config, error) {
	c := &config.Config{Timeouts: f.options.Timeouts, Patches: f.options.Patches, SkipPhases: f.options.SkipPhases, DryRun: f.options.DryRun}
	if err := f.bundle.Configure(c); err != nil {
		return nil, err
	}
	if f.node.Existing.Records().Claimed(flannelState) == "" {
		c.CNI = "none"
	}
	socket, err := (&node.Machine{Host: f.node.Existing}).Containerd().KubeletSocket()
	if err != nil {
		return nil, err
	}
	c.NodeRegistration = config.NodeRegistration{
		Name: pki.NodeName(f.node.Files()), CRISocket: "unix://" + socket,
		IgnorePreflightErrors: f.options.IgnorePreflightErrors, ImagePullPolicy: f.options.ImagePullPolicy,
	}
	if c.NodeRegistration.Name == "" {
		return nil, fault.New(fault.Preflight, "%s does not have this node's name", node.KubeletConf).Hint("see ./install docs certificates: a kubelet whose certificate has expired")
	}
	if !f.node.IsControlPlane() {
		return c, nil
	}
	flags, err := apiServerFlags(f.node.Existing)
	if err != nil {
		return nil, err
	}
	c.LocalAPIEndpoint.AdvertiseAddress = flags["advertise-address"]
	c.LocalAPIEndpoint.BindPort = config.DefaultBindPort
	if port := flags["secure-port"]; port != "" {
		if _, err := fmt.Sscan(port, &c.LocalAPIEndpoint.BindPort); err != nil {
			return nil, fmt.Errorf("reading %s: --secure-port=%q: %w", node.APIServerManifest, port, err)
		}
	}
	return c, nil
}

// apiServerFlags returns the flags of a control plane's API server.
func apiServerFlags(h *host.Host) (map[string]string, error) {
	flags, _, err := node.ReadStaticPod(h, "kube-apiserver")
	if err == nil && len(flags) == 0 {
		err = fault.New(fault.Preflight, "reading %s: the file is damaged: it has no container with flags", node.APIServerManifest).Hint("restore it from a copy; after an upgrade, there is one below " + host.UpgradeDir)
	}
	return flags, err
}

// flannelState is the ledger's name for the state of Airlift's pod network.
const flannelState = "flannel's subnet file"

// connect loads the API client. On a control plane it is a client of this host's own API server.
func (f *knowledge) connect(c *config.Config) (err error) {
	switch {
	case f.options.Kubeconfig != "" && f.options.Kubeconfig != node.AdminConf:
		f.api.Client, err = cluster.Load(f.options.Kubeconfig, "")
	case f.node.IsControlPlane():
		f.api.Client, err = node.LoadClient(f.node.Existing, node.AdminConf, c.LocalURL(), c.Timeouts.KubernetesAPICall)
	default:
		f.api.Client, err = node.LoadClient(f.node.Existing, node.KubeletConf, "", c.Timeouts.KubernetesAPICall)
	}
	return err
}

// useCluster completes the configuration of this node with the cluster's.
func (f *knowledge) useCluster(ctx context.Context, c *config.Config, stored *cluster.Stored) (err error) {
	c.Facts, err = detection.Detect(ctx, f.node.Existing.Root, detection.Options{
		NodeIP: strings.Join(f.self.InternalIPs, ","), AddressFlag: "--node-ip", Networking: stored.Cluster.Networking, CNI: c.CNI,
	})
	if err != nil {
		return err
	}
	if driver, err := f.cgroupDriver(); err != nil {
		return err
	} else if driver != "" {
		c.Facts.CgroupDriver = driver
	}
	version := c.KubernetesVersion
	c.Cluster = stored.Cluster
	c.KubernetesVersion = version
	if !stored.DefaultProxy {
		c.KubeProxy = stored.KubeProxy
	}
	c.ProxyServer, c.FlannelServer = stored.ProxyServer, stored.FlannelServer
	if adopted := f.node.Existing.Records().Adopted(); adopted != nil { // add-ons that its maker installs in another way
		c.DNS.Disabled = c.DNS.Disabled || slices.Contains(adopted.Keeps, "coredns")
		c.Proxy.Disabled = c.Proxy.Disabled || slices.Contains(adopted.Keeps, "kube-proxy")
	}
	if f.change != nil {
		if err := f.change.merge(ctx, f, c, stored); err != nil {
			return err
		}
	}
	plan, err := f.complete(c)
	if err != nil {
		return err
	}
	f.node.Plan, f.node.Config = plan, plan.Config
	return nil
}

// complete returns the plan of this node for a configuration, which it completes.
func (f *knowledge) complete(c *config.Config) (*phases.Plan, error) {
	c.CompleteUpgrade(f.node.IsControlPlane())
	plan := *f.node.Plan
	plan.Config, plan.Role = c, phases.Worker
	if f.node.IsControlPlane() {
		plan.Role = phases.NextControlPlane
		if !f.options.Node {
			plan.Role = phases.FirstControlPlane
		}
	}
	if err := plan.LoadPatches(f.node.Console.Warn); err != nil {
		return nil, err
	}
	named, err := plan.NameImages(c)
	plan.Config = named
	return &plan, err
}

// cgroupDriver returns the cgroup driver in the kubelet's configuration.
func (f *knowledge) cgroupDriver() (string, error) {
	c, err := pods.KubeletConfiguration(f.node.Existing)
	if err != nil {
		return "", err
	}
	return c.CgroupDriver, nil
}

package revision

import (
	"context"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// CheckNode refuses a host that is not Airlift's node, or not the right node.
func (r *Revision) CheckNode() error {
	switch {
	case !node.FileExists(r.Existing, node.KubeletConf):
		return fault.New(fault.Preflight, "this host is not a node of a cluster: %s does not exist", node.KubeletConf).Hint("run it on a node; to make this host one: ./install init, or ./install join")
	case !r.Existing.Records().Manages():
		return node.Managed(r.Existing, "; or upgrade it with the tool that installed it")
	case !r.Options.Node && !r.IsControlPlane():
		return fault.New(fault.Preflight, "this host is a worker, and %s must run on a control plane", r.Options.Command).Hint("run it on a control plane first; then, on this host: ./install " + strings.Fields(r.Options.Command)[0] + " node")
	}
	return nil
}

// LocalConfig returns the node's configuration from the files of this host.
func (r *Revision) LocalConfig() (*config.Config, error) {
	c := &config.Config{Timeouts: r.Options.Timeouts, Patches: r.Options.Patches, SkipPhases: r.Options.SkipPhases, DryRun: r.Options.DryRun}
	if err := r.Bundle.Configure(c); err != nil {
		return nil, err
	}
	if r.Existing.Records().Claimed(flannelState) == "" {
		c.CNI = "none"
	}
	socket, err := node.RuntimeSocket(r.Existing)
	if err != nil {
		return nil, err
	}
	c.NodeRegistration = config.NodeRegistration{
		Name: pki.NodeName(r.Files()), CRISocket: "unix://" + socket,
		IgnorePreflightErrors: r.Options.IgnorePreflightErrors, ImagePullPolicy: r.Options.ImagePullPolicy,
	}
	if c.NodeRegistration.Name == "" {
		return nil, fault.New(fault.Preflight, "%s does not have this node's name", node.KubeletConf).Hint("see ./install docs certificates: a kubelet whose certificate has expired")
	}
	if !r.IsControlPlane() {
		return c, nil
	}
	flags, err := apiServerFlags(r.Existing)
	if err != nil {
		return nil, err
	}
	c.LocalAPIEndpoint, err = node.APIEndpoint(flags)
	return c, err
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

// Connect loads the API client. On a control plane it is a client of this host's own API server.
func (r *Revision) Connect(c *config.Config) (err error) {
	switch {
	case r.Options.Kubeconfig != "" && r.Options.Kubeconfig != node.AdminConf:
		r.API.Client, err = cluster.Load(r.Options.Kubeconfig, "")
	case r.IsControlPlane():
		r.API.Client, err = node.LoadClient(r.Existing, node.AdminConf, c.LocalURL(), c.Timeouts.KubernetesAPICall)
	default:
		r.API.Client, err = node.LoadClient(r.Existing, node.KubeletConf, "", c.Timeouts.KubernetesAPICall)
	}
	return err
}

// useCluster completes the configuration of this node with the cluster's.
func (r *Revision) useCluster(ctx context.Context, c *config.Config, stored *cluster.Stored) (err error) {
	c.Facts, err = detection.Detect(ctx, r.Existing.Root, detection.Options{
		NodeIP: strings.Join(r.Self.InternalIPs, ","), AddressFlag: "--node-ip", Networking: stored.Cluster.Networking, CNI: c.CNI,
	})
	if err != nil {
		return err
	}
	if driver, err := r.cgroupDriver(); err != nil {
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
	if adopted := r.Existing.Records().Adopted(); adopted != nil { // add-ons that its maker installs in another way
		c.DNS.Disabled = c.DNS.Disabled || slices.Contains(adopted.Keeps, "coredns")
		c.Proxy.Disabled = c.Proxy.Disabled || slices.Contains(adopted.Keeps, "kube-proxy")
	}
	if err := r.Change.Edit(ctx, c, stored); err != nil {
		return err
	}
	plan, err := r.Complete(c)
	if err == nil {
		r.Plan, r.Config = plan, plan.Config
	}
	return err
}

// Complete returns the plan of this node for a configuration, which it completes.
func (r *Revision) Complete(c *config.Config) (*phases.Plan, error) {
	c.CompleteUpgrade(r.IsControlPlane())
	plan := *r.Plan
	plan.Config, plan.Role = c, phases.Worker
	if r.IsControlPlane() {
		plan.Role = phases.NextControlPlane
		if !r.Options.Node {
			plan.Role = phases.FirstControlPlane
		}
	}
	if err := plan.LoadPatches(r.Console.Warn); err != nil {
		return nil, err
	}
	named, err := plan.NameImages(c)
	plan.Config = named
	return &plan, err
}

// cgroupDriver returns the cgroup driver in the kubelet's configuration.
func (r *Revision) cgroupDriver() (string, error) {
	c, err := node.KubeletConfiguration(r.Existing)
	if err != nil {
		return "", err
	}
	return c.CgroupDriver, nil
}

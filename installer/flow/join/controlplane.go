package join

import (
	"context"
	"fmt"
	"os"

	"airlift/installer/cluster"
	"airlift/installer/cluster/discovery"
	"airlift/installer/cluster/health"
	"airlift/installer/cluster/rotation"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/internal/fault"
)

// controlPlaneJoin is the part of join that only another control plane needs.
type controlPlaneJoin struct {
	*node.Machine
	node     *phases.Node
	api      *phases.API
	content  *phases.Content
	nodeJoin *nodeJoin
	local    *phases.ControlPlane
	certs    *sharedCerts
	etcd     *etcdJoin
}

func newControlPlaneJoin(p *phases.Plan, m *node.Machine) *controlPlaneJoin {
	j := newNodeJoin(p, m)
	c := &controlPlaneJoin{Machine: m, node: j.node, api: j.api, content: j.content, nodeJoin: j}
	j.role, c.local = c, &phases.ControlPlane{Machine: m, Node: j.node, Hold: c.holdsStaticPod, MayRestart: c.mayRestart}
	c.certs = &sharedCerts{Machine: m, node: j.node, join: j, local: c.local}
	c.etcd = &etcdJoin{Machine: m, node: j.node, api: j.api, local: c.local, plane: c}
	return c
}

// holdsStaticPod reports whether a static pod's manifest is written only after
// the kubelet has its certificate.
func (c *controlPlaneJoin) holdsStaticPod(pod pki.File) bool {
	return c.content.Stream != nil && !c.node.Plan.OnePhase && phases.IsAPIClient(pod) && !c.node.Plan.Skips("kubelet-start") && !c.node.Plan.Skips("kubelet-wait-bootstrap")
}

func (c *controlPlaneJoin) unpack(ctx context.Context, l desired.List) error {
	if err := c.nodeJoin.registry.KeepThin(ctx); err != nil {
		return err
	}
	return c.content.Unpack(ctx, l)
}

// preflight finds the cluster first, because the checks depend on the cluster's
// configuration. If that fails, it still reports the problems of the host.
func (c *controlPlaneJoin) preflight(ctx context.Context) error {
	lost := c.nodeJoin.needCluster(ctx)
	if ctx.Err() != nil {
		return lost
	}
	err := c.nodeJoin.preflight(ctx)
	if err == nil {
		return lost
	}
	if lost != nil {
		c.Console.Warn("%s", lost)
	}
	return err
}

// findCluster returns the cluster of which this host is a control plane
// already, or else the cluster that the user named.
func (c *controlPlaneJoin) findCluster(ctx context.Context) (*discovery.Cluster, *cluster.FetchedConfig, error) {
	found, fetched, err := c.knownCluster(ctx)
	if found == nil && err == nil {
		found, fetched, err = c.nodeJoin.discoverCluster(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	client, err := cluster.New(found.Kubeconfig, "")
	if err != nil {
		return nil, nil, err
	}
	return found, fetched, checkNoRotation(ctx, client)
}

// checkNoRotation refuses a cluster whose CAs are being rotated: the new control plane would have the
// CAs and keys of one stage, and miss the others.
func checkNoRotation(ctx context.Context, client *cluster.Client) error {
	rotation, err := rotation.Read(ctx, client.API)
	if err != nil || rotation == nil {
		return err
	}
	return fault.New(fault.Preflight,
		"the cluster's CAs are being rotated (stage %q): no control plane can join meanwhile", rotation.Stage).
		Hint("finish or cancel the rotation on the other nodes, see there: ./install certs rotate-ca status; then, if this host has certificates of the cluster: ./install reset --force; and join again")
}

// mayRestart fails if a component of this control plane, which has joined already, must not be restarted
// now.
func (c *controlPlaneJoin) mayRestart(ctx context.Context, component string) error {
	if err := c.needTurn(ctx); err != nil || component != node.EtcdPod {
		return err
	}
	return c.CheckQuorum(ctx)
}

// needTurn waits, once, until no other control plane is changed: an upgrade, a rotation of the CAs
// and a restart of etcd do not expect a new control plane. Then it reads again what they may have
// changed. Later calls fail if the turn is lost.
func (c *controlPlaneJoin) needTurn(ctx context.Context) (err error) {
	if c.nodeJoin.turn != nil {
		return c.nodeJoin.turn.Confirm(ctx)
	}
	if c.api.Client == nil {
		return fault.New(fault.Failure, "%s does not exist, and join needs it to connect to the cluster", node.AdminConf).Hint("run the phase control-plane-prepare/kubeconfig first")
	}
	if c.nodeJoin.turn, err = node.TakeTurn(ctx, c.Machine, c.node.Config.NodeRegistration.Name, node.AdminConf, 0, c.nodeJoin.cluster.found.Server); err != nil {
		return err
	}
	if err := checkNoRotation(ctx, c.api.Client); err != nil {
		return err
	}
	fetched, err := c.api.Client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	return c.checkVersion(fetched.Cluster.KubernetesVersion)
}

func (c *controlPlaneJoin) useCluster(found *discovery.Cluster, fetched config.Cluster) error {
	if err := c.checkVersion(fetched.KubernetesVersion); err != nil {
		return err
	}
	merged := *c.node.Config
	if err := merged.UseCluster(fetched); err != nil {
		return err
	}
	// The ConfigMap omits defaults: set them as init does. An empty pod subnet
	// is not a default there, so it stays empty.
	pods := merged.Networking.PodSubnet
	merged.CompleteInit()
	merged.Networking.PodSubnet = pods
	c.node.Config = &merged
	return c.certs.checkReady(found)
}

func (c *controlPlaneJoin) clientKubeconfig() string {
	if c.Exists(node.AdminConf) {
		return node.AdminConf
	}
	return ""
}

// bootstrapServer is this host's own API server in those versions of Kubernetes
// in which a control plane's kubelet uses it and not the balancer. Then etcd must join before the
// kubelet can get a certificate.
func (c *controlPlaneJoin) bootstrapServer() string {
	if c.node.Config.ControlPlaneKubeletLocalMode() && !c.node.Config.Endpoint.Balancer {
		return c.node.Config.LocalURL()
	}
	return ""
}

// keepsCA is true: the certificates of this host are signed with the CA file
// that checkReady accepted.
func (c *controlPlaneJoin) keepsCA() bool { return true }

// startKubelet starts the kubelet. If the phase runs alone, it includes the wait
// for the kubelet's certificate, unless etcd must join before.
func (c *controlPlaneJoin) startKubelet(ctx context.Context, l desired.List) error {
	if err := c.nodeJoin.kubelet.Start(ctx, l); err != nil || !c.node.Plan.OnePhase || c.bootstrapServer() != "" {
		return err
	}
	return c.waitBootstrap(ctx)
}

// waitBootstrap waits until the kubelet has its client certificate, and writes
// the static pods that wait for that.
func (c *controlPlaneJoin) waitBootstrap(ctx context.Context) error {
	if err := c.replacePods(ctx); err != nil {
		return err
	}
	if err := c.nodeJoin.waitBootstrap(ctx); err != nil {
		return err
	}
	return c.local.PlaceHeld(ctx)
}

// replacePods replaces changed static pods if the kubelet uses this host's own
// API server. A kubelet that uses another one replaces them itself.
func (c *controlPlaneJoin) replacePods(ctx context.Context) error {
	if len(c.local.Replaced) == 0 || c.bootstrapServer() == "" {
		return nil
	}
	api, err := node.LoadClient(c.Host, node.AdminConf, c.node.Config.LocalURL(), c.node.Config.Timeouts.KubernetesAPICall)
	if err != nil {
		return err
	}
	return c.local.ReplacePods(ctx, api)
}

// knownCluster uses the admin.conf that an earlier run wrote. A join that
// continues then needs no valid token. It returns nil if there is no admin.conf
// or if it does not work.
func (c *controlPlaneJoin) knownCluster(ctx context.Context) (*discovery.Cluster, *cluster.FetchedConfig, error) {
	if !node.FileExists(c.Existing, node.AdminConf) {
		return nil, nil, nil
	}
	d := c.node.Config.Discovery
	client, err := node.LoadClient(c.Existing, node.AdminConf, d.APIServerEndpoint, c.node.Config.Timeouts.KubernetesAPICall)
	if err != nil {
		return nil, nil, nil
	}
	ca := client.CA
	if len(d.CACertHashes) > 0 {
		pins, err := discovery.ParsePins(d.CACertHashes)
		if err != nil {
			return nil, nil, err
		}
		if ca, err = pins.Trusted(ca); err != nil {
			return nil, nil, fault.Wrap(fmt.Errorf("this host belongs to another cluster, according to %s: %w", node.AdminConf, err), fault.Preflight,
				"to remove everything Airlift installed: ./install reset --force")
		}
	}
	probe, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
	defer cancel()
	fetched, err := client.FetchConfig(probe)
	if err != nil {
		return nil, nil, ctx.Err()
	}
	found := &discovery.Cluster{Server: client.Server, CA: ca}
	if d.TLSBootstrapToken != "" {
		found.Kubeconfig = pki.BootstrapKubeconfig(found.Server, found.CA, d.TLSBootstrapToken)
	} else if found.Kubeconfig, err = os.ReadFile(c.Existing.Path(node.AdminConf)); err != nil {
		return nil, nil, err
	}
	return found, fetched, nil
}

// checkVersion refuses a cluster of another Kubernetes version. All control
// planes must run the same version, and a bundle contains only one.
func (c *controlPlaneJoin) checkVersion(running string) error {
	if running == c.node.Config.KubernetesVersion {
		return nil
	}
	return fault.New(fault.Preflight, "this bundle's control plane is %s and the cluster's is %s: all control planes must have the same version",
		c.node.Config.KubernetesVersion, running).
		Hint("use a bundle built with 'bundle build --version " + running + "', or upgrade the cluster first")
}

// waitControlPlane waits for the API server on this host and, in those versions of Kubernetes
// in which kubeadm does, for the controller manager and the scheduler.
func (c *controlPlaneJoin) waitControlPlane(ctx context.Context) error {
	local, err := node.LoadClient(c.Host, node.AdminConf, c.node.Config.LocalURL(), c.node.Config.Timeouts.KubernetesAPICall)
	if err != nil {
		return err
	}
	if err := c.local.WaitReplaced(ctx); err != nil {
		return err
	}
	timeout := c.node.Config.APIServer.TimeoutForControlPlane
	err = c.node.Watch.Watched(ctx, c.node.LocalAPI(), func(ctx context.Context) error {
		return local.WaitForAPI(ctx, timeout, c.Report)
	})
	if err != nil || !c.node.Config.WaitForAllControlPlaneComponents() {
		return err
	}
	for _, component := range []struct {
		name string
		port int
	}{
		{"kube-controller-manager", config.ControllerManagerPort},
		{"kube-scheduler", config.SchedulerPort},
	} {
		url, err := node.HealthURL(c.Host, component.name, component.port)
		if err != nil {
			return err
		}
		needs := pods.Dependency{Components: []string{component.name}, APIAnswers: local.Answers}
		err = c.node.Watch.Watched(ctx, needs, func(ctx context.Context) error {
			return health.WaitForComponent(ctx, component.name, url, timeout, c.Report)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// updateStatus does nothing: kubeadm keeps this phase for compatibility.
func (c *controlPlaneJoin) updateStatus(context.Context) error { return nil }

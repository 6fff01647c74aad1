package join

import (
	"context"

	"airlift/installer/cluster"
	"airlift/installer/cluster/discovery"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/phases"
)

// workerJoin is the part of join that only a worker needs.
type workerJoin struct {
	*node.Machine
	node     *phases.Node
	nodeJoin *nodeJoin
}

func newWorkerJoin(p *phases.Plan, m *node.Machine) *workerJoin {
	j := newNodeJoin(p, m)
	w := &workerJoin{m, j.node, j}
	j.role = w
	return w
}

func (w *workerJoin) findCluster(ctx context.Context) (*discovery.Cluster, *cluster.FetchedConfig, error) {
	return w.nodeJoin.discoverCluster(ctx)
}

func (w *workerJoin) useCluster(_ *discovery.Cluster, c config.Cluster) error {
	merged := *w.node.Config
	if err := merged.UseCluster(c); err != nil {
		return err
	}
	w.node.Config = &merged
	return nil
}

func (w *workerJoin) clientKubeconfig() string {
	if w.Exists(node.KubeletConf) && !w.Exists(node.BootstrapConf) {
		return node.KubeletConf
	}
	return ""
}

func (w *workerJoin) bootstrapServer() string { return "" }

func (w *workerJoin) keepsCA() bool { return false }

// startKubelet starts the kubelet. If the phase runs alone, it includes the wait
// for the kubelet's certificate.
func (w *workerJoin) startKubelet(ctx context.Context, l desired.List) error {
	if err := w.nodeJoin.kubelet.Start(ctx, l); err != nil || !w.node.Plan.OnePhase {
		return err
	}
	return w.nodeJoin.waitBootstrap(ctx)
}

package installer

import (
	"context"

	"airlift/installer/cluster"
	"airlift/installer/config"
)

// workerJoin is the part of join that only a worker needs.
type workerJoin struct {
	*nodeJoin
}

func newWorkerJoin(p *Plan, m *machine) *workerJoin {
	w := &workerJoin{newNodeJoin(p, m)}
	w.role = w
	return w
}

func (w *workerJoin) findCluster(ctx context.Context) (*cluster.Found, *cluster.FetchedConfig, error) {
	return w.discoverCluster(ctx)
}

func (w *workerJoin) useCluster(_ *cluster.Found, c config.Cluster) error {
	merged := *w.config
	if err := merged.UseCluster(c); err != nil {
		return err
	}
	w.config = &merged
	return nil
}

func (w *workerJoin) clientKubeconfig() string {
	if w.exists(kubeletConf) && !w.exists(bootstrapConf) {
		return kubeletConf
	}
	return ""
}

func (w *workerJoin) bootstrapServer() string { return "" }

func (w *workerJoin) keepsCA() bool { return false }

// startKubelet starts the kubelet. If the phase runs alone, it includes the wait
// for the kubelet's certificate.
func (w *workerJoin) startKubelet(ctx context.Context) error {
	if err := w.nodeJoin.startKubelet(ctx); err != nil || !w.plan.onePhase {
		return err
	}
	return w.waitBootstrap(ctx)
}

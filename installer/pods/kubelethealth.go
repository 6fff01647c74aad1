package pods

import (
	"cmp"
	"context"
	"time"

	"airlift/installer/cluster/health"
	"airlift/installer/config"
	"airlift/installer/node"
)

// WaitKubelet waits until the kubelet is healthy, for the time of the option or else kubeadm's,
// unless its configuration disables the health endpoint. So the error names the kubelet that cannot
// start, and not an API server that does not answer.
func (w *Watch) WaitKubelet(ctx context.Context, timeout time.Duration) error {
	settings, err := node.KubeletConfiguration(w.Host)
	if err != nil {
		return err
	}
	url := node.KubeletHealth(settings)
	if url == "" {
		return nil
	}
	timeout = cmp.Or(timeout, config.DefaultKubeletHealthCheckTimeout)
	return w.Watched(ctx, Dependency{}, func(ctx context.Context) error {
		return health.WaitForKubelet(ctx, url, timeout, w.Report)
	})
}

// WaitKubelet waits until the kubelet is healthy.
func (s *StaticPods) WaitKubelet(ctx context.Context) error {
	return s.watch.WaitKubelet(ctx, s.kubeletTimeout)
}

// RestartKubelet restarts the kubelet of this host and waits until it is healthy.
func (s *StaticPods) RestartKubelet(ctx context.Context) error {
	if err := s.Turn.Confirm(ctx); err != nil {
		return err
	}
	if err := s.Host.Systemd().Restart(ctx, "kubelet.service"); err != nil {
		return err
	}
	return s.watch.WaitKubelet(ctx, s.kubeletTimeout)
}

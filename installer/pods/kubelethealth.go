package pods

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster/health"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/status"
	"airlift/internal/fault"
)

// WaitKubelet waits until the kubelet is healthy, for the time of the option or else kubeadm's,
// unless its configuration disables the health endpoint. So the error names the kubelet that cannot
// start, and not an API server that does not answer.
func (w *Watch) WaitKubelet(ctx context.Context, timeout time.Duration) error {
	settings, err := KubeletConfiguration(w.Host)
	if err != nil {
		return err
	}
	port := int32(config.KubeletHealthzPort)
	if settings.HealthzPort != nil {
		port = *settings.HealthzPort
	}
	if port == 0 {
		return nil
	}
	address := cmp.Or(settings.HealthzBindAddress, "127.0.0.1")
	if ip := net.ParseIP(address); ip != nil && ip.IsUnspecified() {
		address = "localhost"
	}
	url := "http://" + net.JoinHostPort(address, strconv.Itoa(int(port))) + "/healthz"
	timeout = cmp.Or(timeout, config.DefaultKubeletHealthCheckTimeout)
	return w.Watched(ctx, Dependency{}, func(ctx context.Context) error {
		return health.WaitForKubelet(ctx, url, timeout, w.Report)
	})
}

// KubeletConfiguration reads the configuration of a host's kubelet.
func KubeletConfiguration(h *host.Host) (*kubeletv1.KubeletConfiguration, error) {
	path := status.KubeletConfigFile(h)
	data, err := os.ReadFile(h.Path(path))
	if err != nil {
		return nil, err
	}
	c := &kubeletv1.KubeletConfiguration{}
	err = yaml.Unmarshal(data, c)
	if err == nil && c.Kind == "" {
		err = errors.New("it has no KubeletConfiguration")
	}
	if err != nil {
		return nil, fault.New(fault.Failure, "reading %s: the file is damaged: %w", path, err).
			Hint("write it again: the cluster's is in 'kubectl get configmap kubelet-config -n kube-system -o yaml', and another node has the same file")
	}
	return c, nil
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

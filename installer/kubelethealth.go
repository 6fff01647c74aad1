package installer

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"strconv"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
)

// waitKubelet waits until the kubelet is healthy, unless its configuration
// disables the health endpoint. A kubelet that cannot start is then reported as
// such, and not as an API server that does not answer.
func (n *node) waitKubelet(ctx context.Context) error {
	settings, err := kubeletConfiguration(n.host)
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
	timeout := cmp.Or(n.config.Timeouts.KubeletHealthCheck, config.DefaultKubeletHealthCheckTimeout)
	return n.watched(ctx, dependency{}, func(ctx context.Context) error {
		return cluster.WaitForKubelet(ctx, url, timeout, n.report)
	})
}

// kubeletConfiguration reads the configuration of a host's kubelet.
func kubeletConfiguration(h *host.Host) (*kubeletv1.KubeletConfiguration, error) {
	data, err := os.ReadFile(h.Path(config.KubeletConfigFile))
	if err != nil {
		return nil, err
	}
	c := &kubeletv1.KubeletConfiguration{}
	err = yaml.Unmarshal(data, c)
	if err == nil && c.Kind == "" {
		err = errors.New("it has no KubeletConfiguration")
	}
	if err != nil {
		return nil, fault.New(fault.Failure, "write it again: the cluster's is in 'kubectl get configmap kubelet-config -n kube-system -o yaml', and another node has the same file",
			"reading %s: the file is damaged: %w", config.KubeletConfigFile, err)
	}
	return c, nil
}

// RestartKubelet restarts the kubelet of this host and waits until it is healthy.
func (s *StaticPods) RestartKubelet(ctx context.Context) error {
	if err := s.turn.confirm(ctx); err != nil {
		return err
	}
	if err := s.host.Restart(ctx, "kubelet.service"); err != nil {
		return err
	}
	return s.waitKubelet(ctx)
}

package installer

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/config"
)

// waitKubelet waits until the kubelet says that it is healthy, where its
// configuration tells it to say so. One that cannot start is found out here,
// and not by an API server that never comes.
func (n *Node) waitKubelet(ctx context.Context) error {
	data, err := os.ReadFile(n.Host.Path(config.KubeletConfigFile))
	if err != nil {
		return err
	}
	var settings kubeletv1.KubeletConfiguration
	if err := yaml.Unmarshal(data, &settings); err != nil {
		return fmt.Errorf("reading %s: %w", config.KubeletConfigFile, err)
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
	timeout := cmp.Or(n.Config.Timeouts.KubeletHealthCheck, config.DefaultKubeletHealthCheckTimeout)
	return cluster.WaitForKubelet(ctx, url, timeout, n.report)
}

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
	"airlift/installer/patches"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// kubelet installs and starts this node's kubelet.
type kubelet struct {
	*content
}

// writeFiles writes the kubelet's unit and configuration. cluster is the
// cluster's KubeletConfiguration.
func (k kubelet) writeFiles(cluster []byte) error {
	settings, err := render.NodeKubeletConfig(k.config, cluster)
	if err != nil {
		return err
	}
	settings, used, err := k.plan.patches.Apply(patches.KubeletConfiguration, settings)
	if err != nil {
		return err
	}
	k.reportPatched("the kubelet's configuration", used)
	flags, err := render.KubeletFlags(k.config, k.plan.role.registersTaints)
	if err != nil {
		return err
	}
	files := []pki.File{
		{Path: config.KubeletConfigFile, Data: settings, Mode: 0o644},
		{Path: config.KubeletFlagsFile, Data: flags, Mode: 0o644},
		{Path: render.KubeletUnitPath, Data: []byte(render.KubeletUnit), Mode: 0o644},
		{Path: render.KubeletDropInPath, Data: []byte(render.KubeletDropIn), Mode: 0o644},
	}
	if instance := render.KubeletInstanceConfig(k.config); instance != nil {
		files = append(files, pki.File{Path: render.KubeletInstanceConfigPath, Data: instance, Mode: 0o644})
	}
	return k.write(files...)
}

// start writes the kubelet's unit and configuration and starts it. It restarts
// a running kubelet if a file changed.
func (k kubelet) start(ctx context.Context, cluster []byte) error {
	before := k.changes
	if err := k.writeFiles(cluster); err != nil {
		return err
	}
	if err := k.claimKubeletCertDir(); err != nil {
		return err
	}
	if err := k.host.MkdirAll(config.ManifestsDir, 0o700); err != nil {
		return err
	}
	if err := k.waitBinaries(ctx, "bin/kubelet"); err != nil {
		return err
	}
	if k.changes == before {
		return k.host.EnableNow(ctx, "kubelet.service")
	}
	if err := k.host.Enable(ctx, "kubelet.service", true); err != nil {
		return err
	}
	return k.host.Restart(ctx, "kubelet.service")
}

// waitHealthy waits until the kubelet is healthy, unless its configuration
// disables the health endpoint. A kubelet that cannot start is then reported as
// such, and not as an API server that does not answer.
func (k kubelet) waitHealthy(ctx context.Context) error {
	data, err := os.ReadFile(k.host.Path(config.KubeletConfigFile))
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
	timeout := cmp.Or(k.config.Timeouts.KubeletHealthCheck, config.DefaultKubeletHealthCheckTimeout)
	return k.watched(ctx, dependency{}, func(ctx context.Context) error {
		return cluster.WaitForKubelet(ctx, url, timeout, k.report)
	})
}

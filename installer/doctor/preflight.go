package doctor

import (
	"cmp"
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host/detection"
	"airlift/installer/node"
	"airlift/installer/preflight"
	"airlift/installer/status"
)

// preflight runs the checks of init or join on this host, as for a second run.
func (d *Doctor) preflight(ctx context.Context, s *status.Status) preflight.Report {
	cfg := d.nodeConfig(s)
	options := detection.Options{Networking: cfg.Networking, CNI: cfg.CNI, AddressFlag: "--node-ip"}
	if len(s.Node.Addresses) > 0 {
		options.NodeIP = s.Node.Addresses[0]
	}
	var err error
	if cfg.Facts, err = detection.Detect(ctx, d.Host.Root, options); err != nil {
		return preflight.Report{Warnings: []preflight.Problem{{Name: "Preflight", Message: "the checks cannot run: " + err.Error()}}, Errors: []preflight.Problem{}}
	}
	target := preflight.Target{Config: cfg, Role: preflight.Join, Rerun: s.Node.Role != node.NoNode, Root: d.Host.Path("/"), Images: "/var/lib/containerd", RuntimeInUse: s.Node.Role != node.NoNode && !d.Host.Records().OwnsRuntime()}
	if target.Kubelet, err = os.ReadFile(d.Host.Path(node.KubeletConfigFile(d.Host))); err != nil {
		target.Kubelet = nil
	}
	target.FailSwapOn = preflight.FailSwapOn(target.Kubelet)
	if s.Node.Role == node.ControlPlane {
		target.Role = preflight.Init
		cfg.CompleteInit()
	} else {
		cfg.CompleteJoin()
	}
	// The error lists the problems of the report again.
	report, _ := preflight.Run(ctx, target, nil)
	if d.Host.Records().Adopted() != nil { // its maker created its data and its network
		report.Errors = slices.DeleteFunc(report.Errors, func(p preflight.Problem) bool {
			return p.Name == "PodNetwork" || strings.HasPrefix(p.Name, "DirAvailable-")
		})
	}
	return report
}

// nodeConfig returns the configuration of this node, as far as its files show it.
func (d *Doctor) nodeConfig(s *status.Status) *config.Config {
	seen := node.Observe(d.Host)
	cfg := seen.PKI()
	cfg.CNI = "none"
	cfg.KubernetesVersion = cmp.Or(s.Versions.Host.Kubelet, s.Versions.File.Kubernetes, "v1.29.0")
	cfg.NodeRegistration.Name = s.Node.Name
	if socket, err := node.RuntimeSocket(d.Host); err == nil {
		cfg.NodeRegistration.CRISocket = "unix://" + socket
	}
	if node.FileExists(d.Host, config.CNIConfDir+"/10-flannel.conflist") {
		cfg.CNI = "flannel"
	}
	if settings, err := endpoint.Read(d.Host); err == nil && settings != nil { // the status reports an error
		cfg.Endpoint = settings.Endpoint()
	}
	// The components would refuse malformed flags.
	if api := seen.Pod("kube-apiserver"); api != nil && api.Err == nil {
		cfg.LocalAPIEndpoint, _ = node.APIEndpoint(api.Flags)
		_ = cfg.Networking.ServiceSubnet.Set(api.Flags["service-cluster-ip-range"])
	}
	if manager := seen.Pod(node.ControllerManager); manager != nil && manager.Flags["cluster-cidr"] != "" {
		_ = cfg.Networking.PodSubnet.Set(manager.Flags["cluster-cidr"])
	}
	if cfg.LocalAPIEndpoint.AdvertiseAddress == "" && len(s.Node.Addresses) > 0 {
		if a, err := netip.ParseAddr(s.Node.Addresses[0]); err == nil {
			cfg.LocalAPIEndpoint.AdvertiseAddress = a.String()
		}
	}
	return cfg
}

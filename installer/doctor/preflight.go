package doctor

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/preflight"
	"airlift/installer/staticpod"
	"airlift/installer/status"
)

// preflight runs the checks of init or join on this host, as for a second run.
func (d *Doctor) preflight(ctx context.Context, s *status.Status) preflight.Report {
	failed := func(err error) preflight.Report {
		return preflight.Report{Warnings: []preflight.Problem{{Name: "Preflight", Message: "the checks cannot run: " + err.Error()}}, Errors: []preflight.Problem{}}
	}
	cfg := d.nodeConfig(s)
	options := detection.Options{Networking: cfg.Networking, CNI: cfg.CNI, AddressFlag: "--node-ip"}
	if len(s.Node.Addresses) > 0 {
		options.NodeIP = s.Node.Addresses[0]
	}
	var err error
	if cfg.Facts, err = detection.Detect(ctx, d.Host.Root, options); err != nil {
		return failed(err)
	}
	target := preflight.Target{Config: cfg, Role: preflight.Join, Rerun: s.Node.Role != status.NoNode, Root: d.Host.Path("/"), Images: "/var/lib/containerd", RuntimeInUse: target(d.Host, s)}
	if target.Kubelet, err = os.ReadFile(d.Host.Path(status.KubeletConfigFile(d.Host))); err != nil {
		target.Kubelet = nil
	}
	target.FailSwapOn = preflight.FailSwapOn(target.Kubelet)
	if s.Node.Role == status.ControlPlane {
		target.Role = preflight.Init
		cfg.CompleteInit()
	} else {
		cfg.CompleteJoin()
	}
	// The error lists the problems of the report again.
	report, _ := preflight.Run(ctx, target, nil)
	if d.Host.Records().Adopted() != nil {
		report.Errors = slices.DeleteFunc(report.Errors, ofAnotherTool)
	}
	return report
}

// ofAnotherTool reports whether a problem is only that Airlift did not create the data and the network of a node. On an adopted node,
// its maker did.
func ofAnotherTool(p preflight.Problem) bool {
	return p.Name == "PodNetwork" || strings.HasPrefix(p.Name, "DirAvailable-")
}

// target reports whether the node uses a containerd that existed before Airlift.
func target(h *host.Host, s *status.Status) bool {
	return s.Node.Role != status.NoNode && !h.Records().OwnsRuntime()
}

// nodeConfig returns the configuration of this node, as far as its files show it.
func (d *Doctor) nodeConfig(s *status.Status) *config.Config {
	cfg := &config.Config{CNI: "none"}
	cfg.KubernetesVersion = cmp.Or(s.Versions.Host.Kubelet, s.Versions.File.Kubernetes, "v1.29.0")
	cfg.NodeRegistration.Name = s.Node.Name
	if socket, err := status.RuntimeSocket(d.Host); err == nil {
		cfg.NodeRegistration.CRISocket = "unix://" + socket
	}
	if _, err := os.Stat(d.Host.Path(config.CNIConfDir + "/10-flannel.conflist")); err == nil {
		cfg.CNI = "flannel"
	}
	if settings, err := endpoint.Read(d.Host); err == nil && settings != nil { // the status reports an error
		cfg.Endpoint = settings.Endpoint()
	}
	pods, _ := staticpod.All(d.Host.Path(config.ManifestsDir))
	for _, p := range pods {
		if p.Err != nil {
			continue
		}
		switch p.Name {
		case "kube-apiserver":
			cfg.LocalAPIEndpoint.AdvertiseAddress = p.Flags["advertise-address"]
			if port, err := strconv.ParseInt(p.Flags["secure-port"], 10, 32); err == nil {
				cfg.LocalAPIEndpoint.BindPort = int32(port)
			}
			_ = cfg.Networking.ServiceSubnet.Set(p.Flags["service-cluster-ip-range"]) // the API server would refuse a malformed one
			if p.Flags["etcd-cafile"] != "" && !strings.Contains(p.Flags["etcd-servers"], net.JoinHostPort(cfg.LocalAPIEndpoint.Loopback(), strconv.Itoa(config.EtcdClientPort))) {
				cfg.Etcd.External = &config.ExternalEtcd{
					Endpoints: strings.Split(p.Flags["etcd-servers"], ","), CAFile: p.Flags["etcd-cafile"], CertFile: p.Flags["etcd-certfile"], KeyFile: p.Flags["etcd-keyfile"],
				}
			}
		case "kube-controller-manager":
			if cidr := p.Flags["cluster-cidr"]; cidr != "" {
				_ = cfg.Networking.PodSubnet.Set(cidr) // as above
			}
		}
	}
	if cfg.LocalAPIEndpoint.AdvertiseAddress == "" && len(s.Node.Addresses) > 0 {
		if a, err := netip.ParseAddr(s.Node.Addresses[0]); err == nil {
			cfg.LocalAPIEndpoint.AdvertiseAddress = a.String()
		}
	}
	return cfg
}

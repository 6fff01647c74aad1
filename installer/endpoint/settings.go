// Package endpoint describes the service of a host through which its processes reach the API of several control planes,
// and which gives a healthy control plane the virtual address: its settings, its systemd unit, and its state.
package endpoint

import (
	"fmt"
	"net/netip"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/internal/documents"
)

// The places of the service on a host.
const (
	Unit         = "airlift-endpoint.service"
	SettingsPath = config.KubernetesDir + "/endpoint.yaml"
	UnitPath     = "/etc/systemd/system/" + Unit
	// Socket is where the service answers requests for its state.
	Socket = runtimeDir + "/endpoint.sock"
	// StateFile has the addresses of the API servers that the service knew last, "host:port" on each line.
	StateFile = "/var/lib/" + stateDir + "/control-planes"

	runtimeDir = "/run/airlift-endpoint"
	stateDir   = "airlift/endpoint"
)

// Settings are what the service of one host does. Addresses of servers are "host:port".
type Settings struct {
	// Balancer is where this node's balancer listens; empty means that there is none.
	Balancer string `json:"balancer,omitempty"`
	// ControlPlanes are API servers that were known when the file was written.
	ControlPlanes []string `json:"controlPlanes,omitempty"`
	// VIPs are the virtual addresses; only on a control plane.
	VIPs []netip.Addr `json:"vips,omitempty"`
	// APIServer is this host's own API server; only on a control plane.
	APIServer string `json:"apiServer,omitempty"`
	// CertificatesDir has ca.crt of the cluster, and etcd's certificates.
	CertificatesDir string `json:"certificatesDir"`
}

const kind = "NodeEndpoint"

// For returns the settings for a node, nil if it needs no service. controlPlanes are API servers that are known
// already.
func For(c *config.Config, controlPlane bool, controlPlanes ...string) (*Settings, error) {
	s := &Settings{ControlPlanes: controlPlanes, CertificatesDir: c.CertificatesDir}
	if c.Endpoint.Balancer {
		s.Balancer = c.BalancerAddress()
	}
	if controlPlane {
		s.APIServer = strings.TrimPrefix(c.LocalURL(), "https://")
		for _, text := range c.Endpoint.VIPs {
			vip, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("reading the virtual addresses of the control plane: %w", err)
			}
			s.VIPs = append(s.VIPs, vip)
		}
	}
	if s.Balancer == "" && len(s.VIPs) == 0 {
		return nil, nil
	}
	return s, nil
}

// Endpoint returns the endpoint of which the settings are this host's part.
func (s *Settings) Endpoint() (e config.Endpoint) {
	e.Balancer = s.Balancer != ""
	for _, a := range s.VIPs {
		e.VIPs = append(e.VIPs, a.String())
	}
	return e
}

// Files are the settings and the unit.
func (s *Settings) Files() ([]pki.File, error) {
	data, err := documents.Encode(kind, s)
	if err != nil {
		return nil, err
	}
	return []pki.File{
		{Path: SettingsPath, Data: data, Mode: 0o644},
		{Path: UnitPath, Data: []byte(s.unit()), Mode: 0o644},
	}, nil
}

// Read returns the settings of a host, nil if it has none.
func Read(h *host.Host) (*Settings, error) {
	data, err := h.ReadIfExists(SettingsPath)
	if err != nil || data == nil {
		return nil, err
	}
	s, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", SettingsPath, err)
	}
	return s, nil
}

// Decode reads the settings that Files returned.
func Decode(data []byte) (*Settings, error) {
	s := new(Settings)
	if err := documents.Decode(data, kind, s); err != nil {
		return nil, err
	}
	return s, nil
}

// unit is the unit of the service. It starts before the kubelet, which needs it. It has no privilege but to change the
// addresses of the host and to announce them. One processor is enough, and then it uses less of it. It makes little
// garbage, so a smaller heap costs nothing. systemd restarts a process that hangs: until then it might keep an address
// that another host has. The balancer limits its connections, and so its memory. MemoryMax would also count what the kernel keeps
// for clients that do not read: one of them could end the process, and the host would lose the address.
func (s *Settings) unit() string {
	capabilities := ""
	if len(s.VIPs) > 0 {
		capabilities = "CAP_NET_ADMIN CAP_NET_RAW"
	}
	return fmt.Sprintf(`[Unit]
Description=Endpoint of the Kubernetes API on this host
Wants=network-online.target
After=network-online.target
Before=kubelet.service
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=%s endpoint serve
WatchdogSec=10
Restart=always
RestartSec=1
CapabilityBoundingSet=%s
NoNewPrivileges=yes
Environment=GOMAXPROCS=1 GOGC=50
RuntimeDirectory=%s
RuntimeDirectoryMode=0700
StateDirectory=%s
OOMScoreAdjust=-999
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
`, host.CommandPath, capabilities, strings.TrimPrefix(runtimeDir, "/run/"), stateDir)
}

// Package registry describes the embedded registry of a cluster: which bundles its control planes keep, and the service of
// a control plane that serves them, with its settings, its systemd unit, and the forms of its answers.
package registry

import (
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
	"airlift/internal/documents"
)

// The places of the service on a control plane.
const (
	Unit         = "airlift-registry.service"
	SettingsPath = config.KubernetesDir + "/registry.yaml"
	UnitPath     = "/etc/systemd/system/" + Unit
	// Socket is where the service answers requests for its state.
	Socket = runtimeDir + "/registry.sock"
	// Directory has the kept bundles.
	Directory = ledger.StateDir + "/bundles"

	runtimeDir = "/run/airlift-registry"
)

// CacheLimit is the default of the setting. It has room for the layers of a few large images.
const CacheLimit = 2 << 30

// Settings are what the service of one control plane does.
type Settings struct {
	// Listen is "host:port". Without a host, the service listens on all addresses of IPv4 and, if the host has it, IPv6.
	Listen string `json:"listen"`
	// CertificatesDir has ca.crt, apiserver.crt and apiserver.key.
	CertificatesDir string `json:"certificatesDir"`
	// Directory has the kept bundles.
	Directory string `json:"directory"`
	// CacheLimit is how many bytes of compressed layers are kept to serve them again.
	CacheLimit int64 `json:"cacheLimit"`
}

const kind = "NodeRegistry"

// For returns the settings for a control plane.
func For(c *config.Config) *Settings {
	return &Settings{
		Listen:          net.JoinHostPort("", strconv.Itoa(config.RegistryPort)),
		CertificatesDir: c.CertificatesDir, Directory: Directory, CacheLimit: CacheLimit,
	}
}

// CacheDirectory has compressed layers.
func (s *Settings) CacheDirectory() string { return path.Join(s.Directory, "cache") }

// KnownPath is where the service stores what it last knew from the API.
func (s *Settings) KnownPath() string { return path.Join(s.Directory, "known.json") }

// Prepare creates the directory of the kept bundles. Reset removes it with its contents.
func (s *Settings) Prepare(h *host.Host) error {
	err := h.Claim(ledger.Claim{Path: s.Directory, Contents: "the kept bundles",
		Fix: "if an earlier installation left them: rm -r " + s.Directory})
	if err != nil {
		return err
	}
	return h.MkdirAll(s.Directory, 0o700)
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
	switch {
	case !path.IsAbs(s.CertificatesDir) || !path.IsAbs(s.Directory):
		return nil, fmt.Errorf("certificatesDir %q and directory %q must be absolute paths", s.CertificatesDir, s.Directory)
	case s.CacheLimit < 0:
		return nil, fmt.Errorf("cacheLimit %d is negative", s.CacheLimit)
	}
	if _, port, err := net.SplitHostPort(s.Listen); err != nil || port == "" {
		return nil, fmt.Errorf("listen %q is not HOST:PORT", s.Listen)
	}
	return s, nil
}

// unit is the unit of the service. It starts before the kubelet, whose containerd pulls from it. It has no privilege, and
// writes only to its directory. It is in the root slice: weights only count between neighbours, and etcd runs in
// kubepods.slice. Two threads fill a link of 10 Gbit/s. The decoder of a bundle
// needs up to 128 MiB, and one runs at a time. MemoryMax also counts files that the kernel caches, and may drop. The service limits
// its connections to what fits in GOMEMLIMIT and LimitNOFILE.
func (s *Settings) unit() string {
	return fmt.Sprintf(`[Unit]
Description=Embedded registry of this control plane
Wants=network-online.target
After=network-online.target
Before=kubelet.service
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=%s registry serve
WatchdogSec=30
Restart=always
RestartSec=1
Slice=-.slice
CPUWeight=10
IOWeight=10
MemoryMax=512M
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=%s
RuntimeDirectory=%s
RuntimeDirectoryMode=0700
Environment=GOMAXPROCS=2 GOGC=50 GOMEMLIMIT=384MiB
OOMScoreAdjust=500
LimitNOFILE=4096

[Install]
WantedBy=multi-user.target
`, host.CommandPath, s.Directory, strings.TrimPrefix(runtimeDir, "/run/"))
}

// Package certs renews the certificates of a control plane, once or with a timer, and creates certificate signing
// requests and kubeconfigs. The CAs stay: package rotate replaces them.
package certs

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/node"
	"airlift/internal/fault"
)

// clusterTimeout limits the request for the cluster's configuration. Users must
// be able to renew certificates while the cluster is down because they expired.
const clusterTimeout = 5 * time.Second

// A Source names the configuration of a cluster and its certificates.
type Source struct {
	// ConfigFile is kubeadm's configuration file. If it is empty, the configuration is read from the cluster.
	ConfigFile string
	Kubeconfig string
	// CertificatesDir, if not empty, replaces the directory in the configuration.
	CertificatesDir string
	Rootfs          string // the host's root directory
	Warn            func(format string, args ...any)
}

// FS has the files of the host.
func (s *Source) FS() fs.FS { return os.DirFS(s.Rootfs) }

// readFile reads the configuration file. Without one it returns an empty Config.
func (s *Source) readFile() (*config.Config, error) {
	if s.ConfigFile == "" {
		return &config.Config{}, nil
	}
	cfg, warnings, err := config.ReadInit(s.ConfigFile)
	for _, w := range warnings {
		s.Warn("%s", w)
	}
	return cfg, err
}

// Load reads the cluster's configuration from the file, or else from the
// cluster. If the cluster cannot be reached, it uses what the static pods show
// and the defaults, and prints a warning.
func (s *Source) Load(ctx context.Context) (*config.Config, error) {
	cfg, err := s.readFile()
	if err != nil {
		return nil, err
	}
	if s.ConfigFile == "" {
		switch stored, err := s.fetch(ctx); {
		case err == nil:
			cfg.Cluster = stored
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			cfg.Cluster = s.localCluster()
			s.Warn("using the flags of this host's static pods and kubeadm's defaults, because the cluster's configuration cannot be read: %v", err)
		}
	}
	if cfg.CertificatesDir == "" {
		cfg.Cluster.CertificatesDir = config.CertificatesDir
	}
	return cfg, s.placeCerts(cfg)
}

func (s *Source) fetch(ctx context.Context) (config.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	file, err := s.kubeconfigFile()
	if err != nil {
		return config.Cluster{}, err
	}
	c, err := cluster.Load(file, "")
	if err != nil {
		return config.Cluster{}, err
	}
	fetched, err := c.FetchConfig(ctx)
	if err != nil {
		return config.Cluster{}, err
	}
	return fetched.Cluster, nil
}

// localCluster reads the cluster's facts from this host's static pods. If etcd certificates are on
// this host, it assumes that etcd runs here, because its manifest may be moved away.
func (s *Source) localCluster() config.Cluster {
	c := node.Observe(host.OpenDamaged(s.Rootfs)).PKI().Cluster
	if _, err := os.Stat(filepath.Join(s.Rootfs, c.CertificatesDir, "etcd/server.crt")); err == nil {
		c.Etcd.External = nil
	}
	return c
}

// placeCerts sets the directory of the certificates, if one was given.
func (s *Source) placeCerts(cfg *config.Config) error {
	if s.CertificatesDir == "" {
		return nil
	}
	dir, err := config.Absolute("--cert-dir", s.CertificatesDir)
	cfg.Cluster.CertificatesDir = dir
	return err
}

// kubeconfigFile is the path of the kubeconfig. With another root directory, it is below that.
func (s *Source) kubeconfigFile() (string, error) {
	if filepath.Clean(s.Rootfs) != "/" {
		return filepath.Join(s.Rootfs, s.Kubeconfig), nil
	}
	return config.Absolute("--kubeconfig", s.Kubeconfig)
}

// Node returns the configuration that init would use on this host: the configuration file, completed with
// facts about the host. kubernetes returns the version if the file has none; "" has the defaults of the
// oldest supported version.
func (s *Source) Node(ctx context.Context, kubernetes func() (string, error)) (*config.Config, error) {
	return s.node(ctx, kubernetes, true)
}

// node is Node. If whole is false, only the cluster's address matters, and it skips the host's facts if the
// file has that address.
func (s *Source) node(ctx context.Context, kubernetes func() (string, error), whole bool) (*config.Config, error) {
	cfg, err := s.readFile()
	if err != nil {
		return nil, err
	}
	complete := cfg.LocalAPIEndpoint.AdvertiseAddress != "" && cfg.NodeRegistration.Name != ""
	if !complete && (whole || cfg.ControlPlaneEndpoint == "") {
		h, err := host.Open(s.Rootfs)
		if err != nil {
			return nil, err
		}
		cfg.Facts, err = detection.Detect(ctx, h.Root, detection.Options{
			NodeIP:      cfg.LocalAPIEndpoint.AdvertiseAddress,
			AddressFlag: "localAPIEndpoint.advertiseAddress in the file of --config",
			Networking:  cfg.Networking, NewCluster: true, CNI: cfg.CNI,
		})
		if err != nil {
			return nil, err
		}
	}
	if cfg.KubernetesVersion == "" {
		if cfg.KubernetesVersion, err = kubernetes(); err != nil {
			return nil, err
		}
	}
	cfg.CompleteInit()
	return cfg, s.placeCerts(cfg)
}

// Cluster returns the cluster for a user's kubeconfig. On a control
// plane it reads the address from admin.conf. kubeadm uses its defaults there,
// which are wrong behind a load balancer.
func (s *Source) Cluster(ctx context.Context, kubernetes func() (string, error)) (*config.Config, error) {
	admin := filepath.Join(s.Rootfs, node.AdminConf)
	if _, err := os.Stat(admin); s.ConfigFile != "" || err != nil {
		return s.node(ctx, kubernetes, false)
	}
	k, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", node.AdminConf, err)
	}
	now := k.Contexts[k.CurrentContext]
	if now == nil || k.Clusters[now.Cluster] == nil {
		return nil, fault.New(fault.Failure, "the current context %q of %s has no cluster", k.CurrentContext, node.AdminConf).Hint("choose the cluster with --config")
	}
	cfg := &config.Config{}
	cfg.ClusterName = now.Cluster
	cfg.ControlPlaneEndpoint = strings.TrimPrefix(k.Clusters[now.Cluster].Server, "https://")
	cfg.Cluster.CertificatesDir = s.localCluster().CertificatesDir
	return cfg, nil
}

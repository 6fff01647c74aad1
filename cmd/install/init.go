package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"airlift/installer"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
)

const initExample = `  ./install init
  ./install init --apiserver-advertise-address 10.1.2.3
  ./install init --control-plane-endpoint k8s.site.example:6443 --upload-certs
  ./install init --dry-run`

func newInitCmd() *cobra.Command {
	var (
		cfg      config.Config
		token    string
		tokenTTL time.Duration
		skip     []string
		dryRun   bool
	)
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Make this host the first control plane of a new cluster",
		Long:    "Make this host the first control plane of a new cluster, with kubeadm's phases.\nRunning it again is safe: it finishes what an earlier run left and changes nothing else.",
		Example: initExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			n := &installer.Node{Config: &cfg, Console: console(cmd), SkipPhases: skip, UserToken: token != ""}
			if err := open(ctx, n, host.Options{
				NodeIP:        cfg.LocalAPIEndpoint.AdvertiseAddress,
				AddressFlag:   "--apiserver-advertise-address",
				PodSubnet:     cfg.Networking.PodSubnet,
				ServiceSubnet: cfg.Networking.ServiceSubnet,
			}); err != nil {
				return err
			}
			defer n.Close()
			if token == "" {
				made, err := cluster.NewToken()
				if err != nil {
					return err
				}
				token = made
			}
			cfg.BootstrapTokens = []config.BootstrapToken{{
				Token: token, TTL: tokenTTL, Description: "The token that './install init' made for nodes to join with.",
			}}
			cfg.CompleteInit()
			if err := cfg.ValidateInit(); err != nil {
				return err
			}
			if dryRun {
				return n.DryRunInit(ctx)
			}
			return installer.Run(ctx, n.Console, n.Init(), skip)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.LocalAPIEndpoint.AdvertiseAddress, "apiserver-advertise-address", "", "the address the API server is reached at (default: this host's, where there is only one sensible choice)")
	f.Int32Var(&cfg.LocalAPIEndpoint.BindPort, "apiserver-bind-port", config.DefaultBindPort, "the port the API server listens on")
	f.StringVar(&cfg.ControlPlaneEndpoint, "control-plane-endpoint", "", "a stable address or DNS name for the whole control plane, with or without a port")
	f.StringSliceVar(&cfg.APIServer.CertSANs, "apiserver-cert-extra-sans", nil, "more IP addresses and DNS names for the API server's certificate")
	f.StringVar(&cfg.Networking.PodSubnet, "pod-network-cidr", "", "the range of pod addresses (default "+config.DefaultPodSubnet+" with the bundle's pod network)")
	f.StringVar(&cfg.Networking.ServiceSubnet, "service-cidr", config.DefaultServiceSubnet, "the range of Service addresses")
	f.StringVar(&cfg.Networking.DNSDomain, "service-dns-domain", config.DefaultDNSDomain, "the domain of Services' names")
	f.StringVar(&cfg.CNI, "cni", "", "the pod network: flannel or none (default: what the bundle brings)")
	nodeFlags(f, &cfg)
	f.StringVar(&token, "token", "", "the token that nodes join with, abcdef.0123456789abcdef (default: a new random one)")
	f.DurationVar(&tokenTTL, "token-ttl", config.DefaultTokenTTL, "how long the token lives; 0 means for ever")
	f.BoolVar(&cfg.UploadCerts, "upload-certs", false, "store the control-plane certificates in the cluster, encrypted, for control planes to join")
	f.StringVar(&cfg.CertificateKey, "certificate-key", "", "the key that encrypts them, 64 hexadecimal digits (default: a new random one)")
	f.StringSliceVar(&skip, "skip-phases", nil, "phases to leave out, such as addon/kube-proxy\nThe phases: "+strings.Join(installer.Names(new(installer.Node).Init()), ", "))
	f.BoolVar(&dryRun, "dry-run", false, "write what would be written to a folder instead, and change nothing")
	return cmd
}

// open opens the bundle and the host, and looks the host over.
func open(ctx context.Context, n *installer.Node, o host.Options) error {
	f, err := openBundle()
	if err != nil {
		return err
	}
	if err := n.UseBundle(f); err != nil {
		return err
	}
	if n.Host, err = host.Open("/"); err != nil {
		return err
	}
	n.Config.Facts, err = n.Host.Detect(ctx, o)
	return err
}

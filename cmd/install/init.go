package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"airlift/fault"
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
			done, err := open(ctx, n, host.Options{
				NodeIP:        cfg.LocalAPIEndpoint.AdvertiseAddress,
				AddressFlag:   "--apiserver-advertise-address",
				PodSubnet:     cfg.Networking.PodSubnet,
				ServiceSubnet: cfg.Networking.ServiceSubnet,
			})
			if err != nil {
				return err
			}
			defer done()
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

// open opens the bundle and the host, and looks the host over. The caller
// calls done at the end.
func open(ctx context.Context, n *installer.Node, o host.Options) (done func(), err error) {
	f, err := openBundle()
	if err != nil {
		return nil, err
	}
	if err := n.UseBundle(f); err != nil {
		return nil, err
	}
	h, unlock, err := openHost()
	if err != nil {
		return nil, err
	}
	n.Host = h
	done = func() {
		n.Close()
		unlock()
	}
	if n.Config.Facts, err = h.Detect(ctx, o); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// openHost opens this host for changes by this process alone, until unlock.
func openHost() (h *host.Host, unlock func(), err error) {
	if os.Geteuid() != 0 {
		return nil, nil, fault.New(fault.Preflight, "run it with sudo or as root", "[ERROR IsPrivilegedUser]: this needs root")
	}
	if h, err = host.Open("/"); err != nil {
		return nil, nil, err
	}
	unlock, err = h.Lock()
	return h, unlock, err
}

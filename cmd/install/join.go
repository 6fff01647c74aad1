package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/fault"
	"airlift/installer"
	"airlift/installer/config"
	"airlift/installer/host"
)

func newJoinCmd() *cobra.Command {
	var (
		cfg    config.Config
		nodeIP string
		skip   []string
	)
	cmd := &cobra.Command{
		Use:     "join HOST:PORT",
		Short:   "Make this host a worker of an existing cluster",
		Long:    "Make this host a worker of an existing cluster. 'install init' prints the command to use.\nRunning it again is safe.",
		Example: "  ./install join 10.1.2.3:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:…",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fault.New(fault.Usage, "see 'install join --help'", "join takes one address, got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if len(args) == 1 {
				cfg.Discovery.APIServerEndpoint = args[0]
			}
			n := &installer.Node{Config: &cfg, Console: console(cmd)}
			done, err := open(ctx, n, host.Options{
				NodeIP: nodeIP, AddressFlag: "--node-ip", Peer: cfg.Discovery.APIServerEndpoint,
			})
			if err != nil {
				return err
			}
			defer done()
			cfg.CompleteJoin()
			if err := cfg.ValidateJoin(); err != nil {
				return err
			}
			return installer.Run(ctx, n.Console, n.Join(), skip)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	d := &cfg.Discovery
	f.StringVar(&d.Token, "token", "", "the token, as init printed it")
	f.StringSliceVar(&d.CACertHashes, "discovery-token-ca-cert-hash", nil, "the cluster's CA must have this hash: sha256:<hex>; may be repeated")
	f.BoolVar(&d.UnsafeSkipCAVerification, "discovery-token-unsafe-skip-ca-verification", false, "trust whatever CA answers with this token; who has the token can then pose as the cluster")
	f.StringVar(&d.TLSBootstrapToken, "tls-bootstrap-token", "", "the token the kubelet gets its certificate with (default: --token)")
	f.DurationVar(&d.Timeout, "discovery-timeout", config.DefaultDiscoveryTimeout, "how long to wait for the cluster to answer")
	f.StringVar(&nodeIP, "node-ip", "", "this node's address (default: the one it reaches the API server from)")
	f.StringVar(&cfg.CNI, "cni", "", "the pod network: flannel or none (default: what the bundle brings)")
	nodeFlags(f, &cfg)
	f.StringSliceVar(&skip, "skip-phases", nil, "phases to leave out")
	return cmd
}

// nodeFlags are the flags that init and join share.
func nodeFlags(f *pflag.FlagSet, cfg *config.Config) {
	f.StringVar(&cfg.NodeRegistration.Name, "node-name", "", "the node's name (default: the host's name)")
	f.StringVar(&cfg.NodeRegistration.CRISocket, "cri-socket", "", "the container runtime's socket (default unix://"+config.ContainerdSocket+")")
	f.StringSliceVar(&cfg.NodeRegistration.IgnorePreflightErrors, "ignore-preflight-errors", nil, "checks whose errors become warnings, such as Swap,NumCPU; all for every one")
}

package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/installer"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/timeline"
)

const initExample = `  ./install init
  ./install init --apiserver-advertise-address 10.1.2.3
  ./install init --control-plane-endpoint k8s.site.example:6443 --upload-certs
  ./install init --config kubeadm.yaml
  ./install init --dry-run
  ./install init --timeline init.json`

// initFlags are the flags of init and of each of its phases.
type initFlags struct {
	cfg        config.Config
	configFile string
	token      string
	tokenTTL   time.Duration
	options    installer.InitOptions
	runFlags   runFlags
	timeline   timelineFlag
}

func newInitCmd() *cobra.Command {
	in := &initFlags{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make this host the first control plane of a new cluster",
		Long: `Make this host the first control plane of a new cluster, with kubeadm's phases.
Running it again is safe: it finishes what an earlier run left and changes nothing else.

--config takes kubeadm's own YAML: InitConfiguration, ClusterConfiguration,
KubeletConfiguration and KubeProxyConfiguration. 'install init phase' runs one phase.` + timelineHelp,
		Example: initExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return in.timeline.record(cmd, &in.cfg, func(rec *timeline.Recorder) error {
				r, err := in.open(cmd)
				if err != nil {
					return err
				}
				defer r.done()
				if in.cfg.DryRun {
					return installer.DryRunInit(cmd.Context(), r.plan, in.options, r.host, r.console)
				}
				r.console.Timeline = rec
				run := installer.NewInit(r.plan, in.options, r.host, r.console)
				defer run.Close()
				return run.Run(cmd.Context())
			})
		},
	}
	in.bind(cmd.Flags())
	f := cmd.Flags()
	in.timeline.bind(f)
	f.StringSliceVar(&in.cfg.SkipPhases, "skip-phases", nil, "phases to leave out, such as addon/kube-proxy\nThe phases: "+strings.Join(installer.Names(installer.InitPhases()), ", "))
	cmd.AddCommand(newInitPhaseCmd())
	return cmd
}

func (in *initFlags) bind(f *pflag.FlagSet) {
	cfg := &in.cfg
	f.SortFlags = false
	f.StringVar(&in.configFile, "config", "", "kubeadm's configuration file; - is standard input")
	f.StringVar(&cfg.LocalAPIEndpoint.AdvertiseAddress, "apiserver-advertise-address", "", "the address the API server is reached at (default: this host's, where there is only one sensible choice)")
	f.Int32Var(&cfg.LocalAPIEndpoint.BindPort, "apiserver-bind-port", config.DefaultBindPort, "the port the API server listens on")
	f.StringVar(&cfg.ControlPlaneEndpoint, "control-plane-endpoint", "", "a stable address or DNS name for the whole control plane, with or without a port")
	f.StringSliceVar(&cfg.APIServer.CertSANs, "apiserver-cert-extra-sans", nil, "more IP addresses and DNS names for the API server's certificate")
	f.StringVar(&cfg.Cluster.CertificatesDir, "cert-dir", config.CertificatesDir, "where the certificates are kept")
	f.StringVar(&cfg.ImageRepository, "image-repository", config.DefaultImageRepository, "the registry that the control plane's images are named after")
	f.StringVar(&cfg.KubernetesVersion, "kubernetes-version", "", "must be the bundle's, if given")
	f.Var(featureGates{&cfg.FeatureGates}, "feature-gates", "kubeadm's feature gates, NAME=true|false, separated by commas")
	f.Var(&cfg.Networking.PodSubnet, "pod-network-cidr", "the range of pod addresses (default with the bundle's pod network: "+config.DefaultPodSubnet+", on a host with only IPv6 addresses "+config.DefaultPodSubnetIPv6+")")
	f.Var(&cfg.Networking.ServiceSubnet, "service-cidr", "the range of Service addresses (default "+config.DefaultServiceSubnet+", on a host with only IPv6 addresses "+config.DefaultServiceSubnetIPv6+")")
	f.StringVar(&cfg.Networking.DNSDomain, "service-dns-domain", config.DefaultDNSDomain, "the domain of Services' names")
	f.StringVar(&cfg.CNI, "cni", "", "the pod network: flannel or none (default: what the bundle brings)")
	f.StringVar(&cfg.ProxyServer, "kube-proxy-server", "", "the API server's URL for kube-proxy (default: the control-plane endpoint, else this host's)")
	f.StringVar(&cfg.Patches, "patches", "", "a directory with patches for the static pods, the kubelet's configuration and CoreDNS: TARGET[SUFFIX][+TYPE].yaml")
	nodeFlags(f, cfg, &in.runFlags)
	f.StringVar(&in.token, "token", "", "the token that nodes join with, abcdef.0123456789abcdef (default: a new random one)")
	f.DurationVar(&in.tokenTTL, "token-ttl", config.DefaultTokenTTL, "how long the token lives; 0 means for ever")
	f.BoolVar(&cfg.UploadCerts, "upload-certs", false, "store the control-plane certificates in the cluster, encrypted, for control planes to join")
	f.StringVar(&cfg.CertificateKey, "certificate-key", "", "the key that encrypts them, 64 hexadecimal digits (default: a new random one)")
	f.BoolVar(&in.options.SkipTokenPrint, "skip-token-print", false, "do not show the token at the end")
	f.BoolVar(&in.options.SkipCertificateKeyPrint, "skip-certificate-key-print", false, "do not show the certificate key at the end")
	f.BoolVar(&cfg.DryRun, "dry-run", false, "write the files to a new directory instead (below $KUBEADM_INIT_DRYRUN_DIR, if set), and change nothing")
}

// open reads the configuration file, the bundle and the host, and plans the
// run. The caller must call done at the end.
func (in *initFlags) open(cmd *cobra.Command) (*opened, error) {
	ctx, cfg := cmd.Context(), &in.cfg
	console := console(cmd)
	if in.options.PrintManifest {
		console.Out = cmd.ErrOrStderr()
	}
	if err := readConfig(cmd, in.configFile, cfg, config.ReadInit); err != nil {
		return nil, err
	}
	in.options.UserToken = in.token != "" || len(cfg.BootstrapTokens) > 0
	if len(cfg.BootstrapTokens) == 0 {
		if in.token == "" {
			var err error
			if in.token, err = cluster.NewToken(); err != nil {
				return nil, err
			}
		}
		cfg.BootstrapTokens = []config.BootstrapToken{{
			Token: in.token, TTL: in.tokenTTL, Description: "The token that './install init' made for nodes to join with.",
		}}
	}
	manifestsOnly := in.options.ManifestsOnly()
	run := in.runFlags
	run.changesNothing = run.changesNothing || manifestsOnly
	run.anyBundle = manifestsOnly
	r, err := run.open(ctx, cfg, console, host.Options{
		ForOtherHost: in.runFlags.rootfs != "" || manifestsOnly,
		NodeIP:       cfg.LocalAPIEndpoint.ChosenAddress(),
		AddressFlag:  "--apiserver-advertise-address",
		Networking:   cfg.Networking,
		NewCluster:   true,
	})
	if err != nil {
		return nil, err
	}
	cfg.CompleteInit()
	for _, w := range cfg.Warnings() {
		console.Warn("%s", w)
	}
	if err = cfg.ValidateInit(); err == nil {
		r.plan, err = installer.PlanInit(r.bundle, cfg, in.runFlags.onePhase, console.Warn)
	}
	if err != nil {
		r.done()
		return nil, err
	}
	return r, nil
}

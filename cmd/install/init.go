package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/fault"
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

// initFlags are what init and each of its phases take.
type initFlags struct {
	cfg        config.Config
	configFile string
	token      string
	tokenTTL   time.Duration
	node       installer.Node // the fields that flags set
	rootfs     string         // phases only
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
				n, done, err := in.open(cmd)
				if err != nil {
					return err
				}
				defer done()
				if n.Config.DryRun {
					return n.DryRunInit(cmd.Context())
				}
				n.Console.Timeline = rec
				return installer.Run(cmd.Context(), n.Console, n.Init(), n.Config.SkipPhases)
			})
		},
	}
	in.bind(cmd.Flags())
	f := cmd.Flags()
	in.timeline.bind(f)
	f.StringSliceVar(&in.cfg.SkipPhases, "skip-phases", nil, "phases to leave out, such as addon/kube-proxy\nThe phases: "+strings.Join(installer.Names(new(installer.Node).Init()), ", "))
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
	f.StringVar(&cfg.Networking.PodSubnet, "pod-network-cidr", "", "the range of pod addresses (default "+config.DefaultPodSubnet+" with the bundle's pod network)")
	f.StringVar(&cfg.Networking.ServiceSubnet, "service-cidr", config.DefaultServiceSubnet, "the range of Service addresses")
	f.StringVar(&cfg.Networking.DNSDomain, "service-dns-domain", config.DefaultDNSDomain, "the domain of Services' names")
	f.StringVar(&cfg.CNI, "cni", "", "the pod network: flannel or none (default: what the bundle brings)")
	f.StringVar(&cfg.ProxyServer, "kube-proxy-server", "", "the API server's URL for kube-proxy (default: the control-plane endpoint, else this host's)")
	f.StringVar(&cfg.Patches, "patches", "", "a folder with patches for the static pods, the kubelet's configuration and CoreDNS: TARGET[SUFFIX][+TYPE].yaml")
	nodeFlags(f, cfg, &in.node)
	f.StringVar(&in.token, "token", "", "the token that nodes join with, abcdef.0123456789abcdef (default: a new random one)")
	f.DurationVar(&in.tokenTTL, "token-ttl", config.DefaultTokenTTL, "how long the token lives; 0 means for ever")
	f.BoolVar(&cfg.UploadCerts, "upload-certs", false, "store the control-plane certificates in the cluster, encrypted, for control planes to join")
	f.StringVar(&cfg.CertificateKey, "certificate-key", "", "the key that encrypts them, 64 hexadecimal digits (default: a new random one)")
	f.BoolVar(&in.node.SkipTokenPrint, "skip-token-print", false, "do not show the token at the end")
	f.BoolVar(&in.node.SkipCertificateKeyPrint, "skip-certificate-key-print", false, "do not show the certificate key at the end")
	f.BoolVar(&cfg.DryRun, "dry-run", false, "write what would be written to a new folder instead (below $KUBEADM_INIT_DRYRUN_DIR, if set), and change nothing")
}

// open reads the config file, the bundle and the host, and completes and
// validates the Config. The caller calls done at the end.
func (in *initFlags) open(cmd *cobra.Command) (n *installer.Node, done func(), err error) {
	ctx, cfg := cmd.Context(), &in.cfg
	n = &in.node
	n.Config, n.Console = cfg, console(cmd)
	if n.PrintManifest {
		n.Console.Out = cmd.ErrOrStderr()
	}
	if err := readConfig(cmd, in.configFile, cfg, config.ReadInit); err != nil {
		return nil, nil, err
	}
	n.UserToken = in.token != "" || len(cfg.BootstrapTokens) > 0
	if len(cfg.BootstrapTokens) == 0 {
		if in.token == "" {
			if in.token, err = cluster.NewToken(); err != nil {
				return nil, nil, err
			}
		}
		cfg.BootstrapTokens = []config.BootstrapToken{{
			Token: in.token, TTL: in.tokenTTL, Description: "The token that './install init' made for nodes to join with.",
		}}
	}
	// kubeadm's way to ask for the default.
	if ip, err := netip.ParseAddr(cfg.LocalAPIEndpoint.AdvertiseAddress); err == nil && ip.IsUnspecified() {
		cfg.LocalAPIEndpoint.AdvertiseAddress = ""
	}
	done, err = openIn(ctx, n, in.rootfs, host.Options{
		ForOtherHost:  in.rootfs != "" || n.PrintManifest || n.RenderDir != "",
		NodeIP:        cfg.LocalAPIEndpoint.AdvertiseAddress,
		AddressFlag:   "--apiserver-advertise-address",
		PodSubnet:     cfg.Networking.PodSubnet,
		ServiceSubnet: cfg.Networking.ServiceSubnet,
	})
	if err != nil {
		return nil, nil, err
	}
	cfg.CompleteInit()
	for _, w := range cfg.Warnings() {
		n.Console.Warn("%s", w)
	}
	if err = cfg.ValidateInit(); err == nil {
		err = errors.Join(n.NameImages(), n.UsePatches())
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return n, done, nil
}

// open opens the bundle and this host, and looks the host over. The caller
// calls done at the end.
func open(ctx context.Context, n *installer.Node, o host.Options) (done func(), err error) {
	return openIn(ctx, n, "", o)
}

// openIn is open for a folder that stands for the host, where rootfs names one.
func openIn(ctx context.Context, n *installer.Node, rootfs string, o host.Options) (done func(), err error) {
	ctx, span := timeline.Start(ctx, timeline.Steps, "start-up")
	defer span.End()
	f, err := openBundle()
	if err != nil {
		return nil, err
	}
	if err := n.UseBundle(f); err != nil {
		return nil, err
	}
	if !n.SkipFileCheck {
		n.CheckFile(ctx)
	}
	unlock := func() {}
	switch {
	case rootfs != "":
		n.Host, err = host.OpenFolder(rootfs)
	case n.LookOnly || n.PrintManifest || n.RenderDir != "":
		n.Host, err = host.Open("/")
	default:
		n.Host, unlock, err = openHost()
	}
	done = func() {
		n.Close()
		unlock()
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	if !n.PrintManifest && n.RenderDir == "" { // which change no host
		if err := n.CheckBundle(ctx); err != nil {
			done()
			return nil, err
		}
	}
	here := n.Host
	if rootfs != "" { // it has files only; the rest of the host is this one
		here, err = host.Open("/")
	}
	if err == nil {
		n.Config.Facts, err = here.Detect(ctx, o)
	}
	if err != nil {
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
	return host.OpenLocked("/")
}

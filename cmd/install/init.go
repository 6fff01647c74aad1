package main

import (
	"errors"
	"io/fs"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/flow/initcluster"
	"airlift/installer/host/detection"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/profile"
	"airlift/installer/secrets"
	"airlift/installer/timeline"
)

const initExample = `  ./install init
  ./install init --apiserver-advertise-address 10.1.2.3
  ./install init --control-plane-vip 10.1.2.100 --control-plane-balancer --upload-certs
  ./install init --control-plane-endpoint k8s.site.example:6443 --upload-certs
  ./install init --profile hardened
  ./install init --config kubeadm.yaml
  ./install init --dry-run
  ./install init --timeline init.json`

// initFlags are the flags of init and of each of its phases.
type initFlags struct {
	cfg        config.Config
	configFile string
	profile    string
	token      string
	tokenTTL   time.Duration
	options    phases.InitOptions
	runFlags   runFlags
	timeline   timelineFlag
	// encryptSecrets lets the API servers encrypt Secrets with a key that init creates.
	encryptSecrets bool
	// read replaces the reading of configFile, for etcd restore.
	read func(cmd *cobra.Command) error
}

func newInitCmd() *cobra.Command {
	in := &initFlags{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Set up this host as the first control plane of a new cluster",
		Long: `Set up this host as the first control plane of a new cluster, with kubeadm's phases.
It is safe to run it again: it finishes what an earlier run left, and changes nothing
else. If this file has the site's own files, systemd units and manifests, init also
installs them.

--config accepts kubeadm's documents: InitConfiguration, ClusterConfiguration,
KubeletConfiguration and KubeProxyConfiguration. './install init phase' runs one phase;
its help lists them. All flags of kubeadm work; those that few people type are not listed.` + timelineHelp,
		Example: initExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return in.timeline.record(cmd, &in.cfg, func(rec *timeline.Recorder) error {
				r, err := in.open(cmd)
				if err != nil {
					return err
				}
				defer r.done()
				if in.cfg.DryRun {
					return initcluster.DryRun(cmd.Context(), r.plan, in.options, r.host, r.console)
				}
				r.console.Timeline = rec
				run := initcluster.New(r.plan, in.options, r.host, r.console)
				defer run.Close()
				return recorded(cmd, r.host, in.cfg.KubernetesVersion, func() error { return run.Run(cmd.Context()) })
			})
		},
	}
	in.bind(cmd.Flags())
	f := cmd.Flags()
	in.timeline.bind(f)
	f.StringSliceVar(&in.cfg.SkipPhases, "skip-phases", nil, "phases to skip, such as addon/kube-proxy; './install init phase --help' lists them")
	cmd.AddCommand(newInitPhaseCmd())
	return cmd
}

const encryptFlag = "encrypt-secrets"

func (in *initFlags) bind(f *pflag.FlagSet) {
	cfg := &in.cfg
	f.SortFlags = false
	f.StringVar(&in.configFile, "config", "", "kubeadm's configuration `FILE`; - is standard input")
	f.StringVar(&in.profile, "profile", "", "hardened: configure the cluster as the CIS benchmark asks; your own values in --config stay. Nodes that join follow")
	f.StringVar(&cfg.LocalAPIEndpoint.AdvertiseAddress, "apiserver-advertise-address", "", "the address at which this API server is reachable (default: this host's, if there is only one candidate)")
	f.Int32Var(&cfg.LocalAPIEndpoint.BindPort, "apiserver-bind-port", config.DefaultBindPort, "the port of the API server")
	f.StringVar(&cfg.ControlPlaneEndpoint, "control-plane-endpoint", "", "a stable address or DNS name for the whole control plane, with or without a port (default: the first --control-plane-vip, or the balancer)")
	f.StringSliceVar(&cfg.Endpoint.VIPs, "control-plane-vip", nil, "a free `ADDRESS` in the subnet of the control planes, at which a healthy one answers; with a comma, one of each family")
	f.BoolVar(&cfg.Endpoint.Balancer, "control-plane-balancer", false, "run a balancer on each node, through which its own processes reach all API servers")
	f.BoolVar(&cfg.Registry.Used, "embedded-registry", false, "let the control planes keep this file and serve it: thin installers read it, and containerd of each node pulls its images")
	f.BoolVar(&in.encryptSecrets, encryptFlag, false, "encrypt Secrets in etcd, with a key that is created here (default with --profile, for a new cluster: true)")
	f.StringSliceVar(&cfg.APIServer.CertSANs, "apiserver-cert-extra-sans", nil, "additional IP addresses and DNS names in the API server's certificate")
	f.StringVar(&cfg.Cluster.CertificatesDir, "cert-dir", config.CertificatesDir, "the `DIRECTORY` of the certificates")
	f.StringVar(&cfg.ImageRepository, "image-repository", config.DefaultImageRepository, "the registry in the names of the control plane's images")
	f.StringVar(&cfg.KubernetesVersion, "kubernetes-version", "", "the Kubernetes version; only the bundle's is accepted")
	f.Var(featureGates{&cfg.FeatureGates}, "feature-gates", "kubeadm's feature gates, NAME=true|false, separated by commas")
	f.Var(&cfg.Networking.PodSubnet, "pod-network-cidr", "the range of pod addresses (default, with the bundle's pod network: "+config.DefaultPodSubnet+"; on a host with only IPv6 addresses: "+config.DefaultPodSubnetIPv6+")")
	f.Var(&cfg.Networking.ServiceSubnet, "service-cidr", "the range of Service addresses (default: "+config.DefaultServiceSubnet+"; on a host with only IPv6 addresses: "+config.DefaultServiceSubnetIPv6+")")
	f.StringVar(&cfg.Networking.DNSDomain, "service-dns-domain", config.DefaultDNSDomain, "the domain of Services")
	f.StringVar(&cfg.CNI, "cni", "", "the pod network: flannel or none (default: the bundle's)")
	f.StringVar(&cfg.ProxyServer, "kube-proxy-server", "", "the API server's URL for kube-proxy (default: the control plane endpoint, or this host's API server)")
	f.StringVar(&cfg.Patches, "patches", "", "a `DIRECTORY` with patches for the static pods, the kubelet's configuration and CoreDNS: TARGET[SUFFIX][+TYPE].yaml")
	nodeFlags(f, cfg, &in.runFlags)
	f.StringVar(&in.token, "token", "", "the bootstrap token for joining nodes, abcdef.0123456789abcdef (default: a random one)")
	f.DurationVar(&in.tokenTTL, "token-ttl", config.DefaultTokenTTL, "how long the token is valid; 0 means that it never expires")
	f.BoolVar(&cfg.UploadCerts, "upload-certs", false, "upload the control plane certificates to the cluster, encrypted, so that other control planes can join")
	f.StringVar(&cfg.CertificateKey, "certificate-key", "", "the key that encrypts the uploaded certificates, 64 hexadecimal digits (default: a random one)")
	f.BoolVar(&in.options.SkipTokenPrint, "skip-token-print", false, "do not print the token")
	f.BoolVar(&in.options.SkipCertificateKeyPrint, "skip-certificate-key-print", false, "do not print the certificate key")
	f.BoolVar(&cfg.DryRun, "dry-run", false, "only write the files, to a new directory (below $KUBEADM_INIT_DRYRUN_DIR, if set); this host is not changed")
}

// encrypt lets the API server encrypt Secrets, if the user or the profile asks for it. The profile asks only for a new cluster: an API
// server that this host has already keeps what it does, also if 'secrets disable' has changed that.
func (in *initFlags) encrypt(cmd *cobra.Command, r *opened) error {
	if !in.encryptSecrets {
		if in.profile != profile.Hardened || cmd.Flags().Changed(encryptFlag) || secrets.OfSite(&in.cfg.Cluster) != "" {
			return nil
		}
		file, err := (&secrets.ControlPlane{Machine: node.NewMachine(r.host, r.console)}).Provider()
		if !in.options.ManifestsOnly() && (err == nil && file != secrets.File || err != nil && !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return secrets.Use(&in.cfg.Cluster)
}

// open reads the configuration file, the bundle and the host, and plans the
// run. The caller must call done at the end.
func (in *initFlags) open(cmd *cobra.Command) (*opened, error) {
	ctx, cfg := cmd.Context(), &in.cfg
	console := console(cmd)
	if in.options.PrintManifest {
		console.Out = cmd.ErrOrStderr()
	}
	read := func(cmd *cobra.Command) error { return readConfig(cmd, in.configFile, cfg, config.ReadInit) }
	if in.read != nil {
		read = in.read
	}
	if err := read(cmd); err != nil {
		return nil, err
	}
	cfg.DisableSkippedAddOns()
	in.options.FromFile = in.configFile != ""
	in.options.UserToken = in.token != "" || len(cfg.BootstrapTokens) > 0
	if len(cfg.BootstrapTokens) == 0 {
		if in.token == "" {
			var err error
			if in.token, err = cluster.NewToken(); err != nil {
				return nil, err
			}
		}
		cfg.BootstrapTokens = []config.BootstrapToken{{
			Token: in.token, TTL: in.tokenTTL, Description: "Created by './install init' for joining nodes.",
		}}
	}
	manifestsOnly := in.options.ManifestsOnly()
	run := in.runFlags
	run.command = cmd.CommandPath()
	run.changesNothing = run.changesNothing || manifestsOnly
	run.anyBundle = manifestsOnly
	r, err := run.open(ctx, cfg, console, detection.Options{
		ForOtherHost: in.runFlags.rootfs != "" || manifestsOnly,
		NodeIP:       cfg.LocalAPIEndpoint.ChosenAddress(),
		AddressFlag:  "--apiserver-advertise-address",
		Networking:   cfg.Networking,
		NewCluster:   true,
	})
	if err != nil {
		return nil, err
	}
	if err := in.encrypt(cmd, r); err != nil {
		r.done()
		return nil, err
	}
	cfg.CompleteInit()
	kept, err := profile.Apply(in.profile, cfg)
	for _, value := range kept {
		console.Warn("--profile %s does not change %s", in.profile, value)
	}
	for _, w := range cfg.Warnings() {
		console.Warn("%s", w)
	}
	if err == nil {
		err = cfg.ValidateInit()
	}
	if err == nil && !in.runFlags.onePhase && !in.runFlags.changesNothing { // preflight checks need no images
		err = r.bundle.NeedsSource()
	}
	if err == nil {
		r.plan, err = phases.PlanInit(r.bundle, cfg, in.runFlags.onePhase, console.Warn)
	}
	if err != nil {
		r.done()
		return nil, err
	}
	return r, nil
}

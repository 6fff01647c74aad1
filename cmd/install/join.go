package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/install/registrycmd"
	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/join"
	"airlift/installer/host/detection"
	"airlift/installer/phases"
	"airlift/installer/timeline"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

const joinExample = `  ./install join 10.1.2.3:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:…
  ./install join k8s.site.example:6443 --token … --discovery-token-ca-cert-hash sha256:… --control-plane --certificate-key …
  ./install join --config kubeadm.yaml --timeline join.json
  ./install join --discovery-file cluster-info.yaml --tls-bootstrap-token abcdef.0123456789abcdef`

// joinFlags are the flags of join and of each of its phases.
type joinFlags struct {
	cfg        config.Config
	configFile string
	token      string
	nodeIP     string
	runFlags   runFlags
	timeline   timelineFlag
}

func newJoinCmd() *cobra.Command {
	in := &joinFlags{}
	cmd := &cobra.Command{
		Use:   "join [HOST:PORT]",
		Short: "Join this host to an existing cluster",
		Long: `Join this host to an existing cluster, as a worker or, with --control-plane, as
another control plane. './install init' prints the command. It is safe to run it
again: it finishes what an earlier run left, and changes nothing else. If this file
has the site's own files and systemd units for such a node, join also installs them.

A control plane needs the cluster's certificates: --certificate-key downloads and
decrypts them, or copy them to /etc/kubernetes/pki first. It waits while another one
restarts its components or joins, and cannot join while the CAs are being rotated.

--config accepts kubeadm's JoinConfiguration. './install join phase' runs one phase.` + timelineHelp,
		Example: joinExample,
		Args:    output.AtMostOneArg("address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return in.timeline.record(cmd, &in.cfg, func(rec *timeline.Recorder) error {
				r, err := in.open(cmd, args)
				if err != nil {
					return err
				}
				defer r.done()
				if in.cfg.DryRun {
					return join.DryRun(cmd.Context(), r.plan, r.host, r.console)
				}
				r.console.Timeline = rec
				run := join.New(r.plan, r.host, r.console)
				defer run.Close()
				return recorded(cmd, r.host, in.cfg.KubernetesVersion, func() error { return run.Run(cmd.Context()) })
			})
		},
	}
	in.bind(cmd.Flags())
	in.timeline.bind(cmd.Flags())
	cmd.Flags().StringSliceVar(&in.cfg.SkipPhases, "skip-phases", nil, "phases to skip; './install join phase --help' lists them")
	cmd.AddCommand(newJoinPhaseCmd())
	return cmd
}

func (in *joinFlags) bind(f *pflag.FlagSet) {
	cfg := &in.cfg
	d := &cfg.Discovery
	f.SortFlags = false
	f.StringVar(&in.configFile, "config", "", "kubeadm's configuration `FILE` with a JoinConfiguration; - is standard input")
	f.StringVar(&in.token, "token", "", "the token that init printed; sets both --discovery-token and --tls-bootstrap-token")
	f.StringVar(&d.Token, "discovery-token", "", "the token for discovery of the cluster")
	f.StringVar(&d.TLSBootstrapToken, "tls-bootstrap-token", "", "the token with which the kubelet requests its certificate")
	f.StringSliceVar(&d.CACertHashes, "discovery-token-ca-cert-hash", nil, "trust only the CA with this hash, sha256:<hex>; repeat it while the cluster has an old and a new CA")
	f.BoolVar(&d.UnsafeSkipCAVerification, "discovery-token-unsafe-skip-ca-verification", false, "do not verify the cluster's CA; anyone who has the token can then impersonate the cluster")
	f.StringVar(&d.File, "discovery-file", "", "a kubeconfig with the cluster's address and CA: a file or an https:// URL")
	f.DurationVar(&d.Timeout, "discovery-timeout", config.DefaultDiscoveryTimeout, "how long to wait for the API server")
	f.BoolVar(&cfg.ControlPlane, "control-plane", false, "join as another control plane")
	f.StringVar(&cfg.CertificateKey, "certificate-key", "", "the key that decrypts the uploaded certificates; init --upload-certs printed it")
	f.StringVar(&cfg.LocalAPIEndpoint.AdvertiseAddress, "apiserver-advertise-address", "", "with --control-plane: the address at which this host's API server is reachable (default: --node-ip)")
	f.Int32Var(&cfg.LocalAPIEndpoint.BindPort, "apiserver-bind-port", config.DefaultBindPort, "with --control-plane: the port of this host's API server")
	f.StringVar(&in.nodeIP, "node-ip", "", "this node's address, also for the kubelet (default: the address of the default route, or without one the source address of its connections to the API server); in a dual-stack cluster one of each family, separated by a comma")
	f.StringVar(&cfg.CNI, "cni", "", "the pod network: flannel or none (default: the bundle's)")
	f.StringVar(&cfg.Patches, "patches", "", "a `DIRECTORY` with patches for the static pods and the kubelet's configuration: TARGET[SUFFIX][+TYPE].yaml")
	nodeFlags(f, cfg, &in.runFlags)
	f.BoolVar(&cfg.DryRun, "dry-run", false, "only write the files, to a new directory (below $KUBEADM_JOIN_DRYRUN_DIR, if set); this host is not changed")
}

// nodeFlags are the flags that init and join share.
func nodeFlags(f *pflag.FlagSet, cfg *config.Config, r *runFlags) {
	f.StringVar(&cfg.NodeRegistration.Name, "node-name", "", "the node's name (default: the host's name)")
	f.StringVar(&cfg.NodeRegistration.CRISocket, "cri-socket", "", "the container runtime's socket (default unix://"+config.ContainerdSocket+")")
	f.StringSliceVar(&cfg.NodeRegistration.IgnorePreflightErrors, "ignore-preflight-errors", nil, "checks whose errors become warnings, such as Swap,NumCPU, or all")
	registrycmd.BindSite(f, &r.registries)
	f.BoolVar(&r.skipFileCheck, "skip-file-check", false, "do not verify this file first; use it only after 'bundle verify' or sha256sum")
}

// open reads the configuration file, the bundle and the host, and plans the
// run. The caller must call done at the end.
func (in *joinFlags) open(cmd *cobra.Command, args []string) (*opened, error) {
	ctx, cfg := cmd.Context(), &in.cfg
	console := console(cmd)
	if err := readConfig(cmd, in.configFile, cfg, config.ReadJoin); err != nil {
		return nil, err
	}
	d := &cfg.Discovery
	if len(args) == 1 {
		if in.configFile != "" {
			return nil, fault.New(fault.Usage, "the address %q cannot be given together with --config", args[0]).Hint("set discovery.bootstrapToken.apiServerEndpoint in the file")
		}
		d.APIServerEndpoint = args[0]
	}
	if in.token != "" {
		if d.Token == "" && d.File == "" {
			d.Token = in.token
		}
		if d.TLSBootstrapToken == "" {
			d.TLSBootstrapToken = in.token
		}
	}
	if !cfg.ControlPlane {
		for _, name := range []string{"certificate-key", "apiserver-advertise-address", "apiserver-bind-port"} {
			if cmd.Flags().Changed(name) {
				console.Warn("--%s has no effect without --control-plane", name)
			}
		}
	}
	o := detection.Options{NodeIP: in.nodeIP, AddressFlag: "--node-ip", Peer: d.APIServerEndpoint}
	if ip := cfg.LocalAPIEndpoint.ChosenAddress(); cfg.ControlPlane && in.nodeIP == "" && ip != "" {
		o.NodeIP, o.AddressFlag = ip, "--apiserver-advertise-address"
	}
	in.runFlags.command = cmd.CommandPath()
	r, err := in.runFlags.open(ctx, cfg, console, o)
	if err != nil {
		return nil, err
	}
	cfg.Facts.NodeIPGiven = in.nodeIP != ""
	if in.runFlags.onePhase && d.APIServerEndpoint == "" && d.File == "" {
		d.File = join.OwnKubeconfig(r.host)
	}
	cfg.CompleteJoin()
	if !in.runFlags.changesNothing { // preflight does not need to know the cluster
		err = cfg.ValidateJoin()
	}
	if err == nil {
		r.plan, err = phases.PlanJoin(r.bundle, cfg, in.runFlags.onePhase, console.Warn)
	}
	if err != nil {
		r.done()
		return nil, err
	}
	return r, nil
}

// newJoinPhaseCmd returns the command with all phases and sub-phases of join.
func newJoinPhaseCmd() *cobra.Command {
	cmd := newPhaseCmd(join.Phases(true), output.AtMostOneArg("address"), func() phaseRun { return new(joinPhase) })
	cmd.Short = "Run one phase of join"
	cmd.Long = "Run one phase or sub-phase of join. The names are kubeadm's. Phases that only\ncontrol planes have imply --control-plane." + subPhases(join.Phases(true))
	cmd.Example = "  ./install join phase control-plane-prepare download-certs 10.1.2.3:6443 --token … --discovery-token-ca-cert-hash sha256:… --certificate-key …\n  ./install join phase control-plane-join all"
	return cmd
}

type joinPhase struct{ joinFlags }

func (p *joinPhase) bind(f *pflag.FlagSet, _ string) {
	p.joinFlags.bind(f)
	p.timeline.bind(f)
}

func (p *joinPhase) run(cmd *cobra.Command, name string, args []string) error {
	p.runFlags.onePhase = true
	if !slices.Contains(workflow.Names(join.Phases(false)), name) {
		p.cfg.ControlPlane = true // only control planes have this phase
	}
	return p.timeline.record(cmd, &p.cfg, func(*timeline.Recorder) error {
		r, err := p.open(cmd, args)
		if err != nil {
			return err
		}
		defer r.done()
		if p.cfg.DryRun {
			return join.DryRunPhase(cmd.Context(), r.plan, r.host, r.console, name)
		}
		run := join.New(r.plan, r.host, r.console)
		defer run.Close()
		return recorded(cmd, r.host, p.cfg.KubernetesVersion, func() error { return run.RunPhase(cmd.Context(), name) })
	})
}

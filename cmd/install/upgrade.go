package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/upgrade"
	"airlift/installer/host"
	"airlift/installer/revision"
	"airlift/installer/timeline"
	"airlift/installer/workflow"
)

const upgradeLong = `Upgrade a cluster to the Kubernetes version of this file, node by node: the first
control plane with 'upgrade apply', every other node with 'upgrade node'. Each file
has one version. Upgrade one minor version at a time; none can be skipped.

All new files are in place before anything stops. If a component of the control plane
does not become healthy, its previous manifest is restored. To finish an interrupted
upgrade, run the same command again; to undo it, run 'upgrade undo'.`

func newUpgradeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade this node and its cluster to the version of this file",
		Long:  upgradeLong,
	}
	cmd.AddCommand(newUpgradePlanCmd(), newUpgradeDiffCmd(), newUpgradeApplyCmd(), newUpgradeNodeCmd(), newUpgradeUndoCmd())
	return cmd
}

// upgradeFlags are the flags of upgrade apply, upgrade node and their phases.
type upgradeFlags struct {
	options       upgrade.Options
	configFile    string
	yes           bool
	skipFileCheck bool
	timeline      timelineFlag
}

func newUpgradeApplyCmd() *cobra.Command {
	in := &upgradeFlags{}
	cmd := &cobra.Command{
		Use:   "apply [VERSION]",
		Short: "Upgrade the first control plane, and with it the cluster",
		Long: `Upgrade the first control plane, the configuration stored in the cluster, and the
add-ons. Then run 'upgrade node' on every other node.

First, the images are imported and a backup is saved. Then the order is kubeadm's:
etcd, API server, controller manager and scheduler, each healthy before the next; the
stored configuration; CoreDNS, kube-proxy and the pod network; finally containerd and
the kubelet, after the node's pods have moved to other nodes.

CoreDNS, kube-proxy and flannel are postponed while a node does not have their new
images: run the command again after the last node.

It is safe to run it again: it finishes what an earlier run left, and changes nothing
else. The file determines the version; if VERSION is given, it must be the same.` + timelineHelp,
		Example: "  ./install upgrade apply\n  ./install upgrade apply v1.37.2 --yes\n  ./install upgrade apply --drain=false --certificate-renewal=false",
		Args:    output.AtMostOneArg("version"),
		RunE:    func(cmd *cobra.Command, args []string) error { return in.run(cmd, "", args) },
	}
	in.bind(cmd.Flags(), upgrade.ApplyPhases())
	cmd.Flags().BoolVarP(&in.yes, "yes", "y", false, "do not ask for confirmation")
	phases := newPhaseCmd(upgrade.ApplyPhases(), output.AtMostOneArg("version"), func() phaseRun { return new(upgradePhase) })
	phases.Short, phases.Long = "Run one phase of upgrade apply", "Run one phase or sub-phase of upgrade apply. The names are kubeadm's. It does not ask for confirmation."+subPhases(upgrade.ApplyPhases())
	phases.Example = "  ./install upgrade apply phase addon all"
	cmd.AddCommand(phases)
	return cmd
}

func newUpgradeNodeCmd() *cobra.Command {
	in := &upgradeFlags{options: upgrade.Options{Node: true}}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Upgrade another node, after 'upgrade apply' on the first control plane",
		Long: `Upgrade another node of the cluster to the version of this file, after 'upgrade apply'
on the first control plane: another control plane with its static pods, or a worker.
Upgrade one node after the other, control planes first.

It is safe to run it again: it finishes what an earlier run left, and changes nothing
else.` + timelineHelp,
		Example: "  ./install upgrade node\n  ./install upgrade node --drain=false",
		RunE:    func(cmd *cobra.Command, args []string) error { return in.run(cmd, "", args) },
	}
	in.bind(cmd.Flags(), upgrade.NodePhases())
	phases := newPhaseCmd(upgrade.NodePhases(), output.NoArgs, func() phaseRun {
		return &upgradePhase{upgradeFlags{options: upgrade.Options{Node: true}}}
	})
	phases.Short, phases.Long = "Run one phase of upgrade node", "Run one phase or sub-phase of upgrade node. The names are kubeadm's."+subPhases(upgrade.NodePhases())
	phases.Example = "  ./install upgrade node phase unpack"
	cmd.AddCommand(phases)
	return cmd
}

func (in *upgradeFlags) bind(f *pflag.FlagSet, steps []workflow.Step) {
	o := &in.options
	f.SortFlags = false
	f.StringVar(&in.configFile, "config", "", "kubeadm's configuration `FILE` with an UpgradeConfiguration; - is standard input")
	f.BoolVar(&o.CertificateRenewal, "certificate-renewal", true, "renew the certificates of the components that are replaced")
	f.BoolVar(&o.EtcdUpgrade, "etcd-upgrade", true, "also upgrade etcd")
	f.BoolVar(&o.Drain, "drain", true, "move this node's pods to other nodes before containerd and the kubelet are replaced")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", config.DrainTimeout, "how long a pod may stay while the node is drained")
	f.StringVar(&o.Patches, "patches", "", "a `DIRECTORY` with patches for the static pods, the kubelet's configuration and CoreDNS: TARGET[SUFFIX][+TYPE].yaml")
	f.StringSliceVar(&o.IgnorePreflightErrors, "ignore-preflight-errors", nil, "checks whose errors become warnings, or all")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of the cluster (default: "+adminConf+" on a control plane, else the kubelet's)")
	f.BoolVar(&in.skipFileCheck, "skip-file-check", false, "do not verify this file first; use it only after 'bundle verify' or sha256sum")
	if steps != nil {
		f.BoolVar(&o.DryRun, "dry-run", false, "only run the checks, and write the files that would change to a new directory (below $KUBEADM_UPGRADE_DRYRUN_DIR, if set)")
		f.StringSliceVar(&o.SkipPhases, "skip-phases", nil, "phases to skip; the help of 'phase' below this command lists them")
	}
	in.timeline.bind(f)
}

// run runs the upgrade, or one phase of it.
func (in *upgradeFlags) run(cmd *cobra.Command, phase string, args []string) error {
	cfg := &config.Config{}
	return in.timeline.record(cmd, cfg, func(rec *timeline.Recorder) error {
		c := console(cmd)
		if phase == "" {
			c.Timeline = rec
		}
		run, h, done, err := in.open(cmd, c, cfg, phase != "", args)
		if err != nil {
			return err
		}
		defer done()
		if in.options.DryRun {
			return run.DryRun(cmd.Context())
		}
		return recorded(cmd, h, cfg.KubernetesVersion, func() error {
			if phase != "" {
				return run.RunPhase(cmd.Context(), phase)
			}
			return run.Run(cmd.Context())
		})
	})
}

// open reads the configuration file, and opens the bundle and the host. The caller must call
// done at the end. It sets the Kubernetes version in cfg, for the timeline.
func (in *upgradeFlags) open(cmd *cobra.Command, c *workflow.Console, cfg *config.Config, onePhase bool, args []string) (run *upgrade.Upgrade, h *host.Host, done func(), err error) {
	read := config.ReadUpgradeApply
	if in.options.Node {
		read = config.ReadUpgradeNode
	}
	if err := readConfig(cmd, in.configFile, &in.options.UpgradeRun, read); err != nil {
		return nil, nil, nil, err
	}
	b, closeBundle, err := shared.Payload()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := b.NeedsKubernetes(cmd.CommandPath()); err != nil {
		return nil, nil, nil, err
	}
	cfg.KubernetesVersion = b.KubernetesVersion()
	for _, requested := range append(args, in.options.KubernetesVersion) {
		if err := config.CheckVersion(requested, b.KubernetesVersion()); err != nil {
			return nil, nil, nil, err
		}
	}
	if !in.skipFileCheck {
		b.CheckFile(cmd.Context())
	}
	var unlock func()
	if h, unlock, err = openHost(); err != nil {
		closeBundle()
		return nil, nil, nil, err
	}
	run = upgrade.New(b, in.options, onePhase, h, c)
	if !in.options.Node && !onePhase && !in.yes && !in.options.DryRun {
		err = confirm(cmd, "This upgrades this control plane and the cluster to Kubernetes "+b.KubernetesVersion()+". Continue?", "answer with y, or run it with --yes")
	}
	done = func() {
		run.Close()
		closeBundle()
		unlock()
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	return run, h, done, nil
}

// upgradePhase runs one phase of upgrade apply or upgrade node.
type upgradePhase struct{ upgradeFlags }

func (p *upgradePhase) bind(f *pflag.FlagSet, _ string) { p.upgradeFlags.bind(f, nil) }

func (p *upgradePhase) run(cmd *cobra.Command, name string, args []string) error {
	return p.upgradeFlags.run(cmd, name, args)
}

func newUpgradeUndoCmd() *cobra.Command {
	yes, ignored := false, []string(nil)
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Undo the last upgrade of this node",
		Long: `Restore the manifests, binaries and configuration that the last upgrade of this
node replaced. They are kept in ` + host.UpgradeDir + ` until an upgrade to another
version. Renewed certificates stay. After 'upgrade apply', the stored configuration
and the add-ons are restored too.

It fails if another minor version of etcd has started: the previous one cannot read its
data. Then it prints how to restore the backup from before the upgrade, which is
in ` + host.UpgradeBackups + `.

On a control plane it waits while another one is being upgraded.`,
		Example: "  ./install upgrade undo\n  ./install upgrade undo --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return shared.Change(cmd, nodecmd.How{AskHint: nodecmd.Unless(yes, "answer with y, or run it with --yes")}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
				run, err := revision.NewUndo(revision.Upgrade, h, c)
				if err == nil {
					run.IgnorePreflightErrors = ignored
				}
				return run, err
			})
		},
	}
	cmd.Flags().StringSliceVar(&ignored, "ignore-preflight-errors", nil, "checks whose errors become warnings: ContainerdFiles; 'all' ignores all")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

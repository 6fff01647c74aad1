package main

import (
	"strings"

	"github.com/spf13/cobra"

	"airlift/installer/config"
	"airlift/installer/flow/site"
	"airlift/installer/host"
	"airlift/installer/timeline"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

type applyFlags struct {
	options       site.ApplyOptions
	skipFileCheck bool
	timeline      timelineFlag
}

func newApplyCmd() *cobra.Command {
	in := &applyFlags{}
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Apply the site's own manifests in this file to the cluster",
		Long: `Apply the site's own manifests in this file to the running cluster, as the phases
manifests and wait-manifests of init do. Run it on one control plane, after 'import'
on every node. It is safe to run it again: it changes only what is different.

Manifests that other files applied stay in the cluster's inventory. A manifest of the
same name replaces the earlier one: objects that it no longer contains are listed, but
not deleted.

The command fails if the cluster has another minor version of Kubernetes, or if images
of the manifests are in this file but were not imported on this node.` + timelineHelp,
		Example: "  ./more apply\n  ./more apply --print-manifest\n  ./more apply --force-conflicts",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in.options.PrintManifest && in.timeline.file == "-" {
				return fault.New(fault.Usage, "--timeline - and --print-manifest both write to standard output").Hint("choose a file for the timeline")
			}
			cfg := &config.Config{}
			return in.timeline.record(cmd, cfg, func(*timeline.Recorder) error { return in.run(cmd, cfg) })
		},
	}
	f, o := cmd.Flags(), &in.options
	f.SortFlags = false
	f.StringVar(&o.Kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of the cluster")
	f.BoolVar(&o.ForceConflicts, "force-conflicts", false, "also replace fields that other field managers have changed")
	f.BoolVar(&o.IgnoreVersion, "ignore-version", false, "also apply to a cluster of another minor version of Kubernetes")
	f.BoolVar(&o.PrintManifest, "print-manifest", false, "print the manifests instead of applying them")
	f.StringVar(&o.RenderDir, "render-dir", "", "write the manifests to this `DIRECTORY` instead of applying them")
	f.StringSliceVar(&o.SkipPhases, "skip-phases", nil, "phases to skip\nPhases: "+strings.Join(workflow.Names(site.ApplyPhases()), ", "))
	f.BoolVar(&in.skipFileCheck, "skip-file-check", false, "do not verify this file first; use it only after 'bundle verify' or sha256sum")
	in.timeline.bind(f)
	return cmd
}

// run applies the manifests. It sets the Kubernetes version in cfg, for the timeline.
func (in *applyFlags) run(cmd *cobra.Command, cfg *config.Config) error {
	c := console(cmd)
	if in.options.PrintManifest {
		c.Out = cmd.ErrOrStderr()
	}
	b, done, err := shared.Payload()
	if err != nil {
		return err
	}
	defer done()
	cfg.KubernetesVersion = b.KubernetesVersion()
	if !in.skipFileCheck {
		b.CheckFile(cmd.Context())
	}
	h, err := host.Open("/")
	if err != nil {
		return err
	}
	run := site.NewApply(b, in.options, h, c)
	defer run.Close()
	return run.Run(cmd.Context())
}

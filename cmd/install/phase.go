package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/fault"
	"airlift/installer"
	"airlift/installer/config"
)

// newInitPhaseCmd has a command for every phase and sub-phase of init.
func newInitPhaseCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "phase NAME",
		Short:   "Run one phase of init",
		Long:    "Run one phase of init, or one of its sub-phases, alone. The names are kubeadm's.",
		Example: "  ./install init phase certs all\n  ./install init phase certs apiserver --config kubeadm.yaml\n  ./install init phase addon coredns --print-manifest",
		Args:    noPhase,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, s := range new(installer.Node).Init() {
		cmd.AddCommand(initPhase(s, ""))
	}
	return cmd
}

func noPhase(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	return fault.New(fault.Usage, "it has: "+strings.Join(names, ", "), "%s has no %q", cmd.CommandPath(), strings.Join(args, " "))
}

// initPhase makes the command of one phase, with those of its sub-phases. As
// in kubeadm a phase with sub-phases has one more, "all"; by itself it shows
// them, unless flags say that it is meant.
func initPhase(s installer.Step, parent string) *cobra.Command {
	name := parent + s.Name
	in := &initFlags{}
	cmd := &cobra.Command{
		Use:     s.Name,
		Aliases: s.Aliases,
		Short:   strings.ToUpper(s.Doc[:1]) + s.Doc[1:],
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return in.runPhase(cmd, name) },
	}
	in.bind(cmd.Flags())
	in.bindPhase(cmd.Flags(), name)
	if len(s.Steps) == 0 {
		return cmd
	}
	group := &cobra.Command{
		Use: s.Name, Aliases: s.Aliases, Short: cmd.Short, Args: noPhase,
		RunE: func(group *cobra.Command, args []string) error {
			if group.Flags().NFlag() > 0 { // then it is meant: 'addon --render-dir DIR'
				return cmd.RunE(group, args)
			}
			return group.Help()
		},
	}
	group.Flags().AddFlagSet(cmd.Flags())
	cmd.Use, cmd.Aliases, cmd.Short = "all", nil, "All of "+s.Name
	group.Flags().SortFlags = false
	group.AddCommand(cmd)
	for _, sub := range s.Steps {
		group.AddCommand(initPhase(sub, name+"/"))
	}
	return group
}

// runPhase runs one phase of init.
func (in *initFlags) runPhase(cmd *cobra.Command, name string) error {
	in.node.Single = true
	n, done, err := in.open(cmd)
	if err != nil {
		return err
	}
	defer done()
	if n.Config.DryRun {
		return n.DryRunPhase(cmd.Context(), name)
	}
	return installer.RunPhase(cmd.Context(), n.Console, n.Init(), name)
}

// bindPhase adds the flags that only some phases have.
func (in *initFlags) bindPhase(f *pflag.FlagSet, name string) {
	first, _, _ := strings.Cut(name, "/")
	switch first {
	case "certs", "etcd", "control-plane":
		f.StringVar(&in.rootfs, "rootfs", "", "a folder to write to as if it were the host's root")
	case "kubeconfig":
		f.StringVar(&in.rootfs, "rootfs", "", "a folder to write to as if it were the host's root")
		f.StringVar(&in.node.KubeconfigDir, "kubeconfig-dir", config.KubernetesDir, "where the kubeconfig files go")
	case "addon":
		f.BoolVar(&in.node.PrintManifest, "print-manifest", false, "print the manifests instead of applying them")
		f.StringVar(&in.node.RenderDir, "render-dir", "", "write the manifests to this folder instead of applying them")
		fallthrough
	case "upload-config", "upload-certs", "mark-control-plane", "bootstrap-token", "pod-network", "show-join-command", "wait-control-plane", "wait-node":
		f.StringVar(&in.node.Kubeconfig, "kubeconfig", adminConf, "how to reach the cluster")
	}
}

package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/initcluster"
	"airlift/installer/timeline"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A phaseRun holds the flags of one phase and runs it.
type phaseRun interface {
	// bind adds the flags. name is a full name such as "certs/apiserver".
	bind(f *pflag.FlagSet, name string)
	// run runs the phase.
	run(cmd *cobra.Command, name string, args []string) error
}

// newInitPhaseCmd returns the command with all phases and sub-phases of init.
func newInitPhaseCmd() *cobra.Command {
	cmd := newPhaseCmd(initcluster.Phases(), output.NoArgs, func() phaseRun { return new(initPhase) })
	cmd.Short = "Run one phase of init"
	cmd.Long = "Run one phase or sub-phase of init. The names are kubeadm's." + subPhases(initcluster.Phases())
	cmd.Example = "  ./install init phase certs all\n  ./install init phase certs apiserver --config kubeadm.yaml\n  ./install init phase addon coredns --print-manifest"
	return cmd
}

// newPhaseCmd returns a command with a subcommand for every step and sub-step.
func newPhaseCmd(steps []workflow.Step, args cobra.PositionalArgs, fresh func() phaseRun) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "phase NAME",
		Args: noPhase,
	}
	for _, s := range steps {
		cmd.AddCommand(phaseCmd(s, "", args, fresh))
	}
	return cmd
}

// subPhases lists the sub-phases for the help, in lines of at most 90 columns.
func subPhases(steps []workflow.Step) string {
	text := ""
	for _, s := range steps {
		line := "  " + s.Name + ":"
		for i, sub := range s.Steps {
			word := " " + sub.Name
			if i < len(s.Steps)-1 {
				word += ","
			}
			if len(line)+len(word) > 90 {
				text += line + "\n"
				line = "   "
			}
			line += word
		}
		if len(s.Steps) > 0 {
			text += line + "\n"
		}
	}
	if text == "" {
		return ""
	}
	return "\n\nSub-phases, for 'phase NAME SUB-PHASE' and --skip-phases NAME/SUB-PHASE:\n" + strings.TrimSuffix(text, "\n")
}

func noPhase(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	return fault.New(fault.Usage, "%s has no phase %q", cmd.CommandPath(), strings.Join(args, " ")).Hint(fault.Choose(args[0], "the phases are", names))
}

// phaseCmd returns the command of one phase, with its sub-phases as
// subcommands. As in kubeadm, a phase with sub-phases also has the subcommand
// "all". The phase's own command prints help, or runs "all" if it has flags.
func phaseCmd(s workflow.Step, parent string, args cobra.PositionalArgs, fresh func() phaseRun) *cobra.Command {
	name, run := parent+s.Name, fresh()
	cmd := &cobra.Command{
		Use:     s.Name,
		Aliases: s.Aliases,
		Short:   strings.ToUpper(s.Doc[:1]) + s.Doc[1:],
		Args:    args,
		RunE:    func(cmd *cobra.Command, args []string) error { return run.run(cmd, name, args) },
	}
	cmd.Flags().SortFlags = false
	run.bind(cmd.Flags(), name)
	if len(s.Steps) == 0 {
		return cmd
	}
	group := &cobra.Command{
		Use: s.Name, Aliases: s.Aliases, Short: cmd.Short, Args: noPhase,
		RunE: func(group *cobra.Command, args []string) error {
			if group.Flags().NFlag() > 0 { // run it: 'addon --render-dir DIR'
				return cmd.RunE(group, args)
			}
			return group.Help()
		},
	}
	group.Flags().SortFlags = false
	group.Flags().AddFlagSet(cmd.Flags())
	cmd.Use, cmd.Aliases, cmd.Short = "all", nil, "All of "+s.Name
	group.AddCommand(cmd)
	for _, sub := range s.Steps {
		group.AddCommand(phaseCmd(sub, name+"/", args, fresh))
	}
	return group
}

type initPhase struct{ initFlags }

func (p *initPhase) run(cmd *cobra.Command, name string, _ []string) error {
	p.runFlags.onePhase = true
	if p.options.PrintManifest && p.timeline.file == "-" {
		return fault.New(fault.Usage, "--timeline - and --print-manifest both write to standard output").Hint("choose a file for the timeline")
	}
	return p.timeline.record(cmd, &p.cfg, func(*timeline.Recorder) error {
		r, err := p.open(cmd)
		if err != nil {
			return err
		}
		defer r.done()
		if p.cfg.DryRun {
			return initcluster.DryRunPhase(cmd.Context(), r.plan, p.options, r.host, r.console, name)
		}
		run := initcluster.New(r.plan, p.options, r.host, r.console)
		defer run.Close()
		return recorded(cmd, r.host, p.cfg.KubernetesVersion, func() error { return run.RunPhase(cmd.Context(), name) })
	})
}

// bind adds the flags of init, and flags that only some phases have.
func (p *initPhase) bind(f *pflag.FlagSet, name string) {
	p.initFlags.bind(f)
	p.timeline.bind(f)
	first, component, _ := strings.Cut(name, "/")
	switch first {
	case "control-plane":
		for _, c := range []struct {
			name string
			args *config.Args
		}{
			{"apiserver", &p.cfg.APIServer.ExtraArgs},
			{"controller-manager", &p.cfg.ControllerManager.ExtraArgs},
			{"scheduler", &p.cfg.Scheduler.ExtraArgs},
		} {
			if component == "" || component == c.name {
				f.Var(extraArgs{c.args}, c.name+"-extra-args", "additional arguments of this component, or new values for existing ones: NAME=VALUE, separated by commas")
			}
		}
		fallthrough
	case "certs", "etcd":
		f.StringVar(&p.runFlags.rootfs, "rootfs", "", "the `DIRECTORY` to use as the host's root directory")
	case "kubeconfig":
		f.StringVar(&p.runFlags.rootfs, "rootfs", "", "the `DIRECTORY` to use as the host's root directory")
		f.StringVar(&p.options.KubeconfigDir, "kubeconfig-dir", config.KubernetesDir, "the `DIRECTORY` for kubeconfig files")
	case "manifests":
		f.BoolVar(&p.options.ForceConflicts, "force-conflicts", false, "also replace fields that other field managers have changed")
		fallthrough
	case "addon":
		f.BoolVar(&p.options.PrintManifest, "print-manifest", false, "print the manifests instead of applying them")
		f.StringVar(&p.options.RenderDir, "render-dir", "", "write the manifests to this `DIRECTORY` instead of applying them")
		fallthrough
	case "upload-config", "upload-certs", "mark-control-plane", "bootstrap-token", "pod-network", "show-join-command", "wait-control-plane", "wait-node", "wait-manifests":
		f.StringVar(&p.options.Kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of the cluster")
	}
}

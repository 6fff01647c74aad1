// Package reconfigurecmd has the commands that change the configuration of a running cluster.
package reconfigurecmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/host"
	"airlift/installer/payload"
	"airlift/installer/reconfiguration"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

const long = `Give a running cluster another configuration, with kubeadm's documents as for init:
ClusterConfiguration, KubeletConfiguration and KubeProxyConfiguration, and of the
InitConfiguration what this node has. Run it on a control plane, and then 'reconfigure
node' on the nodes that it names.

A document replaces the one that the cluster stores: a field that it leaves out gets its
default, as in init. A document that the file does not have stays as it is. To begin with
what the cluster stores: './install reconfigure print'.

Only what the configuration changes is written and restarted, one component after the
other, each healthy before the next. If one does not become healthy, all of it is undone:
files, certificates and objects. Later, 'reconfigure undo' does that.

With --profile hardened, the cluster gets the values of 'init --profile hardened'. --plan names
the running pods that could not be created again. A second run lets API servers verify the
certificates of kubelets. Afterwards, a document that leaves out values of the profile does not
take them away: only --profile none does. See './install docs hardening'.

With --restore, it drops what was edited by hand on this node and in the cluster. Without
it, a change that would replace an edited file is refused, with the field of kubeadm's
documents that keeps the edit.

A running cluster cannot change its Service and pod ranges, its DNS domain, its name, the
topology of etcd and the names of its nodes: such a file is refused, with the reason.

Exit codes: of --plan, 0 this is the plan, 3 it is refused or a check failed; with
--detailed-exitcode, 5 there is something to do. './install --help' lists the others.`

// New returns the command reconfigure.
func New(e nodecmd.Environment) *cobra.Command {
	in := &flags{env: e}
	cmd := &cobra.Command{
		Use:   "reconfigure",
		Short: "Change the configuration of this cluster, and undo that",
		Long:  long,
		Example: `  ./install reconfigure print > kubeadm.yaml
  ./install reconfigure --config kubeadm.yaml --plan
  ./install reconfigure --config kubeadm.yaml
  ./install reconfigure --config kubeadm.yaml --file /etc/kubernetes/audit/policy.yaml=policy.yaml
  ./install reconfigure --profile hardened --plan
  ./install reconfigure --restore --plan`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch nothing := in.configFile == "" && len(in.files) == 0 && !in.options.Restore && in.options.Profile == ""; {
			case nothing && cmd.Flags().NFlag() > 0:
				return fault.New(fault.Usage, "nothing was given that changes the configuration").Hint("give --config, --file, --profile or --restore; to begin with what the cluster stores: ./install reconfigure print > kubeadm.yaml")
			case nothing:
				return cmd.Help()
			}
			if in.configFile == "-" && !in.yes && !in.plan {
				return fault.New(fault.Usage, "--config - leaves no standard input for the answer to a question").Hint("add --yes, or --plan")
			}
			return in.run(cmd)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&in.configFile, "config", "", "the `FILE` with kubeadm's documents; - is standard input")
	f.StringArrayVar(&in.files, "file", nil, "write a file to all control planes, as `PATH=FILE`: an audit policy, an encryption or admission configuration (repeatable)")
	f.StringVar(&in.options.Profile, "profile", "", "hardened: configure the cluster as the CIS benchmark asks, your own values stay; none: take the values of the profile away; without it, a cluster keeps its profile")
	in.bind(f)
	f.BoolVarP(&in.yes, "yes", "y", false, "do not ask for confirmation")
	cmd.AddCommand(newNode(e), newUndo(e), newPrint(e))
	return cmd
}

// flags are the flags of reconfigure and reconfigure node.
type flags struct {
	env           nodecmd.Environment
	options       reconfigure.Options
	configFile    string
	files         []string
	plan          bool
	exit          output.PlanExit
	lines         int
	formats       output.Flags
	skipFileCheck bool
	yes           bool
}

func (in *flags) bind(f *pflag.FlagSet) {
	o := &in.options
	f.BoolVar(&in.plan, "plan", false, "only show what changes on each node, what restarts, and what prevents it")
	in.exit.Bind(f)
	f.IntVarP(&in.lines, "context-lines", "c", 3, "with --plan, how many lines to show around each change in a diff")
	in.formats.Bind(f)
	f.BoolVar(&o.Restore, "restore", false, "also replace what was edited by hand by what the configuration gives; without --config, only that")
	f.StringVar(&o.Patches, "patches", "", "the `DIRECTORY` with the patches with which this node was installed")
	f.StringSliceVar(&o.IgnorePreflightErrors, "ignore-preflight-errors", nil, "checks whose errors become warnings, or all; what a running cluster cannot change is always refused")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of the cluster (default: /etc/kubernetes/admin.conf on a control plane, else the kubelet's)")
	f.BoolVar(&in.skipFileCheck, "skip-file-check", false, "do not verify this file first; use it only after 'bundle verify' or sha256sum")
}

// read reads the user's files.
func (in *flags) read(cmd *cobra.Command) (err error) {
	if in.lines < 0 {
		return fault.New(fault.Usage, "--context-lines %d is negative", in.lines).Hint("use 0 or more")
	}
	if in.options.Patches, err = config.Absolute("--patches", in.options.Patches); err != nil {
		return err
	}
	for _, text := range in.files {
		f, err := readFile(text)
		if err != nil {
			return err
		}
		for _, o := range in.options.Files {
			if o.Path == f.Path {
				return fault.New(fault.Usage, "--file %s is given twice", f.Path).Hint("remove one of them")
			}
		}
		in.options.Files = append(in.options.Files, f)
	}
	if in.configFile == "" {
		return nil
	}
	read := config.ReadReconfigure
	if in.options.Node {
		read = config.ReadReconfigureNode
	}
	given, warnings, err := read(in.configFile)
	for _, w := range warnings {
		in.console(cmd).Warn("%s", w)
	}
	in.options.Given = given
	return err
}

// readFile reads the argument of --file.
func readFile(text string) (f reconfiguration.File, err error) {
	to, from, ok := strings.Cut(text, "=")
	if !ok || from == "" || !path.IsAbs(to) || path.Clean(to) != to {
		return f, fault.New(fault.Usage, "--file %q must be PATH=FILE, with an absolute path on the control planes", text).Hint("for example: --file /etc/kubernetes/audit/policy.yaml=policy.yaml")
	}
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return f, fault.Wrap(fmt.Errorf("reading --file %s: %w", to, err), fault.Usage, "give the path of a file on this host after =")
	case !info.Mode().IsRegular() || info.Size() > reconfiguration.MaxFiles:
		return f, fault.New(fault.Usage, "reading --file %s: %s is not a file of at most %d KiB", to, from, reconfiguration.MaxFiles>>10).Hint("copy a large file to the control planes yourself")
	}
	data, err := os.ReadFile(from)
	return reconfiguration.File{Path: to, Data: data}, err
}

// console returns a console that does not write to the output of a plan.
func (in *flags) console(cmd *cobra.Command) *workflow.Console {
	c := in.env.Console(cmd)
	if in.plan {
		c.Out, c.TTY = cmd.ErrOrStderr(), false
	}
	return c
}

// run changes the configuration, or shows what it would change.
func (in *flags) run(cmd *cobra.Command) error {
	show, err := in.formats.Printer()
	if err != nil {
		return err
	}
	for name, given := range map[string]bool{"output": show != nil, "detailed-exitcode": bool(in.exit)} {
		if given && !in.plan {
			return fault.New(fault.Usage, "--%s is for --plan", name).Hint("add --plan, or remove --" + name)
		}
	}
	if err := in.read(cmd); err != nil {
		return err
	}
	b, done, err := in.openBundle(cmd)
	if err != nil {
		return err
	}
	defer done()
	if in.plan {
		return in.showPlan(cmd, b, show)
	}
	h, unlock, err := in.env.Host()
	if err != nil {
		return err
	}
	defer unlock()
	if !in.yes && !in.options.Node {
		if err := in.ask(cmd, b, h); err != nil {
			return err
		}
	}
	run := reconfigure.New(b, in.options, h, in.console(cmd))
	defer run.Close()
	return in.env.Recorded(cmd, h, b.KubernetesVersion(), func() error { return run.Run(cmd.Context()) })
}

// openBundle opens this file, and starts to verify it.
func (in *flags) openBundle(cmd *cobra.Command) (*payload.Bundle, func(), error) {
	b, done, err := in.env.Payload()
	if err != nil {
		return nil, nil, err
	}
	if err := b.NeedsKubernetes(cmd.CommandPath()); err != nil {
		done()
		return nil, nil, err
	}
	if !in.skipFileCheck && !in.plan {
		b.CheckFile(cmd.Context())
	}
	return b, done, nil
}

// showPlan prints what the command would change. The error has the exit code of a plan.
func (in *flags) showPlan(cmd *cobra.Command, b *payload.Bundle, show output.Printer) error {
	h, err := host.Open("/")
	if err != nil {
		return err
	}
	p, err := reconfigure.ReadPlan(cmd.Context(), b, in.options, in.lines, h, in.console(cmd))
	if p == nil {
		return err
	}
	if show != nil {
		_ = show(cmd.OutOrStdout(), p) // a lost output cancels the command
	} else {
		writePlan(output.Verbatim(cmd.OutOrStdout()), p)
	}
	switch {
	case len(p.Refused) > 0:
		return fault.New(fault.Preflight, "a running cluster cannot change %s", workflow.Count(len(p.Refused), "value")).Hint(fault.Hint(err))
	case len(p.Errors) > 0:
		return fault.New(fault.Preflight, "%s must be solved first", workflow.Count(len(p.Errors), "problem")).Hint(fault.Hint(err))
	case err == nil && !p.Empty():
		if show == nil {
			fmt.Fprintln(cmd.OutOrStdout(), "\nTo do it, run the same command without --plan.")
		}
		return in.exit.Work()
	}
	return err
}

// ask shows what restarts, and asks whether to continue.
func (in *flags) ask(cmd *cobra.Command, b *payload.Bundle, h *host.Host) error {
	quiet := in.env.Console(cmd)
	quiet.Out, quiet.TTY = io.Discard, false
	p, err := reconfigure.ReadPlan(context.WithoutCancel(cmd.Context()), b, in.options, 0, h, quiet)
	if err != nil || p.Empty() {
		return err
	}
	restarts := "nothing restarts on this node"
	if list := p.Nodes[0].Restarts; len(list) > 0 {
		restarts = "on this node, these restart: " + strings.Join(list, ", ")
	}
	return in.env.Confirm(cmd, fmt.Sprintf("This changes the configuration of the cluster; %s. Continue?", restarts), "answer with y, or run it with --yes; to see the changes: --plan")
}

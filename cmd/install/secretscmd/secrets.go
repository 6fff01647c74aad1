// Package secretscmd has the commands for the encryption of Secrets in etcd.
package secretscmd

import (
	"context"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/reconfiguration"
	"airlift/installer/secrets"
	"airlift/installer/workflow"
)

// New returns the command secrets.
func New(e nodecmd.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Encrypt the cluster's Secrets in etcd, and replace the key",
		Long: `Encrypt the Secrets of the cluster in etcd, replace the key, and show how each Secret is
stored. 'init --encrypt-secrets' does it from the beginning. See './install docs secrets'.`,
	}
	cmd.AddCommand(newStatus(),
		newChange(e, secrets.Enable, "Encrypt the Secrets of a running cluster", `Create a key, give it to the control planes, let it encrypt, and write all Secrets again.`,
			"The API server of this host restarts twice. Encrypt all Secrets?"),
		newChange(e, secrets.Rotate, "Replace the key that encrypts Secrets", `Create another key, give it to the control planes, let it encrypt, write all Secrets again,
and retire the former key when no value in etcd has it any more.`,
			"The API server of this host restarts up to three times, and all Secrets are written again. Replace the key?"),
		newChange(e, secrets.Disable, "Store Secrets without encryption again", `Let the API servers write Secrets without encryption, write all Secrets again, and retire
the keys when no value in etcd has one any more.`,
			"The API server of this host restarts twice. Everyone who can read etcd or a snapshot of it can then read all Secrets. Store them without encryption?"))
	return cmd
}

func newStatus() *cobra.Command {
	kubeconfig := node.AdminConf
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which key encrypts, and how each Secret is stored in etcd",
		Long: `Show which key encrypts, which API servers have the keys of this host, and with which key
each Secret in etcd is encrypted. It reads all values in etcd, and tries to decrypt them. It
prints names of keys, and no key.`,
		Example: "  ./install secrets status\n  ./install secrets status -o json",
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "the kubeconfig `FILE` of an administrator")
	return output.Show(cmd, func(cmd *cobra.Command, _ []string) (*secrets.Status, error) {
		h, err := host.Open("/")
		if err != nil {
			return nil, err
		}
		c, err := secrets.Open(cmd.Context(), node.NewMachine(h, &workflow.Console{Out: cmd.ErrOrStderr()}), kubeconfig)
		if err != nil {
			return nil, err
		}
		return c.Status(cmd.Context())
	}, (*secrets.Status).Write)
}

// newChange returns a command that changes the keys.
func newChange(e nodecmd.Environment, goal secrets.Goal, short, does, question string) *cobra.Command {
	in := &flags{env: e, goal: goal, question: question}
	cmd := &cobra.Command{
		Use:   string(goal),
		Short: short,
		Long: does + ` Each step is a reconfiguration of
all control planes, one after the other, and no Secret is unreadable in between. With
several control planes, the command stops after each step, and lists the others: run
'./install reconfigure node' there, then this command again.

A run that was interrupted goes on where it was: the keys that the API servers have show how
far it came. './install reconfigure undo' undoes the last step, as long as all Secrets can be
read then.

After the last step it exits with 0, and lists the control planes that follow once more.

Exit codes: 9 other control planes must follow, then it has more to do. './install --help'
lists the others.`,
		Example: "  ./install secrets " + string(goal) + "\n  ./install secrets " + string(goal) + " --yes",
		RunE:    func(cmd *cobra.Command, _ []string) error { return in.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&in.kubeconfig, "kubeconfig", node.AdminConf, "the kubeconfig `FILE` of an administrator")
	f.StringVar(&in.patches, "patches", "", "the `DIRECTORY` with the patches with which this node was installed")
	f.StringSliceVar(&in.ignored, "ignore-preflight-errors", nil, "checks whose errors become warnings, or all")
	f.BoolVar(&in.skipFileCheck, "skip-file-check", false, "do not verify this file first; use it only after 'bundle verify' or sha256sum")
	f.BoolVarP(&in.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

type flags struct {
	env                  nodecmd.Environment
	goal                 secrets.Goal
	question, kubeconfig string
	patches              string
	ignored              []string
	skipFileCheck, yes   bool
}

func (in *flags) run(cmd *cobra.Command) (err error) {
	if in.patches, err = config.Absolute("--patches", in.patches); err != nil {
		return err
	}
	b, done, err := in.env.Payload()
	if err != nil {
		return err
	}
	defer done()
	if err := b.NeedsKubernetes(cmd.CommandPath()); err != nil {
		return err
	}
	if !in.skipFileCheck {
		b.CheckFile(cmd.Context())
	}
	how := nodecmd.How{Version: b.KubernetesVersion(), AskHint: nodecmd.Unless(in.yes, "answer with y, or run it with --yes")}
	return in.env.Change(cmd, how, func(h *host.Host, console *workflow.Console) (nodecmd.Run, error) {
		c, err := secrets.Open(cmd.Context(), node.NewMachine(h, console), in.kubeconfig)
		if err != nil {
			return nil, err
		}
		c.Reconfigure = Reconfigure(b, reconfigure.Options{Patches: in.patches, IgnorePreflightErrors: in.ignored, Kubeconfig: in.kubeconfig}, h, console)
		return change{in.question, func(ctx context.Context) error { return secrets.Run(ctx, c, in.goal, console) }}, nil
	})
}

// Reconfigure returns what lets a reconfiguration change the control planes.
func Reconfigure(b *payload.Bundle, o reconfigure.Options, h *host.Host, console *workflow.Console) func(context.Context, func(*config.Cluster) error, reconfiguration.File) error {
	return func(ctx context.Context, edit func(*config.Cluster) error, f reconfiguration.File) error {
		o.EditCluster, o.Files = edit, []reconfiguration.File{f}
		run := reconfigure.New(b, o, h, console)
		defer run.Close()
		return run.Run(ctx)
	}
}

// A change asks before it begins.
type change struct {
	question string
	run      nodecmd.RunFunc
}

func (c change) Question() string              { return c.question }
func (c change) Run(ctx context.Context) error { return c.run(ctx) }

// Package nodecmd has what the commands that change a node share.
package nodecmd

import (
	"context"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/installer/host"
	"airlift/installer/payload"
	"airlift/installer/workflow"
)

// An Environment opens what a command changes, and shows and records what it does.
type Environment struct {
	Bundle  func() (*bundle.File, error)
	Host    func() (h *host.Host, unlock func(), err error)
	Console func(*cobra.Command) *workflow.Console
	// Recorded runs a command that changes the host, and records it.
	Recorded func(cmd *cobra.Command, h *host.Host, version string, run func() error) error
	// Confirm asks a question. Without an answer, its error has the hint.
	Confirm func(cmd *cobra.Command, question, hint string) error
}

// A Run is what a command does on this host. It may have methods DryRun, Question and Close.
type Run interface {
	Run(context.Context) error
}

// RunFunc is a Run without more methods.
type RunFunc func(context.Context) error

// Run calls f.
func (f RunFunc) Run(ctx context.Context) error { return f(ctx) }

// How has the options of Environment.Change.
type How struct {
	Version string // Kubernetes version of this file, for the record
	DryRun  bool   // only call DryRun
	// AskHint, if not empty, is the hint of the error without an answer to the run's Question.
	AskHint string
}

// Change opens this host for changes, and lets the run that open returns change it.
func (e Environment) Change(cmd *cobra.Command, how How, open func(h *host.Host, c *workflow.Console) (Run, error)) error {
	h, unlock, err := e.Host()
	if err != nil {
		return err
	}
	defer unlock()
	run, err := open(h, e.Console(cmd))
	if err != nil {
		return err
	}
	if closes, ok := run.(interface{ Close() }); ok {
		defer closes.Close()
	}
	if how.DryRun {
		run.(interface{ DryRun() }).DryRun()
		return nil
	}
	if how.AskHint != "" {
		if err := e.Confirm(cmd, run.(interface{ Question() string }).Question(), how.AskHint); err != nil {
			return err
		}
	}
	return e.Recorded(cmd, h, how.Version, func() error { return run.Run(cmd.Context()) })
}

// Unless returns a hint, "" if the user wants no question.
func Unless(yes bool, hint string) string {
	if yes {
		return ""
	}
	return hint
}

// Payload opens this file and its manifest. done closes both.
func (e Environment) Payload() (b *payload.Bundle, done func(), err error) {
	f, err := e.Bundle()
	if err != nil {
		return nil, nil, err
	}
	if b, err = payload.OpenBundle(f); err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return b, func() { b.Close(); _ = f.Close() }, nil
}

// KubernetesVersion returns the Kubernetes version of this file, or "" if it has no bundle.
func (e Environment) KubernetesVersion() (string, error) {
	b, err := e.Bundle()
	if err != nil {
		return "", nil
	}
	defer b.Close()
	m, err := b.Manifest()
	if err != nil {
		return "", err
	}
	return m.KubernetesVersion, nil
}

// Package nodecmd has what the commands that change a node share.
package nodecmd

import (
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

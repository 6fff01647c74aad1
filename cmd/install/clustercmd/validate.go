package clustercmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/multihost/spec"
	mistakes "airlift/internal/documents/problems"
	"airlift/internal/fault"
)

const validateLong = `Check cluster.yaml and the files that it names, and connect to no host: fields and values of all
documents, kubeadm's documents as init, join and the kubelet of this file's version of
Kubernetes read them, and patches. It prints all errors at once, each with its file, line
and field. plan, preflight and apply check the same before they connect to hosts.

What only a host or the cluster knows is not checked: 'cluster preflight' checks it.

Exit codes: 0 the file is valid, perhaps with warnings; 2 it has errors.`

func newValidate(in *site) *cobra.Command {
	formats := &output.Flags{}
	cmd := &cobra.Command{
		Use:     "validate",
		Short:   "Check cluster.yaml, without connecting to a host",
		Long:    validateLong,
		Example: "  ./install cluster validate\n  ./install cluster validate -f site.yaml -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := noEffect(cmd, "this command connects to no host", "./install cluster validate", "skip", "parallel"); err != nil {
				return err
			}
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			return in.validate(cmd, show)
		},
	}
	formats.Bind(cmd.Flags())
	return cmd
}

// A validation is the document of cluster validate.
type validation struct {
	File              string             `json:"file"`
	KubernetesVersion string             `json:"kubernetesVersion"`
	Valid             bool               `json:"valid"`
	Errors            []mistakes.Problem `json:"errors"`
	Warnings          []string           `json:"warnings"`
}

func (in *site) validate(cmd *cobra.Command, show output.Printer) error {
	b, err := in.open()
	if err != nil {
		return err
	}
	defer b.Close()
	m, err := b.Manifest()
	if err != nil {
		return err
	}
	c, err := spec.Validate(in.file, targetOf(m))
	v := validation{File: in.file, KubernetesVersion: m.KubernetesVersion, Valid: err == nil, Errors: []mistakes.Problem{}, Warnings: []string{}}
	if err == nil {
		v.Warnings = append(v.Warnings, c.Warnings...)
	}
	if wrong := (*mistakes.Wrong)(nil); show != nil && (err == nil || errors.As(err, &wrong)) {
		if wrong != nil {
			v.Errors, err = wrong.Problems, fault.New(fault.Usage, "%s has %s", in.file, counted(len(wrong.Problems), "error")).Hint("see the document")
		}
		return errors.Join(show(cmd.OutOrStdout(), v), err)
	}
	if err != nil {
		return err
	}
	for _, w := range v.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %s, Kubernetes %s\n", in.file, counted(len(c.Hosts), "host"), m.KubernetesVersion)
	return err
}

// noEffect refuses flags of the group that a command does not have.
func noEffect(cmd *cobra.Command, why, hint string, names ...string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return fault.New(fault.Usage, "--%s has no effect: %s", name, why).Hint(hint)
		}
	}
	return nil
}

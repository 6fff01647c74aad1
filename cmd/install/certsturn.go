package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"airlift/fault"
	"airlift/installer"
	"airlift/installer/cluster"
	"airlift/installer/pki"
)

// takeTurn waits until no other control plane restarts its components. Without an API it does not
// wait: expired certificates may be why there is none. If none has expired, it is an error with
// --due, because no one watches that command.
func (f *certsFlags) takeTurn(cmd *cobra.Command, expired bool) (end func(), err error) {
	ctx := cmd.Context()
	node := pki.NodeName(os.DirFS("/"))
	if node == "" {
		return func() {}, nil
	}
	switch err := f.answers(ctx); {
	case err == nil:
		return installer.TakeTurn(ctx, console(cmd), node, f.client)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case f.due && !expired:
		return nil, fault.New(fault.Failure, "see './install status'; no certificate has expired yet", "nothing was renewed, because the API does not answer: %v", err)
	default:
		warner(cmd)("not waiting for other control planes, because the API does not answer: %v", err)
		return func() {}, nil
	}
}

// answers returns an error if the API server does not answer, or does not accept the credentials.
func (f *certsFlags) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	c, err := f.client()
	if err != nil {
		return err
	}
	_, err = c.Version(ctx)
	return err
}

// client returns a client for the kubeconfig as it is now.
func (f *certsFlags) client() (*cluster.Client, error) {
	file, err := f.kubeconfigFile()
	if err != nil {
		return nil, err
	}
	return cluster.Load(file, "")
}

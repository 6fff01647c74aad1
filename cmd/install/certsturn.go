package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/cluster/lease"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/pods"
)

// takeTurn waits until no other control plane restarts its components, and fails if the others would not
// keep the cluster alive meanwhile. If no API server answers or can write, an expired certificate may be the
// reason: then certificates are renewed first, and the turn is taken with them (takeTurnLate). Otherwise another
// control plane may just restart its API server.
func (f *certsFlags) takeTurn(ctx context.Context, pods *pods.StaticPods, certs []pki.Expiration, components []string) error {
	file, err := f.kubeconfigFile()
	if err != nil {
		return err
	}
	err = pods.TakeTurn(ctx, file)
	switch {
	case err == nil:
		err = pods.CheckOthers(ctx, components)
	case ctx.Err() == nil && noTurn(err) && expired(certs):
		return nil
	}
	if err == nil {
		return nil
	}
	hint := fault.Hint(err)
	if hint != "" {
		hint += "; "
	}
	return fault.Wrap(err, fault.ExitCode(err), hint+"or renew without --restart, and restart the components yourself")
}

// noTurn reports whether no API server can give the turn: none answers, or etcd has no quorum.
func noTurn(err error) bool {
	return errors.Is(err, node.ErrNoAPI) || errors.Is(err, lease.ErrRefused)
}

// takeTurnLate takes the turn with renewed certificates, if no API server could give it before.
func (f *certsFlags) takeTurnLate(cmd *cobra.Command, pods *pods.StaticPods) error {
	file, err := f.kubeconfigFile()
	if err == nil {
		err = pods.TakeTurn(cmd.Context(), file)
	}
	if err != nil && cmd.Context().Err() == nil && noTurn(err) {
		warner(cmd)("not waiting for other control planes: %v", err)
		return nil
	}
	return err
}

// expired reports whether one of the certificates has expired.
func expired(certs []pki.Expiration) bool {
	for _, c := range certs {
		if !c.Missing && time.Now().After(c.NotAfter) {
			return true
		}
	}
	return false
}

// client returns a client for the kubeconfig as it is now.
func (f *certsFlags) client() (*cluster.Client, error) {
	file, err := f.kubeconfigFile()
	if err != nil {
		return nil, err
	}
	return cluster.Load(file, "")
}

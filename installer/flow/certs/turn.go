package certs

import (
	"context"
	"errors"
	"slices"
	"time"

	"airlift/installer/cluster/lease"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// takeTurn waits until no other control plane restarts its components, and fails if the others
// would not keep the cluster alive meanwhile. If no API server answers or can write, an expired
// certificate may be the reason. Then takeTurnLate takes the turn after the renewal, with the new
// certificates. If no certificate has expired, another control plane may be restarting its API
// server. Without components to restart it does nothing.
func (r *renewal) takeTurn(ctx context.Context) error {
	if !r.options.Restart || len(r.pods.Names()) == 0 {
		return nil
	}
	file, err := config.Absolute("--kubeconfig", r.source.Kubeconfig)
	if err != nil {
		return err
	}
	err = r.pods.TakeTurn(ctx, file)
	switch {
	case err == nil:
		err = r.pods.CheckOthers(ctx, slices.Concat(pki.Restart(r.names()...), r.stale))
	case ctx.Err() == nil && noTurn(err) && expired(r.certs):
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

// takeTurnLate takes the turn with the renewed certificates, if no API server could give it before
// the renewal.
func (r *renewal) takeTurnLate(ctx context.Context) error {
	file, err := config.Absolute("--kubeconfig", r.source.Kubeconfig)
	if err == nil {
		err = r.pods.TakeTurn(ctx, file)
	}
	if err != nil && ctx.Err() == nil && noTurn(err) {
		r.source.Warn("not waiting for other control planes: %v", err)
		return nil
	}
	return err
}

// expired reports whether one of the certificates has expired.
func expired(certs []pki.Expiration) bool {
	return slices.ContainsFunc(certs, func(c pki.Expiration) bool { return !c.Missing && time.Now().After(c.NotAfter) })
}

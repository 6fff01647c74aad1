package agent

import (
	"context"
	"fmt"
	"io"

	"airlift/installer/cluster"
	"airlift/installer/host"
	"airlift/installer/multihost/facts"
	"airlift/installer/node"
	"airlift/installer/secrets"
	"airlift/installer/workflow"
)

// controlPlane returns this host as the commands for the keys of Secrets see it. It only reads.
func controlPlane(h *host.Host, client *cluster.Client) *secrets.ControlPlane {
	return &secrets.ControlPlane{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), Client: client, Kubeconfig: node.AdminConf}
}

// readKeys returns how far this control plane is from each goal.
func readKeys(h *host.Host) (*facts.Encryption, error) {
	c := controlPlane(h, nil)
	switch file, err := c.Provider(); {
	case err != nil:
		return nil, err
	case file != "" && file != secrets.File:
		return &facts.Encryption{Site: file}, nil
	}
	keys, err := c.Keys()
	if err != nil {
		return nil, err
	}
	e := &facts.Encryption{Steps: map[string]int{}}
	if e.Began, err = c.Began(); err != nil {
		return nil, err
	}
	for _, goal := range []secrets.Goal{secrets.Enable, secrets.Disable} {
		if left, err := keys.Left(goal); err == nil {
			e.Steps[fmt.Sprint("secrets ", goal)] = left
		}
	}
	return e, nil
}

// staleSecrets reads the Secrets in etcd, if their API servers have keys.
func staleSecrets(ctx context.Context, h *host.Host, client *cluster.Client) (int, error) {
	return controlPlane(h, client).Stale(ctx)
}

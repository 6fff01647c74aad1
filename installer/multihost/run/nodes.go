package run

import (
	"context"
	"slices"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// Nodes returns the hosts that are nodes, with a role or with "" of all roles. The error has the hosts that did not answer: what
// is for all nodes is done on all, or those are skipped on request.
func (s *Site) Nodes(role string) (nodes []*Host, err error) {
	var failed failures
	for _, h := range s.hosts {
		switch {
		case h.Err != nil && (role == "" || role == h.Role):
			failed = append(failed, failure{h.Name, h.Err})
		case h.Facts != nil && h.Facts.Unknown["node"] != "" && (role == "" || role == h.Role):
			failed = append(failed, failure{h.Name, fault.New(fault.Failure, "it is unknown whether this host is a node: %s", h.Facts.Unknown["node"]).Hint("on that host: ./install status")})
		case h.Facts != nil && h.Facts.Node != nil && (role == "" || role == h.Facts.Node.Role):
			nodes = append(nodes, h)
		}
	}
	if err := failed.fault(); err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, fault.New(fault.Failure, "none of the hosts is a node").Hint("install the cluster first: ./install cluster apply")
	}
	return nodes, nil
}

// Healthy returns a control plane whose API server answers, and whose cluster has the name in cluster.yaml.
func (s *Site) Healthy() (*Host, error) {
	if err := s.refused("these hosts are not one cluster", plan.OtherClusters(s.Cluster, s.Answers())); err != nil {
		return nil, err
	}
	for _, h := range s.hosts {
		if h.Facts != nil && h.Facts.Cluster != nil && h.Role == spec.ControlPlane {
			return h, nil
		}
	}
	return nil, fault.New(fault.Failure, "no control plane has an API server that answers").Hint("see the hosts: ./install cluster status")
}

// Import imports the images of the driver's file on hosts. With the embedded registry, one control plane is enough: it keeps the
// file, and all nodes pull from it.
func (s *Site) Import(ctx context.Context) error {
	leader, err := s.Healthy()
	if err != nil {
		return err
	}
	args := []string{whole, "import"}
	hosts := []*Host{leader}
	if leader.Facts.Cluster.EmbeddedRegistry {
		args = append(args, "--all-nodes")
	} else if hosts, err = s.Nodes(""); err != nil {
		return err
	}
	return s.withLocks(ctx, func(ctx context.Context) error {
		return s.Each(ctx, "import", hosts, func(ctx context.Context, h *Host) error {
			if err := h.lock(ctx, false); err != nil {
				return err
			}
			if err := h.bringWhole(ctx); err != nil {
				return err
			}
			if _, err := h.install(ctx, nil, args...); err != nil {
				return err
			}
			return h.dropWhole(ctx)
		})
	})
}

// InTurn runs a command that changes hosts on one after the other. It stops at the first that fails.
func (s *Site) InTurn(ctx context.Context, work string, hosts []*Host, args ...string) error {
	return s.withLocks(ctx, func(ctx context.Context) error {
		if err := s.lock(ctx, hosts); err != nil {
			return err
		}
		return s.inTurns(ctx, work, slices.Collect(slices.Chunk(hosts, 1)), func(ctx context.Context, h *Host) error { return h.Install(ctx, args...) })
	})
}

// inTurns calls do for the hosts of a turn in parallel, one turn after the other.
func (s *Site) inTurns(ctx context.Context, work string, turns [][]*Host, do func(context.Context, *Host) error) error {
	for _, hosts := range turns {
		if err := s.Each(ctx, work, hosts, do); err != nil {
			return err
		}
	}
	return nil
}

package run

import (
	"context"
	"slices"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// Members returns the hosts that are nodes or may be, with a role or with "" of all roles. Err of a host is why that is not known.
func (s *Site) Members(role string) (list []*Host, err error) {
	for _, h := range s.hosts {
		switch {
		case h.Err != nil && (role == "" || role == h.Role):
			list = append(list, h)
		case h.Facts != nil && h.Facts.Unknown["node"] != "" && (role == "" || role == h.Role):
			h.Err = fault.New(fault.Failure, "it is unknown whether this host is a node: %s", h.Facts.Unknown["node"]).Hint("on that host: ./install status")
			list = append(list, h)
		case h.Facts != nil && h.Facts.Node != nil && (role == "" || role == h.Facts.Node.Role):
			list = append(list, h)
		}
	}
	if len(list) == 0 {
		return nil, fault.New(fault.Failure, "none of the hosts is a node").Hint("install the cluster first: ./install cluster apply")
	}
	return list, nil
}

// Nodes returns the members of which it is known that they are nodes. The error has the others: what is for all nodes is done on
// all, or those are skipped on request.
func (s *Site) Nodes(role string) ([]*Host, error) {
	list, err := s.Members(role)
	if err == nil {
		err = s.unreached(list).fault()
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// unreached returns why hosts have no facts.
func (s *Site) unreached(hosts []*Host) (failed failures) {
	for _, h := range hosts {
		if h.Err != nil {
			failed = append(failed, failure{h.Name, h.Err})
		}
	}
	return failed
}

// Healthy returns a control plane whose API server answers, and whose cluster has the name in cluster.yaml. It warns of hosts that do not
// answer.
func (s *Site) Healthy() (*Host, error) {
	down := s.unreached(s.hosts)
	if err := s.refused("these hosts are not one cluster", plan.OtherClusters(s.Cluster, s.Answers())); err != nil {
		return nil, err
	}
	for _, h := range s.hosts {
		if h.Facts != nil && h.Facts.Cluster != nil && h.Role == spec.ControlPlane {
			for _, f := range down {
				s.Display.Printf("warning: %v\n", f.named())
			}
			return h, nil
		}
	}
	none := "no control plane has an API server that answers"
	if len(down) > 0 {
		none = "hosts do not answer:" + down.list() + "\n" + none
	}
	return nil, fault.New(fault.Failure, "%s", none).Hint("see the hosts: ./install cluster status")
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

package run

import (
	"context"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/multihost/spec"
)

// Reset removes the cluster from all hosts: workers first, then control planes one by one, the first one last.
func (s *Site) Reset(ctx context.Context) error {
	if err := s.Gather(ctx, true); err != nil {
		return err
	}
	defer s.Discard(ctx)
	if err := s.sameCluster(); err != nil {
		return err
	}
	r := &Run{Site: s}
	defer r.unlock()
	if err := s.Each(ctx, "lock", s.hosts, func(ctx context.Context, h *Host) error { return h.lock(ctx) }); err != nil {
		return err
	}
	var workers, controlPlanes []*Host
	for _, h := range s.hosts {
		if h.Role == spec.Worker {
			workers = append(workers, h)
		} else {
			controlPlanes = append(controlPlanes, h)
		}
	}
	slices.Reverse(controlPlanes)
	if err := s.Each(ctx, "reset", workers, s.reset); err != nil {
		return err
	}
	for _, h := range controlPlanes {
		if err := s.Each(ctx, "reset", []*Host{h}, s.reset); err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) reset(ctx context.Context, h *Host) error {
	if h.Facts.Node != nil || h.Facts.Unfinished != "" || h.Facts.Unknown["node"] != "" {
		text, err := h.summary(ctx, nil, h.installer, "reset", "--force")
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if left := strings.TrimSpace(line); strings.HasPrefix(left, "left: ") {
				s.Display.Printf("%s: %s\n", h.Name, left)
			}
		}
	}
	h.bare = false // nothing is left for Discard
	return h.clear(ctx)
}

// clear removes what drivers brought.
func (h *Host) clear(ctx context.Context) error {
	_, err := h.output(ctx, nil, "/bin/sh", "-c", "rm -rf "+driverDir+"; rmdir "+stateDir+" 2>/dev/null || true")
	return err
}

// sameCluster returns an error if a host has no facts, or is a node of another cluster than the others.
func (s *Site) sameCluster() error {
	var failed failures
	for _, h := range s.hosts {
		if h.Err != nil {
			failed = append(failed, failure{h.Name, h.Err})
		}
	}
	return append(failed, s.differing()...).fault()
}

// differing are the hosts that are nodes of another cluster.
func (s *Site) differing() (failed failures) {
	ca, of := "", ""
	for _, h := range s.hosts {
		if h.Facts == nil || h.Facts.Node == nil {
			continue
		}
		cas := append([]string{h.Facts.Node.CASHA256}, h.Facts.Node.CASHA256s...)
		if c := h.Facts.Cluster; c != nil && c.Name != s.Cluster.Name {
			failed = append(failed, failure{h.Name, fault.New(fault.Preflight, "is a node of the cluster %s, and cluster.yaml describes %s", c.Name, s.Cluster.Name).Hint("use the file of that cluster")})
		} else if ca != "" && !slices.Contains(cas, ca) {
			failed = append(failed, failure{h.Name, fault.New(fault.Preflight, "is a node of another cluster than %s", of).Hint("remove the host from cluster.yaml, or leave it alone: --skip " + h.Name)})
		} else if ca == "" {
			ca, of = cas[0], h.Name
		}
	}
	return failed
}

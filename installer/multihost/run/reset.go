package run

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// Reset removes the cluster from all hosts: workers first, then control planes one by one, the first one last. Before that, each
// host has to prove that it is the one in cluster.yaml; once more when no other driver can change it.
func (s *Site) Reset(ctx context.Context) error {
	if err := s.Gather(ctx, true); err != nil {
		return err
	}
	defer s.Discard(ctx)
	if err := s.checkReset(); err != nil {
		return err
	}
	return s.withLocks(ctx, s.resetLocked)
}

// resetLocked locks the hosts, and resets them.
func (s *Site) resetLocked(ctx context.Context) error {
	if err := s.lock(ctx, s.hosts); err != nil {
		return err
	}
	if err := quietly(ctx, s.hosts, func(ctx context.Context, h *Host) error { return h.observe(ctx) }); err != nil {
		return err
	}
	if err := s.checkReset(); err != nil {
		return err
	}
	turns := [][]*Host{s.filter(func(h *Host) bool { return h.Role == spec.Worker })}
	for _, h := range slices.Backward(s.filter(func(h *Host) bool { return h.Role != spec.Worker })) {
		turns = append(turns, []*Host{h})
	}
	return s.inTurns(ctx, "reset", turns, func(ctx context.Context, h *Host) error {
		return s.reset(ctx, h, h.Facts.Node != nil && h.Facts.Node.Adopted)
	})
}

// reset removes a node that was proven to be the one that is meant.
func (s *Site) reset(ctx context.Context, h *Host, adopted bool) error {
	if h.Facts.Node != nil || h.Facts.Unfinished != "" {
		text, err := h.install(ctx, nil, append([]string{h.installer}, plan.ResetCommand(adopted)...)...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if left := strings.TrimSpace(line); strings.HasPrefix(left, "left: ") {
				s.Display.Printf("%s: %s\n", h.Name, left)
			}
		}
		h.Facts.Node, h.Facts.Unfinished = nil, "" // what follows may be repeated after a lost connection
	}
	h.bare = false // nothing is left for Discard
	return h.clear(ctx)
}

// clear removes what drivers brought.
func (h *Host) clear(ctx context.Context) error {
	return h.shell(ctx, "rm -rf "+driverDir+" "+plannedPatches+"*; rmdir "+stateDir+" 2>/dev/null || true")
}

// checkReset returns an error if a host has no facts, or does not prove that it is the one in cluster.yaml.
func (s *Site) checkReset() error {
	return cmp.Or(s.unreached(s.hosts).fault(), s.refused("nothing was removed", plan.CheckReset(s.Cluster, s.Answers())))
}

// refused returns the problems of hosts as an error.
func (s *Site) refused(what string, problems []plan.Problem) error {
	var failed failures
	for _, p := range problems {
		failed = append(failed, failure{p.Host, fault.New(fault.Preflight, "%s: %s", p.What, p.Why).Hint(p.Hint)})
	}
	switch failed = s.sorted(failed); len(failed) {
	case 0:
		return nil
	case 1:
		return fault.New(fault.Preflight, "%s: %s: %w", what, failed[0].Host, failed[0].Err)
	}
	return fault.New(fault.Preflight, "%s: %d hosts are not what cluster.yaml describes:%s", what, len(failed), failed.list())
}

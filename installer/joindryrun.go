package installer

import (
	"context"
	"strings"

	"airlift/installer/host"
)

// drySteps returns the steps that can run without changing the host. Those that
// need the cluster only read from it.
func (j *Join) drySteps() []Step {
	var steps []Step
	for _, s := range j.steps {
		switch s.Name {
		case "preflight", "discovery", "control-plane-prepare":
		case "files":
			s.Run = j.site.writeAll
		case "runtime":
			s.Run = func(context.Context) error { return j.runtimeStep.writeFiles() }
		case "kubelet-start":
			s.Run = j.withCluster(func(context.Context) error {
				if err := j.writeBootstrap(); err != nil {
					return err
				}
				return j.kubelet.writeFiles(j.cluster.kubelet)
			})
		case "etcd-join":
			s.Run = j.withCluster(j.dryEtcd)
		default:
			continue
		}
		steps = append(steps, s)
	}
	return steps
}

// DryRunJoin writes the files that join would write on the host into a new
// directory.
func DryRunJoin(ctx context.Context, p *Plan, h *host.Host, c *Console) error {
	return inDirectory("join", h, c, func(m *machine) error {
		j := newJoin(p, m)
		defer j.Close()
		steps := j.drySteps()
		return Run(ctx, c, steps, onlyKnown(steps, p.config.SkipPhases))
	})
}

// DryRunJoinPhase does the same for one phase of join.
func DryRunJoinPhase(ctx context.Context, p *Plan, h *host.Host, c *Console, phase string) error {
	if _, ok := find(newJoin(p, nil).drySteps(), strings.TrimSuffix(phase, "/all")); !ok {
		c.Summary("The phase " + phase + " writes no files: with --dry-run it does nothing.\n")
		c.close()
		return nil
	}
	return inDirectory("join-phase", h, c, func(m *machine) error {
		j := newJoin(p, m)
		defer j.Close()
		return RunPhase(ctx, c, j.drySteps(), phase)
	})
}

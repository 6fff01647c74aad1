package join

import (
	"context"
	"strings"

	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/workflow"
)

// drySteps returns the steps that can run without changing the host. Those that
// need the cluster only read from it.
func (j *Join) drySteps() []workflow.Step {
	var steps []workflow.Step
	for _, s := range j.steps {
		switch s.Name {
		case "preflight", "discovery", "control-plane-prepare":
		case "files":
			s.Run = j.nodeJoin.site.WriteAll
		case "runtime":
			s.Run = func(context.Context) error { return j.nodeJoin.runtimeStep.WriteFiles() }
		case "kubelet-start":
			s.Run = j.nodeJoin.withCluster(func(context.Context) error {
				if err := j.nodeJoin.writeBootstrap(); err != nil {
					return err
				}
				return j.nodeJoin.kubelet.WriteFiles(j.nodeJoin.cluster.kubelet)
			})
		case "etcd-join":
			s.Run = j.nodeJoin.withCluster(j.dryEtcd)
		default:
			continue
		}
		steps = append(steps, s)
	}
	return steps
}

// DryRun writes the files that join would write on the host into a new
// directory.
func DryRun(ctx context.Context, p *phases.Plan, h *host.Host, c *workflow.Console) error {
	return phases.InDirectory("join", h, c, func(m *node.Machine) error {
		j := newJoin(p, m)
		defer j.Close()
		steps := j.drySteps()
		return workflow.Run(ctx, c, steps, phases.OnlyKnown(steps, p.Config.SkipPhases))
	})
}

// DryRunPhase does the same as DryRun for one phase of join.
func DryRunPhase(ctx context.Context, p *phases.Plan, h *host.Host, c *workflow.Console, phase string) error {
	if _, ok := workflow.Find(newJoin(p, nil).drySteps(), strings.TrimSuffix(phase, "/all")); !ok {
		c.Summary("The phase " + phase + " writes no files: with --dry-run it does nothing.\n")
		c.Close()
		return nil
	}
	return phases.InDirectory("join-phase", h, c, func(m *node.Machine) error {
		j := newJoin(p, m)
		defer j.Close()
		return workflow.RunPhase(ctx, c, j.drySteps(), phase)
	})
}

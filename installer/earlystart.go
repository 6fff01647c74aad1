package installer

import (
	"context"
	"errors"
	"fmt"

	"airlift/fault"
	"airlift/installer/config"
)

// An earlyStart lets a run on a bare host begin while a slow drive is still being
// checked: waiting for the whole file would cost init more than a tenth of its
// time. The steps up to the kubelet's start may run. If the file turns out to be
// damaged, reset removes what they did. A host that already has something of
// Airlift's waits for the check before its first change, because reset would
// remove more than this run did.
type earlyStart struct {
	allowed bool // the host was bare, and all steps run
	taken   bool // steps ran before the check ended
}

// allowEarlyStart is called before the first step of a complete run.
func (n *node) allowEarlyStart() {
	n.early.allowed = n.plan.bundle.check != nil && n.host == n.existing && !n.host.Used() && !n.host.IsNode() &&
		!n.plan.skips("kubelet-start")
}

// checkedOrEarly waits for the check of the bundle file, or lets the run start
// early.
func (n *node) checkedOrEarly(ctx context.Context) error {
	if n.early.allowed && !n.early.taken {
		n.early.taken = !n.plan.bundle.check.waitShortly(ctx)
		if n.early.taken {
			n.console.Note("the file is still being read and checked: a slow drive")
		}
	}
	if n.early.taken {
		return ctx.Err()
	}
	return n.plan.bundle.checked(ctx, n.console)
}

// endEarlyStart waits for the check of the bundle file. What follows cannot be
// undone without a trace: the kubelet registers this host with a cluster.
func (n *node) endEarlyStart(ctx context.Context) error {
	if err := n.plan.bundle.checked(ctx, n.console); err != nil {
		return err
	}
	n.early = earlyStart{}
	return nil
}

// undoEarlyStart resets the host if the steps before endEarlyStart failed because
// the file is damaged. It returns the error with what became of the host.
func (n *node) undoEarlyStart(ctx context.Context, cause error) error {
	if cause == nil || !n.early.taken || fault.ExitCode(cause) != fault.Bundle || !n.host.Used() {
		return cause
	}
	n.console.Warn("%s; what this run did is removed again", cause)
	reset, err := PlanReset(config.Reset{Force: true}, "", n.host, n.console)
	if err == nil {
		err = reset.Run(ctx)
	}
	if err != nil {
		return fault.Wrap(errors.Join(cause, fmt.Errorf("removing what this run did: %w", err)), fault.Bundle, "./install reset --force, from a whole copy of the file")
	}
	return cause
}

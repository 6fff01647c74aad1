package installer

import (
	"context"
	"time"

	"airlift/installer/cluster"
)

const (
	// turnDuration is after how long without a sign a control plane loses its turn: its run was
	// killed, or its API server has not answered for so long.
	turnDuration = 5 * time.Minute
	// turnRenewal is how often it gives one.
	turnRenewal = time.Minute
	// turnTimeout limits the wait for another one, whose upgrade takes long on a slow host.
	turnTimeout = time.Hour
)

// takeTurn takes the turn of the control planes until the end of the run. It does nothing where no
// static pod will be replaced.
func (u *Upgrade) takeTurn(ctx context.Context) error {
	if u.endTurn != nil || u.pods == nil || u.plan.onePhase || u.options.DryRun {
		return nil
	}
	if work, err := u.work(); err != nil || !work {
		return err
	}
	end, err := u.machine.takeTurn(ctx, u.client, u.config.NodeRegistration.Name)
	u.endTurn = end
	return err
}

// takeTurn waits until no other control plane is being upgraded or restarts its components, and keeps
// the turn of node until end is called.
func (m *machine) takeTurn(ctx context.Context, c *cluster.Client, node string) (end func(), err error) {
	printed := ""
	report := func(state string) {
		if state != printed {
			m.console.Note("waiting: %s", state)
			printed = state
		}
	}
	if err := c.WaitForLease(ctx, cluster.TurnLease, node, turnDuration, turnTimeout, report); err != nil {
		return nil, err
	}
	renewals, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-renewals.Done():
				return
			case <-time.After(turnRenewal):
				_, _ = c.TakeLease(renewals, cluster.TurnLease, node, turnDuration, time.Now()) // the API server may just restart
			}
		}
	}()
	return func() {
		stop()
		<-stopped
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnDropTimeout)
		defer cancel()
		if err := c.DropLease(ctx, cluster.TurnLease, node); err != nil {
			m.console.Warn("other control planes wait for this one for up to %s: %v", turnDuration, err)
		}
	}, nil
}

// turnDropTimeout is how long the end of a run may take.
const turnDropTimeout = 20 * time.Second

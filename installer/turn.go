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
	// turnDropTimeout limits the last request of a run.
	turnDropTimeout = 20 * time.Second
)

// TakeTurn waits until no other control plane is being upgraded or restarts its components, and keeps
// the turn of node until end is called. It connects again for each request after the wait: the run may
// replace the credentials.
func TakeTurn(ctx context.Context, console *Console, node string, connect func() (*cluster.Client, error)) (end func(), err error) {
	lease := &cluster.Lease{Name: cluster.TurnLease, Holder: node, Duration: turnDuration}
	c, err := connect()
	if err != nil {
		return nil, err
	}
	printed := ""
	report := func(state string) {
		if state != printed {
			console.Note("waiting: %s", state)
			printed = state
		}
	}
	if err := lease.Wait(ctx, c, turnTimeout, report); err != nil {
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
				if c, err := connect(); err == nil {
					_, _ = lease.Take(renewals, c) // the API server may just restart
				}
			}
		}
	}()
	return func() {
		stop()
		<-stopped
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnDropTimeout)
		defer cancel()
		c, err := connect()
		if err == nil {
			err = lease.Drop(ctx, c)
		}
		if err != nil {
			console.Warn("other control planes wait for this one for up to %s: %v", turnDuration, err)
		}
	}, nil
}

// takeTurn takes the turn of the control planes until the end of the run. It does nothing where no
// static pod will be replaced.
func (u *Upgrade) takeTurn(ctx context.Context) error {
	if u.endTurn != nil || u.pods == nil || u.plan.onePhase || u.options.DryRun {
		return nil
	}
	if work, err := u.work(); err != nil || !work {
		return err
	}
	end, err := TakeTurn(ctx, u.console, u.config.NodeRegistration.Name, func() (*cluster.Client, error) { return u.client, nil })
	u.endTurn = end
	return err
}

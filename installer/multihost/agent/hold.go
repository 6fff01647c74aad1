package agent

import (
	"context"
	"errors"
	"io"
	"time"

	"airlift/installer/backup/target"
	"airlift/installer/host"
	"airlift/installer/multihost/plan"
	"airlift/internal/fault"
)

// Held is what "cluster host hold" prints: this driver's lock, or the holder that keeps it out.
type Held struct {
	Held bool `json:"held"`
	host.Holder
	// Last had the lock before this driver. It is empty if nobody had since the host started.
	Last host.Holder `json:"last,omitzero"`
}

// HeldError is the error about another driver that has the lock.
func HeldError(h host.Holder, now time.Time) error {
	if h.Who == "" {
		return fault.New(fault.Failure, "another driver changes this host").Hint("wait until it has finished, and run the same command again")
	}
	return fault.New(fault.Failure, "another driver changes this host: %s, for %s", h.Who, now.Sub(h.Since).Round(time.Second)).
		Hint("wait until it has finished, or end it there; then run the same command again")
}

// HadError is the error about another driver that had the lock after this one.
func HadError(last host.Holder) error {
	return fault.New(fault.Failure, "another driver changed this host: %s, since %s", last.Who, last.Since.Format(time.DateTime)).
		Hint("see what it did, and run the same command again: it continues")
}

// Hold returns when in ends, or ctx. With a beat, it is an error if in brings nothing for that long. Then it removes the credentials that a
// driver has left on the host if it was killed, while no other driver can bring some.
func Hold(ctx context.Context, h *host.Host, in io.Reader, beat time.Duration) error {
	err := untilEnd(ctx, in, beat)
	return errors.Join(err, h.RemoveTree(plan.RegistriesDir), h.RemoveTree(target.FormerConfigPath))
}

func untilEnd(ctx context.Context, in io.Reader, beat time.Duration) error {
	beats, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 64)
		for {
			if _, err := in.Read(buffer); err != nil {
				return
			}
			select {
			case beats <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		var late <-chan time.Time
		if beat > 0 {
			late = time.After(beat)
		}
		select {
		case <-beats:
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		case <-late:
			return fault.New(fault.Failure, "the driver has not reported for %s", beat)
		}
	}
}

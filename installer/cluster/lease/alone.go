package lease

import (
	"context"
	"fmt"
	"os"
	"time"

	"airlift/installer/cluster"
)

const (
	// aloneDuration is after how long without renewal the process of a Lease that refuses others was killed.
	aloneDuration = 15 * time.Second
	aloneRenewal  = 5 * time.Second
	alonePoll     = time.Second
)

// A BusyError is why a process is refused: another one has the Lease.
type BusyError struct{ Holder string }

func (e *BusyError) Error() string { return e.Holder + " has begun one, and has not ended it" }

// Alone takes a Lease in kube-system for work that only one process of the cluster may do at a time, and renews it until release. It does
// not wait for another process: the error is then a BusyError. If that process was killed, Alone sees within aloneDuration that nobody
// renews its Lease, and takes it. waits, which may be nil, is called once when that begins. The returned context ends when the Lease is lost.
func Alone(ctx context.Context, c *cluster.Client, name, node string, waits func(holder string)) (held context.Context, release func(), err error) {
	// No other process of this host has this number. A process of before with it has ended.
	l := newLease(name, fmt.Sprintf("%s, process %d", node, os.Getpid()), aloneDuration)
	end := time.Now().Add(aloneDuration + 2*alonePoll)
	renewed := ""
	for {
		other, err := l.take(ctx, c)
		if err != nil {
			return nil, nil, fmt.Errorf("taking the Lease kube-system/%s: %w", name, err)
		}
		if other == "" {
			break
		}
		seen := l.since.String()
		if renewed == "" && waits != nil {
			waits(other)
		}
		if renewed != "" && renewed != seen || time.Now().After(end) {
			return nil, nil, &BusyError{other}
		}
		renewed = seen
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(alonePoll):
		}
	}
	held, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for last := time.Now(); ; {
			select {
			case <-held.Done():
				return
			case <-time.After(aloneRenewal):
			}
			began := time.Now()
			attempt, stop := context.WithTimeout(held, aloneRenewal)
			other, err := l.take(attempt, c)
			stop()
			switch {
			case err == nil && other == "":
				last = began
			case err == nil:
				cancel(&BusyError{other})
				return
			case held.Err() == nil && time.Since(last) > aloneDuration:
				cancel(fmt.Errorf("the Lease kube-system/%s could not be renewed: %w", name, err))
				return
			}
		}
	}()
	return held, func() {
		cancel(nil)
		<-ended
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), turnCallTimeout)
		defer stop()
		_ = l.drop(ctx, c) // or it expires
	}, nil
}

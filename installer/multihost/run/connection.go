package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"airlift/installer/multihost/live"
	"airlift/installer/multihost/remote"
	"airlift/internal/fault"
)

const (
	// reconnectLimit is longer than a lock without beats, and a reboot of most machines.
	reconnectLimit    = 3 * time.Minute
	reconnectInterval = 5 * time.Second
)

func (h *Host) connect(ctx context.Context) error {
	conn, err := h.site.Dialer.Dial(ctx, h.Host)
	if err != nil {
		return err
	}
	h.close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn = conn
	return nil
}

// connection returns the present connection.
func (h *Host) connection() remote.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conn
}

// close ends the connection of the host.
func (h *Host) close() {
	if c := h.connection(); c != nil {
		_ = c.Close()
	}
}

// retried does something. If a connection is lost, it connects once more and does it again: it continues.
func (s *Site) retried(ctx context.Context, what string, row *live.Row, do func() error) error {
	before := map[string]remote.Conn{}
	for _, h := range s.hosts {
		before[h.Name] = h.connection()
	}
	err := do()
	lost := (*remote.LostError)(nil)
	if !errors.As(err, &lost) || ctx.Err() != nil {
		return err
	}
	on := s.host(lost.Host)
	if on == nil {
		return err
	}
	row.Note("%v: connecting again", err)
	if err := on.reconnect(ctx, before[on.Name]); err != nil {
		return unknown(what, err)
	}
	if err = do(); errors.As(err, &lost) {
		return unknown(what, err)
	}
	return err
}

// unknown is the error of what nobody knows how it ended.
func unknown(what string, err error) error {
	return fault.New(fault.Failure, "unknown: the connection was lost during %q, and again: %w", what, err).
		Hint("when the host answers, run the same command again: it continues")
}

// reconnect connects again, waits until the host answers, and takes its lock again, if this driver had it, unless another action has done so
// since the connection was lost. The former lock may last until the host finds out that it was.
func (h *Host) reconnect(ctx context.Context, lost remote.Conn) error {
	asked := time.Now()
	h.again.Lock()
	defer h.again.Unlock()
	if h.connection() != lost {
		return nil
	}
	if h.tried.After(asked) { // by another action, in vain
		return h.gone
	}
	h.close() // only a session may be lost: the host ends the lock with the connection
	var final error
	next := &Host{Host: h.Host, site: h.site, installer: h.installer} // which nobody else has before it has the lock
	err := patiently(ctx, func(ctx context.Context) error {
		if err := next.connect(ctx); err != nil {
			return err
		}
		f, err := next.readFacts(ctx)
		if err != nil {
			return err
		}
		if h.Facts != nil && f.MachineID != h.Facts.MachineID {
			final = fault.New(fault.Failure, "another machine answers at its address: its machine-id is %s, and was %s", f.MachineID, h.Facts.MachineID).
				Hint("see which machines have the address: ip neigh; then run the same command again")
			return nil
		}
		if h.lockHeld() != nil {
			err = next.lock(ctx, true)
		}
		if ended := (*lostError)(nil); errors.As(err, &ended) {
			final = err
			return nil
		}
		return err
	})
	if err = cmp.Or(final, err); err != nil {
		next.close() // without the lock, nothing may run there
		h.tried, h.gone = time.Now(), err
		return err
	}
	h.unlock() // ends what is left of the lost lock
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn, h.locked = next.conn, next.locked
	return nil
}

// patiently connects again to a host that may not answer for a while.
func patiently(ctx context.Context, connect func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reconnectLimit)
	defer cancel()
	for {
		err := connect(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("connecting again for %s: %w", reconnectLimit, err)
		case <-time.After(reconnectInterval):
		}
	}
}

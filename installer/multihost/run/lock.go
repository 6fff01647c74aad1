package run

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/multihost/remote"
	"airlift/internal/fault"
)

// A host's lock ends beatLimit after the last byte of the driver, which writes one each beatInterval: so a driver's machine
// without power does not lock the hosts.
const (
	beatInterval = 15 * time.Second
	beatLimit    = time.Minute
	// maxLine is how long the answer of a host may be, in bytes.
	maxLine = 64 << 10
)

var errNoAnswer = errors.New("it did not answer")

// held is what "cluster host hold" prints.
type held struct {
	Held bool `json:"held"`
	holder
	Last holder `json:"last"`
}

// A holder is a driver, as the host knows it.
type holder struct {
	Who   string    `json:"who"`
	Since time.Time `json:"since"`
}

func (h holder) String() string { return h.Who + ", since " + h.Since.Format(time.DateTime) }

// A lostError is the end of a run that lost the lock of a host: another driver may change that host.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// withLocks does something, and releases the locks of all hosts after it. Its context ends if one of them is lost.
func (s *Site) withLocks(ctx context.Context, do func(context.Context) error) error {
	ctx, s.end = context.WithCancelCause(ctx)
	defer s.end(nil)
	defer s.unlock()
	err := do(ctx)
	if lost := (*lostError)(nil); err != nil && errors.As(context.Cause(ctx), &lost) {
		return lost
	}
	return err
}

// lock locks hosts.
func (s *Site) lock(ctx context.Context, hosts []*Host) error {
	return s.Each(ctx, "lock", hosts, func(ctx context.Context, h *Host) error { return h.lock(ctx, false) })
}

func (s *Site) unlock() {
	_ = quietly(context.Background(), s.hosts, func(_ context.Context, h *Host) error { h.unlock(); return nil })
}

// A lock is the command on a host that has its lock.
type lock struct {
	conn   remote.Conn
	beats  *io.PipeWriter
	watch  context.CancelFunc      // ends watching
	kill   context.CancelCauseFunc // ends the command
	ended  chan struct{}           // closed when the command has ended
	err    error                   // of the command, then
	answer held
	beaten atomic.Int64 // sinceStart of the last beat
}

// lock takes the lock of a host for this driver, until unlock is called or it is lost. Again is for a lock that this driver has lost: if
// another driver has or had it, the run ends.
func (h *Host) lock(ctx context.Context, again bool) error {
	args := []string{h.installer, "cluster", "host", "hold", "--who", h.site.Who, "--beat", beatLimit.String()}
	if again {
		args = append(args, "--again")
	}
	in, beats := io.Pipe()
	out, answers := io.Pipe()
	// The lock must outlive ctx: commands end later than it. Only the wait for the answer ends with ctx, and on a host that does not answer.
	holding, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	late := time.AfterFunc(answerTime, func() { kill(fmt.Errorf("no answer within %s", answerTime)) })
	waits := context.AfterFunc(ctx, func() { kill(context.Cause(ctx)) })
	watching, watch := context.WithCancel(holding)
	l := &lock{conn: h.connection(), beats: beats, watch: watch, kill: kill, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.err = l.conn.Run(holding, remote.Command{Args: args, Stdin: in, Stdout: answers})
		_ = answers.CloseWithError(errors.Join(l.err, io.EOF))
		_ = in.Close()
	}()
	err := l.read(out)
	late.Stop()
	waits()
	l.beaten.Store(int64(sinceStart())) // the host counts from its answer, too
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if err != nil {
		_ = beats.Close()
		kill(nil)
		if who := cmp.Or(l.answer.Last.Who, l.answer.Who); again && who != "" && who != h.site.Who { // not this driver's, which the host still waits for
			return h.endRun(err)
		}
		return cmp.Or(context.Cause(ctx), err)
	}
	h.setLock(l)
	go h.watch(watching, l)
	return nil
}

// read waits for the answer of hold.
func (l *lock) read(out *io.PipeReader) error {
	line, err := bufio.NewReaderSize(out, maxLine).ReadSlice('\n')
	if err != nil || json.Unmarshal(line, &l.answer) != nil {
		_ = out.Close() // of a host that prints more
		<-l.ended
		return fault.New(fault.Failure, "locking the host: %w", errors.Join(described(l.err), errNoAnswer)).Hint("run the same command again")
	}
	if last := l.answer.Last; !l.answer.Held && last.Who != "" {
		return fmt.Errorf("another driver had it: %s", last)
	}
	if other := l.answer.holder; !l.answer.Held {
		return fault.New(fault.Failure, "another driver changes this host: %s (%s ago)", other, time.Since(other.Since).Round(time.Second)).
			Hint("wait until it has finished, or end it there; a driver that was killed loses the lock at once, and one without power after " + beatLimit.String())
	}
	return nil
}

// watch writes beats, until ctx ends or the lock is lost.
func (h *Host) watch(ctx context.Context, l *lock) {
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.ended:
			if ctx.Err() == nil {
				h.lost(l)
			}
			return
		case <-tick.C:
			if h.stoodStill(l) != nil {
				return
			}
			if _, err := l.beats.Write([]byte(".")); err == nil {
				l.beaten.Store(int64(sinceStart()))
			}
		}
	}
}

// lost ends the run if the command that has the lock has ended. If the connection has ended too, nothing runs on the host before
// reconnect has the lock again.
func (h *Host) lost(l *lock) {
	if gone := (*remote.LostError)(nil); errors.As(l.err, &gone) {
		_ = l.conn.Close()
		return
	}
	_ = h.endRun(cmp.Or(described(l.err), errors.New("the command that had it has ended")))
}

// stoodStill ends the run if this machine did not run for so long that the host has ended the lock: a laptop that slept. The host may
// not have been able to report that yet.
func (h *Host) stoodStill(l *lock) error {
	select {
	case <-l.ended:
		return nil
	default:
	}
	still := sinceStart() - time.Duration(l.beaten.Load())
	if still < beatLimit {
		return nil
	}
	return h.endRun(fmt.Errorf("this machine stood still for %s", still.Round(time.Second)))
}

// run runs a command on the host, unless the lock that this driver took may have ended.
func (h *Host) run(ctx context.Context, c remote.Command) error {
	if err := h.holds(); err != nil {
		return err
	}
	return h.connection().Run(ctx, c)
}

// holds ends the run if the lock that this driver took may have ended.
func (h *Host) holds() error {
	if l := h.lockHeld(); l != nil {
		return h.stoodStill(l)
	}
	return nil
}

// endRun ends the run because this driver has no lock of the host any more.
func (h *Host) endRun(why error) error {
	err := &lostError{fault.New(fault.Failure, "%s: the lock of this host was lost, so nothing else was begun on any host: %w", h.Name, why).
		Hint("see who else changes the hosts, and run the same command again: it continues")}
	if h.site.end != nil {
		h.site.end(err)
	}
	return err
}

// sinceStart is how long this machine has been running, with the time for which it slept: the clock of package time does not have that.
var sinceStart = func() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // it fails for unknown clocks
	return time.Duration(t.Nano())
}

// setLock replaces the lock that this driver took.
func (h *Host) setLock(l *lock) (former *lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	former, h.locked = h.locked, l
	return former
}

// lockHeld returns the lock that this driver took; nil if it took none.
func (h *Host) lockHeld() *lock {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.locked
}

// unlock ends the lock.
func (h *Host) unlock() {
	l := h.setLock(nil)
	if l == nil {
		return
	}
	l.watch()
	_ = l.beats.Close()
	select {
	case <-l.ended:
	case <-time.After(cleanUpTimeout):
	}
	l.kill(nil)
}

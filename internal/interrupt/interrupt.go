// Package interrupt cancels a command on a signal, or when its output is closed.
package interrupt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"airlift/internal/fault"
)

var causes = map[os.Signal]string{
	syscall.SIGINT:  "interrupted",
	syscall.SIGTERM: "interrupted by SIGTERM",
	syscall.SIGHUP:  "interrupted by SIGHUP: the session or the terminal was closed",
}

// Context returns a context that is cancelled by the first SIGINT, SIGTERM or SIGHUP, or by
// cancel; its cause is the reason. A second signal ends the process at once. Signals that
// were ignored when the process started stay ignored, as with nohup.
//
// SIGPIPE no longer ends the process: see Output.
func Context(parent context.Context) (ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, cancel = context.WithCancelCause(parent)
	arrived := make(chan os.Signal, 2)
	for s := range causes {
		if !signal.Ignored(s) {
			signal.Notify(arrived, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		cancel(errors.New(causes[<-arrived]))
		<-arrived
		endAtOnce()
	}()
	return ctx, cancel
}

// endAtOnce ends the process. It waits at most a second for the message, because the
// terminal may be blocked.
func endAtOnce() {
	said := make(chan struct{})
	go func() {
		fmt.Fprintln(os.Stderr, "error: interrupted twice, so the command ended at once; run the same command again to continue")
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
	os.Exit(int(fault.Interrupted))
}

// Output is a standard output. If it is closed, because a pipe's reader ended ('install
// init | head') or the terminal was closed, the command is interrupted: nobody would see
// the rest of the output.
type Output struct {
	*os.File
	Lost context.CancelCauseFunc
}

func (o Output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	if closed(err) {
		o.Lost(fmt.Errorf("interrupted: %s was closed", o.File.Name()))
	}
	return n, err
}

// WriteString must also use Write.
func (o Output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

// Package interrupt ends a command when its user asks for it or is gone: by a
// signal, or by output that nobody reads any more.
package interrupt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"airlift/fault"
)

var causes = map[os.Signal]string{
	syscall.SIGINT:  "interrupted",
	syscall.SIGTERM: "interrupted by SIGTERM",
	syscall.SIGHUP:  "interrupted by SIGHUP: the session or the terminal is gone",
}

// Context returns a context that ends with the first SIGINT, SIGTERM or SIGHUP,
// or with cancel; its cause says which. A second signal ends the process at
// once. Signals that were ignored when the process started stay ignored, as
// nohup and shells want it.
//
// SIGPIPE does not end the process any more: see Output.
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

// endAtOnce ends the process, whatever else it does. The terminal may take no
// more text, so that the last line is not waited for.
func endAtOnce() {
	said := make(chan struct{})
	go func() {
		fmt.Fprintln(os.Stderr, "error: interrupted twice: ended at once; run the same command again to go on")
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
	os.Exit(int(fault.Interrupted))
}

// Output is a standard output. When nobody reads it any more, because a pipe is
// closed ('install init | head') or the terminal is gone, that is an
// interruption: nobody would see how the run goes on.
type Output struct {
	*os.File
	Lost context.CancelCauseFunc
}

func (o Output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EIO) {
		o.Lost(fmt.Errorf("interrupted: nobody reads %s any more", o.File.Name()))
	}
	return n, err
}

// WriteString is Write: a writer of strings must not get past it.
func (o Output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

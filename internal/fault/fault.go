// Package fault adds to an error what a user needs: a hint what to do, and the exit code of
// the process.
package fault

import (
	"context"
	"errors"
	"fmt"
)

// Code is a process exit code. The codes are part of the commands' interface and listed in
// their help.
type Code int

const (
	Failure     Code = 1   // the work failed
	Usage       Code = 2   // the command line or the configuration file is wrong
	Preflight   Code = 3   // the host does not meet the requirements
	Bundle      Code = 4   // the bundle is missing, truncated or damaged
	Work        Code = 5   // of a plan with --detailed-exitcode: there is something to do
	Skipped     Code = 6   // what follows are outcomes of work on a cluster: all is done but hosts that were skipped
	Paused      Code = 7   // the rules stop the work here, until the user continues it
	Held        Code = 8   // the rest waits for something that only the user can change
	Waiting     Code = 9   // the same command has more to do
	Vulnerable  Code = 10  // of bundle scan --fail-on: the bundle has such vulnerabilities
	Interrupted Code = 130 // by a signal or lost output, as shells count SIGINT (128+2)
)

// outcomes have the word before the text of an error that is no failure.
var outcomes = map[Code]string{Work: "result", Skipped: "skipped", Paused: "paused", Held: "held", Waiting: "waiting", Vulnerable: "result"}

// Word returns the word for an exit code before the text of its error.
func (c Code) Word() string {
	if word := outcomes[c]; word != "" {
		return word
	}
	return "error"
}

// IsOutcome reports whether a command with this code has not failed, although it did not do all.
func (c Code) IsOutcome() bool { return outcomes[c] != "" }

// A Fault is an error with an exit code and a hint.
type Fault struct {
	err  error
	hint string
	code Code
}

func (f *Fault) Error() string { return f.err.Error() }
func (f *Fault) Unwrap() error { return f.err }

// New returns an error from a format (which may use %w), with the exit code.
func New(code Code, format string, args ...any) *Fault {
	return &Fault{err: fmt.Errorf(format, args...), code: code}
}

// Hint returns the error with a hint: what the user can do. It may be empty.
func (f *Fault) Hint(hint string) error { return &Fault{f.err, hint, f.code} }

// Wrap adds a code and a hint to err without changing its text. It returns nil for a nil
// err.
func Wrap(err error, code Code, hint string) error {
	if err == nil {
		return nil
	}
	return &Fault{err, hint, code}
}

// Hint returns the outermost hint in err's chain, or "".
func Hint(err error) string {
	for f := (*Fault)(nil); errors.As(err, &f); err = f.err {
		if f.hint != "" {
			return f.hint
		}
	}
	return ""
}

// ExitCode returns the exit code for err: 0 for nil, Interrupted for a cancelled context,
// otherwise the code of the outermost fault, or Failure.
func ExitCode(err error) Code {
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) {
		return Interrupted
	}
	if f := (*Fault)(nil); errors.As(err, &f) {
		return f.code
	}
	return Failure
}

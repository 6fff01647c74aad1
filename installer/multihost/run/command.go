package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"airlift/installer/multihost/remote"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

const (
	// maxAnswer is how much a host may print as an answer: as much as the archive of a doctor has before compression.
	maxAnswer = 64 << 20
	// workTime is how long a command may take that checks or compares a whole host, or waits until the API server is back.
	workTime = 10 * time.Minute
)

// answerTime is how long a host may take for an answer. Package remote gives a login and sudo two minutes, and the installer gives up
// after 4.5 s what may hang; the rest is for a host that is busy.
var answerTime = 3 * time.Minute

// answer runs a command that must end within limit. A host may have a disk that hangs, and its root may answer anything.
func (h *Host) answer(ctx context.Context, limit time.Duration, stdin io.Reader, args ...string) ([]byte, error) {
	ending, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer time.AfterFunc(limit, func() { end(fmt.Errorf("no answer within %s", limit)) }).Stop()
	out := &answer{end: end}
	err := h.run(ending, remote.Command{Args: args, Stdin: stdin, Stdout: out})
	if ending.Err() != nil && ctx.Err() == nil {
		seen := "nothing was printed" // it may be a secret
		if n := len(out.text); n > 0 {
			seen = progress.Bytes(int64(n)) + " were printed"
		}
		return nil, fault.New(fault.Failure, "the host does not answer: %w; last seen: %s", context.Cause(ending), seen).
			Hint("see on the host what hangs: dmesg | tail; ps aux")
	}
	return out.text, described(err)
}

// sendTime is how long a copy may not move: a host first compares what it has of the file, and its disk may be slow at the end.
var sendTime = workTime

// send copies a file to the host, unless the lock that this driver took may have ended. What is the word in the row of the host; "" shows
// nothing.
func (h *Host) send(ctx context.Context, file remote.File, what string) error {
	if err := h.holds(); err != nil {
		return err
	}
	var there atomic.Int64
	ending, end := context.WithCancelCause(ctx)
	defer end(nil)
	timer := time.AfterFunc(sendTime, func() { end(fmt.Errorf("nothing moved for %s", sendTime)) })
	defer timer.Stop()
	_, err := h.connection().Send(ending, file, func(n int64) {
		timer.Reset(sendTime)
		there.Store(n)
		if what != "" {
			h.row.Moving(what, n, file.Size)
		}
	})
	if err != nil && ending.Err() != nil && ctx.Err() == nil {
		return fault.New(fault.Failure, "the host does not take %s: %w; last seen: %s of %s", file.Path, context.Cause(ending), progress.Bytes(there.Load()), progress.Bytes(file.Size)).
			Hint("see on the host what hangs: dmesg | tail; ps aux; then run the same command again: it continues")
	}
	return err
}

// An answer keeps what a command prints, and ends the command if that is too much.
type answer struct {
	text []byte
	end  context.CancelCauseFunc
}

func (a *answer) Write(p []byte) (int, error) {
	if len(a.text)+len(p) > maxAnswer {
		err := fmt.Errorf("it printed more than %s", progress.Bytes(maxAnswer))
		a.end(err)
		return 0, err
	}
	a.text = append(a.text, p...)
	return len(p), nil
}

// install runs a command of an installer on the host, and shows its progress. It returns the last text, which may have a secret of init.
func (h *Host) install(ctx context.Context, stdin io.Reader, args ...string) (text string, err error) {
	e := &events{show: h.row.Show}
	err = h.run(ctx, remote.Command{Args: slices.Concat(args, []string{"--progress", "json"}), Stdin: stdin, Stdout: e})
	return e.done, e.described(err)
}

// Document runs a command of the installer whose standard output is a document, and shows its progress.
func (h *Host) Document(ctx context.Context, out io.Writer, args ...string) error {
	e := &events{show: h.row.Show}
	args = slices.Concat([]string{h.installer}, args, []string{"--progress", "json"})
	return e.described(h.run(ctx, remote.Command{Args: args, Stdout: out, Stderr: e}))
}

// described is described for a command whose last event may have its error.
func (e *events) described(err error) error {
	if exit := (*remote.ExitError)(nil); errors.As(err, &exit) && e.failed != nil {
		return fault.New(codeOf(exit), "%s", e.failed.Text).Hint(e.failed.Hint)
	}
	return described(err)
}

// codeOf returns the exit code of a command as one that commands of the installer have: a process that the kernel ended, or
// that could not start, failed.
func codeOf(exit *remote.ExitError) fault.Code {
	if code := fault.Code(exit.Code); slices.Contains(severity, code) {
		return code
	}
	return fault.Failure
}

// signalled is added to the number of the signal that ended a command, by the shell.
const signalled = 128

// described gives an error of a command its exit code and its hint, which are in its last lines.
func described(err error) error {
	exit := (*remote.ExitError)(nil)
	if !errors.As(err, &exit) {
		return err
	}
	text, hint := exit.Error(), ""
	if exit.Code > signalled && exit.Code != int(fault.Interrupted) {
		text = fmt.Sprintf("the command was ended by signal %d; %s", exit.Code-signalled, text)
		hint = "see on the host whether memory was short: journalctl -k -e"
	}
	if _, after, found := strings.Cut("\n"+text, "\nerror: "); found {
		text, hint, _ = strings.Cut(after, "\nhint: ")
	}
	return &commandError{exit, strings.TrimSpace(text), fault.New(codeOf(exit), "%s", text).Hint(strings.TrimSpace(hint))}
}

// A commandError is the error that a command printed.
type commandError struct {
	exit  *remote.ExitError
	text  string
	fault error
}

func (e *commandError) Error() string   { return e.text }
func (e *commandError) Unwrap() []error { return []error{e.fault, e.exit} }

// maxEvent is the longest line of events that is kept, in bytes.
const maxEvent = 1 << 20

// events reads the lines of --progress json.
type events struct {
	show   func(progress.Event)
	other  func(line []byte) // for a line that is no event; nil ignores it
	step   string            // that runs
	rest   []byte
	failed *progress.Event
	done   string // the last text, which may have secrets: of init
}

func (e *events) Write(p []byte) (int, error) {
	e.rest = append(e.rest, p...)
	for {
		line, rest, found := bytes.Cut(e.rest, []byte("\n"))
		if !found {
			break
		}
		e.line(line)
		e.rest = rest
	}
	if len(e.rest) > maxEvent {
		e.rest = nil
	}
	return len(p), nil
}

func (e *events) line(text []byte) {
	var event progress.Event
	if json.Unmarshal(text, &event) != nil || event.Kind == "" {
		if e.other != nil {
			e.other(text)
		}
		return
	}
	event.Time = time.Time{} // the clock of the host may be wrong
	if event.Kind == progress.Step {
		e.step = event.Step
	}
	if event.Kind == progress.Warning && e.step == "preflight" {
		event.Kind = progress.Note // the findings of all hosts were shown before
	}
	switch event.Kind {
	case progress.Error:
		e.failed = &event
	case progress.Done:
		e.done = event.Text
	default:
		e.show(event)
	}
}

// Installer runs a command of the installer on the host, and returns what it printed on standard output.
func (h *Host) Installer(ctx context.Context, args ...string) ([]byte, error) {
	return h.answer(ctx, workTime, nil, append([]string{h.installer}, args...)...)
}

// Install runs a command of the installer that changes the host, and shows its progress.
func (h *Host) Install(ctx context.Context, args ...string) error {
	_, err := h.install(ctx, nil, append([]string{h.installer}, args...)...)
	return err
}

// shell runs a script on the host.
func (h *Host) shell(ctx context.Context, script string) error {
	_, err := h.Output(ctx, "/bin/sh", "-c", script)
	return err
}

// Output runs a command of the host as root, and returns what it printed on standard output.
func (h *Host) Output(ctx context.Context, args ...string) ([]byte, error) {
	return h.answer(ctx, answerTime, nil, args...)
}

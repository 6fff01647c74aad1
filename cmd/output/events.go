package output

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"airlift/internal/fault"
	"airlift/internal/progress"
)

// BindProgress adds the flag --progress to a command and those below it. Its value takes effect when it is read, so that
// an error in a later flag is an event, too.
func BindProgress(cmd *cobra.Command) {
	cmd.PersistentFlags().Var(&progressFlag{cmd: cmd, format: "text"}, "progress", "the format of progress, warnings and the error: text, or json for one object per line (see './install docs install')")
}

type progressFlag struct {
	cmd    *cobra.Command
	format string
}

func (p *progressFlag) String() string { return p.format }
func (*progressFlag) Type() string     { return "FORMAT" }

func (p *progressFlag) Set(format string) error {
	switch {
	case format != "text" && format != "json":
		return fault.New(fault.Usage, "it must be text or json")
	case format == "json" && p.format == "text":
		p.cmd.SetOut(&events{below: p.cmd.OutOrStdout()})
		p.cmd.SetErr(&events{below: p.cmd.ErrOrStderr()})
	case format == "text" && p.format == "json":
		p.cmd.SetOut(p.cmd.OutOrStdout().(*events).below)
		p.cmd.SetErr(p.cmd.ErrOrStderr().(*events).below)
	}
	p.format = format
	return nil
}

// PrintError prints the error of a command for people. With --progress json it prints the last event instead, also of a
// command that succeeded: on standard output, or on standard error if standard output has a document.
func PrintError(cmd *cobra.Command, err error) {
	out, ok := cmd.OutOrStdout().(*events)
	if !ok {
		fault.Print(cmd.ErrOrStderr(), err)
		return
	}
	if out.document {
		out = cmd.ErrOrStderr().(*events)
	}
	out.end(err)
}

// events is an output of a command with --progress json. Each line that is written becomes an event.
type events struct {
	below io.Writer

	mu       sync.Mutex
	line     string   // text whose line has not ended
	summary  []string // the text of the last event
	document bool     // it has a document
}

func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := strings.Split(e.line+Named(e.below, string(p)), "\n")
	e.line = ""
	for _, line := range lines[:len(lines)-1] {
		if err := e.printLine(line); err != nil {
			return 0, err
		}
	}
	e.line = lines[len(lines)-1]
	return len(p), nil
}

// WriteString must also use Write.
func (e *events) WriteString(s string) (int, error) { return e.Write([]byte(s)) }

// Emit prints an event. The text of progress.Done is kept for the last event.
func (e *events) Emit(ev progress.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ev.Text, ev.Hint = Named(e.below, strings.TrimSpace(ev.Text)), Named(e.below, ev.Hint)
	if ev.Kind == progress.Done && ev.Host == "" {
		e.summary = append(e.summary, ev.Text)
		return
	}
	_ = e.print(ev) // a lost output cancels the command
}

// end prints the last event.
func (e *events) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := progress.Event{Kind: progress.Done, Text: strings.Join(e.summary, "\n")}
	if err != nil {
		code, text := fault.ExitCode(err), Named(e.below, err.Error())
		last.Code, last.Hint = int(code), Named(e.below, fault.Hint(err))
		if code.IsOutcome() {
			last.Text = strings.TrimSpace(last.Text + "\n" + code.Word() + ": " + text)
		} else {
			last.Kind, last.Text = progress.Error, text
		}
	}
	_ = e.print(last)
}

// print prints an event after the text before it. The caller holds e.mu.
func (e *events) print(ev progress.Event) error {
	line := e.line
	e.line = ""
	if err := e.printLine(line); err != nil {
		return err
	}
	ev.Time = time.Now().UTC().Truncate(time.Millisecond)
	encoder := json.NewEncoder(Verbatim(e.below))
	encoder.SetEscapeHTML(false) // it is for people, too
	return encoder.Encode(ev)
}

// printLine prints a line of text as an event, unless it is empty. The caller holds e.mu.
func (e *events) printLine(line string) error {
	line = strings.TrimSpace(line)
	if line == "" {
		return nil
	}
	ev := progress.Event{Kind: progress.Note, Text: line}
	if text, ok := strings.CutPrefix(line, "warning: "); ok {
		ev.Kind, ev.Text = progress.Warning, text
	}
	return e.print(ev)
}

// A document is an output for the documents of a command whose texts are events.
type document struct {
	io.Writer
	events *events
}

func (d document) Write(p []byte) (int, error) {
	d.events.mu.Lock()
	d.events.document = true
	d.events.mu.Unlock()
	return d.Writer.Write(p)
}

// Documents returns the output for the documents of a command, which are no events.
func Documents(out io.Writer) io.Writer {
	if e, ok := out.(*events); ok {
		return document{progress.Raw(e.below), e}
	}
	return progress.Raw(out)
}

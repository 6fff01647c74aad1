package clustercmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/spec"
	"airlift/installer/redact"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// A logFile has what a command did on which host, and when: each command, what it printed, and how it ended. Secrets are not in it:
// standard input and documents are counted, and everything else is redacted. A nil *logFile records nothing.
type logFile struct {
	path    string
	numbers atomic.Int64 // of commands; one host may run several at once

	mu   sync.Mutex
	file *os.File
}

const (
	// keptLogs is how many logs are kept.
	keptLogs = 20
	// keptOutput is how much of what a command printed is recorded, in bytes. The rest is counted.
	keptOutput = 16 << 10
	logExt     = ".log"
)

// logDir is where the logs of the user are.
func logDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home := os.Getenv("HOME")
		if u, err := user.Current(); home == "" && err == nil {
			home = u.HomeDir
		}
		if !filepath.IsAbs(home) {
			return "", errors.New("the user has no home directory")
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "airlift", "logs"), nil
}

// openLog begins a log, and removes the oldest ones.
func openLog(cluster, command string, now time.Time) (*logFile, error) {
	dir, err := logDir()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%s-%s-%d%s", now.UTC().Format("20060102T150405.000Z"), cluster, strings.ReplaceAll(command, " ", "-"), os.Getpid(), logExt)
	l := &logFile{path: filepath.Join(dir, name)}
	if l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir) // sorted by name, so by time
	if err != nil {
		return l, nil
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.Type().IsRegular() || filepath.Ext(e.Name()) != logExt })
	for _, e := range entries[:max(len(entries)-keptLogs, 0)] {
		_ = os.Remove(filepath.Join(dir, e.Name())) // the next run tries it again
	}
	return l, nil
}

// text records a text, a line for each of its lines.
func (l *logFile) text(host, text string) {
	if l == nil {
		return
	}
	var b bytes.Buffer
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	for line := range strings.Lines(fault.Printable(string(redact.Log([]byte(text))))) {
		fmt.Fprintf(&b, "%s %s: %s\n", now, cmp.Or(host, "driver"), strings.TrimRight(line, "\n"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.file.Write(b.Bytes()) // a full disk must not end the run
}

// end records how the command ended, and prints where the log is.
func (l *logFile) end(out io.Writer, err error) {
	if l == nil {
		return
	}
	text := "done"
	if err != nil {
		var b strings.Builder
		fault.Print(&b, err)
		text = b.String()
	}
	l.text("", text)
	_ = l.file.Close()
	fmt.Fprintf(out, "The log of this run: %s\n", l.path)
}

// A loggedDialer records what its connections do.
type loggedDialer struct {
	dialer
	log *logFile
}

func (d loggedDialer) Dial(ctx context.Context, h spec.Host) (remote.Conn, error) {
	d.log.text(h.Name, fmt.Sprintf("connecting to %s port %d as %s", h.SSH.Address, h.SSH.Port, h.SSH.User))
	c, err := d.dialer.Dial(ctx, h)
	if err != nil {
		d.log.text(h.Name, "connecting failed: "+err.Error())
		return nil, err
	}
	return &loggedConn{c, h.Name, d.log}, nil
}

// A loggedConn records its commands and copies.
type loggedConn struct {
	remote.Conn
	host string
	log  *logFile
}

func (c *loggedConn) Run(ctx context.Context, command remote.Command) error {
	id := fmt.Sprintf("[%d] ", c.log.numbers.Add(1))
	line := id + "$ " + words(command.Args)
	if in, ok := command.Stdin.(interface{ Len() int }); ok {
		line += fmt.Sprintf(" <(%s)", progress.Bytes(int64(in.Len())))
	}
	c.log.text(c.host, line)
	began := time.Now()
	record := func(text string) { c.log.text(c.host, id+text) }
	out, errs := &loggedOutput{below: command.Stdout, shown: isShown(command.Args), line: record}, &loggedOutput{below: command.Stderr, shown: true, line: record}
	if command.Stdout = out; command.Stderr != nil { // else its last lines are in the error
		command.Stderr = errs
	}
	err := c.Conn.Run(ctx, command)
	out.end()
	errs.end()
	how := "done"
	if err != nil {
		how = "failed: " + err.Error()
	}
	c.log.text(c.host, fmt.Sprintf("%s%s, %s", id, how, time.Since(began).Round(time.Millisecond)))
	return err
}

func (c *loggedConn) Send(ctx context.Context, f remote.File, moved func(inPlace int64)) (sent int64, err error) {
	id, began := fmt.Sprintf("[%d] ", c.log.numbers.Add(1)), time.Now()
	c.log.text(c.host, fmt.Sprintf("%scopying %s to %s", id, progress.Bytes(f.Size), f.Path))
	sent, err = c.Conn.Send(ctx, f, moved)
	how := "sent " + progress.Bytes(sent)
	if err != nil {
		how += ", and failed: " + err.Error()
	}
	c.log.text(c.host, fmt.Sprintf("%s%s, %s", id, how, time.Since(began).Round(time.Millisecond)))
	return sent, err
}

// words returns a command line. Each argument is one line, as in a shell.
func words(args []string) string {
	var list []string
	for _, a := range args {
		list = append(list, fault.Word(strings.ReplaceAll(a, "\n", "; ")))
	}
	return strings.Join(list, " ")
}

// shown are commands whose output is recorded. The output of any other one may be a secret, such as a kubeconfig, and is counted. Progress is
// always recorded.
var shown = [][]string{{"cluster", "host", "facts"}, {"cluster", "host", "hold"}, {"cluster", "host", "wait"}, {"cluster", "host", "gate"}, {"cluster", "host", "reach"}}

func isShown(args []string) bool {
	if len(args) > 0 && args[0] == "/bin/sh" { // the driver's own scripts
		return true
	}
	return slices.ContainsFunc(shown, func(command []string) bool {
		return len(args) > len(command) && slices.Equal(args[1:len(command)+1], command)
	})
}

// A loggedOutput records the lines of an output.
type loggedOutput struct {
	below  io.Writer // may be nil
	shown  bool
	line   func(text string)
	rest   []byte
	inPEM  bool // a key has several lines
	kept   int
	hidden int64 // bytes
}

func (o *loggedOutput) Write(p []byte) (int, error) {
	for text := p; len(text) > 0; {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			o.rest = append(o.rest, text...)
			break
		}
		o.record(append(o.rest, text[:end]...))
		o.rest, text = nil, text[end+1:]
	}
	if len(o.rest) > keptOutput && o.rest[0] != '{' || len(o.rest) > 1<<20 { // no progress
		o.hidden += int64(len(o.rest))
		o.rest = nil
	}
	if o.below == nil {
		return len(p), nil
	}
	return o.below.Write(p)
}

// record records a line: progress as text, and another one if it cannot be a secret.
func (o *loggedOutput) record(line []byte) {
	var e progress.Event
	switch {
	case len(line) == 0:
	case line[0] == '{' && json.Unmarshal(line, &e) == nil && e.Kind != "":
		o.line(textOfEvent(e))
	case o.inPEM, bytes.Contains(line, []byte("-----BEGIN ")):
		o.inPEM = !bytes.Contains(line, []byte("-----END "))
		o.hidden += int64(len(line)) + 1
	case o.shown && o.kept+len(line) <= keptOutput:
		o.kept += len(line)
		o.line("> " + string(line))
	default:
		o.hidden += int64(len(line)) + 1
	}
}

func (o *loggedOutput) end() {
	o.record(o.rest)
	if o.hidden > 0 {
		o.line(fmt.Sprintf("printed %s more, which are not recorded", progress.Bytes(o.hidden)))
	}
}

func textOfEvent(e progress.Event) string {
	switch {
	case e.Kind == progress.Step && e.Of > 0:
		return fmt.Sprintf("[%d/%d] %s", e.Number, e.Of, e.Step)
	case e.Hint != "":
		return e.Kind + ": " + e.Text + "\nhint: " + e.Hint
	case e.Kind == progress.Step:
		return cmp.Or(e.Text, e.Step)
	}
	return e.Kind + ": " + e.Text
}

package remote

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// patience is how long a command may take to end after SIGINT.
	patience = 10 * time.Second
	// startLimit is how long a command may take to begin. Logins and sudo ask directories, and users for a second factor.
	startLimit = 2 * time.Minute
	// maxSessions at once in a connection: sshd's default is 10.
	maxSessions = 8
)

// A stream is a command that runs in a connection.
type stream struct {
	stdin          io.WriteCloser
	stdout, stderr io.Reader
	wait           func() (exit int, err error) // after the end of both outputs
	close          func()                       // ends it at once
}

// conn is a Conn: sessions in one transport.
type conn struct {
	host
	transport transport
	root      elevation
	sessions  chan struct{}
}

func (c *conn) Close() error { return c.transport.Close() }

// A job is a script with its streams.
type job struct {
	command string
	input   io.Reader // nil: none
	length  int64     // of the input; -1: the job is a stream, see streamed
	stdout  io.Writer
	stderr  io.Writer
}

func (c *conn) Run(ctx context.Context, cmd Command) error {
	if slices.ContainsFunc(cmd.Args, func(a string) bool { return strings.Contains(a, "\x00") }) {
		return fmt.Errorf("%s: an argument has a zero byte, which no shell keeps", c.name)
	}
	last := &tail{}
	j := job{command: quoteAll(cmd.Args), input: cmd.Stdin, stdout: cmd.Stdout, stderr: cmp.Or[io.Writer](cmd.Stderr, last)}
	if sized, ok := cmd.Stdin.(interface{ Len() int }); ok {
		j.length = int64(sized.Len())
	} else if cmd.Stdin != nil {
		j.length = -1
	}
	code, err := c.execute(ctx, c.root, j)
	if err != nil {
		return err
	}
	if code != 0 {
		return &ExitError{c.name, code, last.String()}
	}
	return nil
}

// execute runs a job and returns its exit code. At the end of ctx it ends the input, and waits for the end of the job.
func (c *conn) execute(ctx context.Context, root elevation, j job) (code int, err error) {
	select {
	case c.sessions <- struct{}{}:
		defer func() { <-c.sessions }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	j.stdout, j.stderr = cmp.Or(j.stdout, io.Discard), cmp.Or(j.stderr, io.Discard)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x := &execution{job: j, conn: c, ctx: ctx, public: rand.Text(), secret: rand.Text(), root: root, cancel: cancel, began: make(chan struct{}), ended: make(chan struct{})}
	defer time.AfterFunc(startLimit, x.tooLate).Stop()
	if x.stream, err = c.transport.open(ctx, bootstrap, false); err != nil {
		return 0, c.notOpened(ctx, err)
	}
	ran := make(chan error, 1)
	go func() { ran <- x.run() }()
	select {
	case err = <-ran:
	case <-ctx.Done():
		_ = x.stdin.Close() // the script notices
		select {
		case <-ran:
		case <-time.After(patience + 2*time.Second):
			x.close()
		}
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return x.code, x.explain(err)
}

// tooLate ends a job that did not begin.
func (x *execution) tooLate() {
	if x.hasBegun() {
		return
	}
	class, command := Shell, "true"
	if x.root.sudo {
		class, command = Sudo, "sudo true" // a question that is not sudo's own is not answered
	}
	x.cancel(x.conn.refused(class, "see what it waits for: ssh -t -p "+strconv.Itoa(x.conn.Port)+" "+quote(x.conn.User+"@"+x.conn.Address)+" "+command,
		"starting /bin/sh: no answer for %s: %s", startLimit, cmp.Or(x.printed(), "nothing was printed")))
}

func (x *execution) hasBegun() bool { return isClosed(x.began) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// printed returns what came before the command.
func (x *execution) printed() string {
	return strings.TrimSpace(x.outside[2].String() + "\n" + x.outside[1].String() + "\n" + x.outside[0].String())
}

// notOpened returns the error of a session that did not begin.
func (c *conn) notOpened(ctx context.Context, err error) error {
	if refused := (*ssh.OpenChannelError)(nil); !errors.As(err, &refused) && ctx.Err() == nil {
		select { // the host has not refused it: the end of the connection is known a little later
		case <-c.transport.done():
		case <-time.After(closeLimit):
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case isClosed(c.transport.done()):
		return &LostError{c.name, err}
	}
	return c.refused(Unreachable, "see MaxSessions in /etc/ssh/sshd_config on the host", "opening a session: %w", err)
}

// An execution is a job in a stream.
type execution struct {
	*stream
	job
	conn         *conn
	ctx          context.Context // for more sessions
	cancel       context.CancelCauseFunc
	public       string // until the command begins
	secret       string // from then on
	root         elevation
	began, ended chan struct{} // closed when the command begins, and when nothing more can come
	outside      [3]tail       // the standard output and error before the command, and the terminal
	code         int
	lost         error // of the session
}

// run returns nil if the job has ended with x.code.
func (x *execution) run() error {
	script := x.root.script(x.public, x.job)
	// An error of a write is followed by the end of the outputs.
	_, _ = fmt.Fprintf(x.stdin, "%d\n%s", len(script), script)
	fed, messages := make(chan error, 1), make(chan error, 1)
	go func() { fed <- x.feed() }()
	go func() { messages <- x.readMessages() }()
	err := x.readOutput()
	err = cmp.Or(err, <-messages)
	close(x.ended)
	if err != nil {
		x.close()
		if errors.Is(err, io.EOF) {
			x.code, x.lost = x.wait()
		} else {
			go func() { _, _ = x.wait() }()
		}
		return err
	}
	if x.input == nil {
		fed <- <-fed // feed does not wait
	}
	select {
	case err = <-fed:
		if x.length >= 0 {
			_, _ = x.stdin.Write([]byte{'\n'}) // releases the watcher
		}
	default: // the command did not read all
		x.close()
	}
	_ = x.stdin.Close()
	go func() { // the script ends by itself, but the command may have left processes that keep the session open
		defer time.AfterFunc(patience, x.close).Stop()
		_, _ = x.wait()
	}()
	return err
}

// feed writes the secret marker and the input once the command has begun.
func (x *execution) feed() error {
	select {
	case <-x.began:
		_, _ = io.WriteString(x.stdin, x.secret+"\n")
	case <-x.ended:
	}
	if x.input == nil {
		return nil
	}
	input := &source{r: x.input}
	if x.length >= 0 {
		_, _ = io.CopyN(x.stdin, input, x.length)
	} else {
		_, _ = io.Copy(x.stdin, input)
		_ = x.stdin.Close()
	}
	return input.err
}

// A source keeps the error of a reader. An error of the writer is a command that need not read all.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = fmt.Errorf("reading the input: %w", err)
	}
	return n, err
}

// readOutput reads the standard output to the marker of its end, and the exit code after it.
func (x *execution) readOutput() error {
	r := bufio.NewReaderSize(x.stream.stdout, bufferSize)
	for letter := byte(0); letter != markBegin; {
		var err error
		if letter, err = until(&x.outside[0], r, x.public); err != nil {
			return err
		}
		if letter != markRelay {
			continue
		}
		dir, err := r.ReadSlice('\n')
		if err == nil {
			err = x.startTerminal(strings.TrimSuffix(string(dir), "\n"))
		}
		if err != nil {
			return err
		}
	}
	close(x.began)
	if _, err := until(x.job.stdout, r, x.secret); err != nil {
		_ = x.stdin.Close() // the job is to end
		_, _ = until(io.Discard, r, x.secret)
		return err
	}
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	code, err := strconv.ParseUint(strings.TrimSpace(string(line)), 10, 8) // as much as a shell has: 256 would be 0 in the driver's exit code
	x.code = int(code)
	return err
}

// readMessages reads the standard error to the marker of its end, and gives sudo the password.
func (x *execution) readMessages() error {
	r := bufio.NewReaderSize(x.stream.stderr, bufferSize)
	if err := x.answer(r, x.stdin, &x.outside[1]); err != nil {
		return err
	}
	if _, err := until(x.job.stderr, r, x.secret); err != nil {
		_, _ = until(io.Discard, r, x.secret)
		return err
	}
	return nil
}

// answer gives sudo the password once. It returns nil when the command begins. What sudo prints goes to w.
func (x *execution) answer(r *bufio.Reader, stdin io.Writer, w io.Writer) error {
	for asked := false; ; asked = true {
		letter, err := until(w, r, x.public)
		switch {
		case err != nil || letter == markBegin:
			return err
		case asked:
			x.cancel(x.conn.sudoFailed("incorrect password")) // a second answer would count as another attempt
			x.close()
			return io.EOF
		}
		_, _ = io.WriteString(stdin, x.root.password+"\n")
	}
}

const bufferSize = 64 << 10

// until copies what comes before the marker, and returns the letter after it.
func until(w io.Writer, r *bufio.Reader, marker string) (letter byte, err error) {
	for kept := 0; ; {
		_, ended := r.Peek(kept + 1)
		data, _ := r.Peek(r.Buffered())
		before, _, found := bytes.Cut(data, []byte(marker))
		if kept = 0; !found && ended == nil { // perhaps it ends with the begin of a marker
			kept = overlap(data, marker)
			before = data[:len(data)-kept]
		}
		if _, err := w.Write(before); err != nil {
			return 0, fmt.Errorf("writing the output: %w", err)
		}
		_, _ = r.Discard(len(before)) // it is buffered
		switch {
		case found:
			_, _ = r.Discard(len(marker))
			return r.ReadByte()
		case ended != nil:
			return 0, ended
		}
	}
}

// overlap returns the length of the longest suffix of data that begins the marker.
func overlap(data []byte, marker string) int {
	for n := min(len(data), len(marker)-1); n > 0; n-- {
		if string(data[len(data)-n:]) == marker[:n] {
			return n
		}
	}
	return 0
}

// explain returns the error of a job that did not come to its end: what the shell or sudo printed instead, or a LostError.
func (x *execution) explain(err error) error {
	c, printed := x.conn, x.printed()
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("%s: %w", c.name, err)
	case x.hasBegun():
		return &LostError{c.name, errors.Join(x.lost, io.ErrUnexpectedEOF)}
	case x.root.sudo && (strings.Contains(printed, "sudo:") || x.code == 1), x.root.terminal:
		return c.sudoFailed(printed)
	case x.code == 0:
		return &LostError{c.name, errors.Join(err, x.lost)}
	}
	return c.refused(Shell, "check that the user has a login shell and that /bin/sh exists: getent passwd "+quote(c.User), "starting /bin/sh: exit code %d: %s", x.code, printed)
}

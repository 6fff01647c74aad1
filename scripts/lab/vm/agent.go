package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// answerTimeout limits one request to the guest agent. Each is short: commands run in
	// the background.
	answerTimeout = 20 * time.Second
	// pollInterval is the time between two looks at a running command.
	pollInterval = 300 * time.Millisecond
	// interruptGrace is the time that a command has to end after an interrupt.
	interruptGrace = 30 * time.Second
)

// agent talks to QEMU's guest agent: one JSON object per request and answer.
type agent struct {
	socket string

	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
	syns int
}

// errAgent is a request without an answer: the machine is booting, or hangs.
var errAgent = errors.New("no answer from the guest agent")

// call sends a request. A nil result is ignored.
func (a *agent) call(command string, arguments, result any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.connect(); err != nil {
		return fmt.Errorf("%w: %w", errAgent, err)
	}
	answer, err := a.ask(command, arguments)
	if err != nil {
		a.drop()
		return fmt.Errorf("%w: %s: %w", errAgent, command, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %s", command, answer.Error.Desc)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Return, result)
}

type agentAnswer struct {
	Return json.RawMessage
	Error  *struct{ Desc string }
}

func (a *agent) ask(command string, arguments any) (answer agentAnswer, err error) {
	request, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if err != nil {
		return answer, err
	}
	if err := a.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return answer, err
	}
	if _, err := a.conn.Write(append(request, '\n')); err != nil {
		return answer, err
	}
	line, err := a.in.ReadBytes('\n')
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(bytes.TrimLeft(line, "\xff"), &answer)
}

// connect opens the socket and discards answers to requests of earlier connections.
func (a *agent) connect() error {
	if a.conn != nil {
		return nil
	}
	conn, err := net.Dial("unix", a.socket)
	if err != nil {
		return err
	}
	a.conn, a.in = conn, bufio.NewReader(conn)
	a.syns++
	// The byte resets the agent's parser. The agent puts the same byte before its answer.
	if err = conn.SetDeadline(time.Now().Add(answerTimeout)); err == nil {
		_, err = conn.Write([]byte("\xff"))
	}
	if err == nil {
		_, err = fmt.Fprintf(conn, "{\"execute\":\"guest-sync-delimited\",\"arguments\":{\"id\":%d}}\n", a.syns)
	}
	for err == nil {
		var line []byte
		if _, err = a.in.ReadBytes(0xff); err != nil {
			break
		}
		if line, err = a.in.ReadBytes('\n'); err == nil && strings.Contains(string(line), fmt.Sprintf(`"return": %d}`, a.syns)) {
			return nil
		}
	}
	a.drop()
	return err
}

func (a *agent) drop() {
	if a.conn != nil {
		a.conn.Close()
		a.conn = nil
	}
}

func (a *agent) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop()
}

// environment is the environment of a root shell.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8",
}

// start runs a command in the background and returns its process ID.
func (a *agent) start(argv []string, stdin []byte) (pid int, err error) {
	arguments := map[string]any{"path": argv[0], "arg": argv[1:], "env": environment, "capture-output": true}
	if len(stdin) > 0 {
		arguments["input-data"] = stdin // JSON has bytes in base64
	}
	var started struct{ PID int }
	err = a.call("guest-exec", arguments, &started)
	return started.PID, err
}

// ended is the result of a command.
type ended struct {
	Exited       bool
	ExitCode     int    `json:"exitcode"`
	Signal       int    `json:"signal"`
	Out          []byte `json:"out-data"`
	Err          []byte `json:"err-data"`
	OutTruncated bool   `json:"out-truncated"`
}

// ExitError is a command that ended with another exit code than 0, or by a signal.
type ExitError struct{ Code, Signal int }

func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("ended by signal %d", e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Exec runs a command on the machine as root and waits for it. Its output comes when it ends.
// The error wraps an *ExitError if the command failed. When ctx is cancelled, the command gets
// SIGINT, as from Ctrl-C, and some time to end.
func (m *Machine) Exec(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, argv ...string) error {
	var input []byte
	if stdin != nil {
		var err error
		if input, err = io.ReadAll(stdin); err != nil {
			return err
		}
	}
	result, err := m.exec(ctx, input, argv)
	if _, failed := stdout.Write(result.Out); err == nil {
		err = failed
	}
	if _, failed := stderr.Write(result.Err); err == nil {
		err = failed
	}
	if err == nil && (result.ExitCode != 0 || result.Signal != 0) {
		err = &ExitError{result.ExitCode, result.Signal}
	}
	if err != nil {
		return fmt.Errorf("running %s on %s: %w", strings.Join(argv, " "), m.Name, err)
	}
	return nil
}

func (m *Machine) exec(ctx context.Context, stdin []byte, argv []string) (result ended, err error) {
	if m.agent == nil {
		return result, fmt.Errorf("%s was never switched on", m.Name)
	}
	// The agent looks in its own PATH.
	pid, err := m.agent.start(append([]string{"/usr/bin/env", "--chdir=/root", "--"}, argv...), stdin)
	if err != nil {
		return result, err
	}
	var late <-chan time.Time
	for end := ctx.Done(); !result.Exited; {
		select {
		case <-end:
			// The agent has the command's output only when it has ended.
			_, _ = m.agent.start([]string{"/usr/bin/env", "kill", "-INT", fmt.Sprint(pid)}, nil)
			end, late = nil, time.After(interruptGrace)
		case <-late:
			return result, context.Cause(ctx)
		case <-m.off:
			return result, errors.New("the machine was switched off")
		case <-time.After(pollInterval):
		}
		// A busy machine may miss an answer.
		if err = m.agent.call("guest-exec-status", map[string]any{"pid": pid}, &result); err != nil && !errors.Is(err, errAgent) {
			return result, err
		}
	}
	if late != nil {
		err = context.Cause(ctx)
	}
	return result, err
}

// Output is Exec without input. It returns the command's standard output. An error includes
// its standard error.
func (m *Machine) Output(ctx context.Context, argv ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := m.Exec(ctx, nil, &stdout, &stderr, argv...)
	if text := strings.TrimSpace(stderr.String()); err != nil && text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return stdout.String(), err
}

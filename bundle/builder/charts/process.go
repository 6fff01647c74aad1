package charts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"os/signal"
	"strings"
	"syscall"
	"time"

	kjson "sigs.k8s.io/json"

	"airlift/internal/childprocess"
	"airlift/internal/fault"
)

// A template is a program: it can run for ever, and it can use all memory. Go cannot end a template
// that runs. So each chart is loaded and rendered in a process of its own, which has a limit of
// memory and is killed when the context ends. It runs the same executable under this name. The
// process downloads nothing: it reports the archive that it needs. The parent downloads the archive
// and starts the process again.
const processName = "airlift: rendering a chart"

// Limits of the process. Large charts need a tenth of each.
const (
	maxMemory  = 1 << 30
	maxObjects = 128 << 20 // in bytes of JSON
	maxTime    = 10 * time.Minute
)

// A question is the input of the process, an answer its output.
type (
	question struct {
		Chart    Chart
		Archives map[string]sentArchive // by the key of Client.charts
	}
	sentArchive struct {
		Content       []byte
		From, Version string
	}
	answer struct {
		Rendering *Rendering
		Needed    *needed // or nil
		Message   string  // of the error, or empty
		Hint      string
		Code      fault.Code
	}
)

// needed is the error about an archive that the process does not have. For names what needs the
// archive.
type needed struct{ Repository, Chart, Version, For string }

func (n *needed) Error() string { return "chart " + n.Chart + " is needed" }

// init also makes the executable of a test the process.
func init() {
	if os.Args[0] == processName {
		os.Exit(answerQuestion(os.Stdin, os.Stdout))
	}
}

// answerQuestion is the main function of the process.
func answerQuestion(in io.Reader, out io.Writer) int {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // the parent gets them too, and ends this process
	var q question
	input := json.NewDecoder(in)
	var text json.RawMessage
	if input.Decode(&text) != nil || kjson.UnmarshalCaseSensitivePreserveInts(text, &q) != nil || limitMemory() != nil {
		return 1
	}
	go func() { // the input ends with the parent
		_, _ = io.Copy(io.Discard, in)
		os.Exit(1)
	}()
	c := Client{charts: map[string]archive{}}
	for key, a := range q.Archives {
		c.charts[key] = archive{a.Content, a.From, a.Version}
	}
	var a answer
	made, err := c.renderAlike(q.Chart)
	switch {
	case err == nil:
		a.Rendering = made
	case errors.As(err, &a.Needed):
		a.Needed.For = strings.TrimSuffix(err.Error(), a.Needed.Error())
	default:
		a.Message, a.Hint, a.Code = err.Error(), fault.Hint(err), fault.ExitCode(err)
	}
	if json.NewEncoder(out).Encode(a) != nil {
		return 1
	}
	return 0
}

// Render loads a chart with its dependencies and returns its objects. The same inputs give
// the same objects.
func (c *Client) Render(ctx context.Context, want Chart) (*Rendering, error) {
	q := question{want, map[string]sentArchive{}}
	for {
		a, err := ask(ctx, q)
		switch {
		case err != nil:
			return nil, err
		case a.Message != "":
			return nil, fault.New(a.Code, "%s", a.Message).Hint(a.Hint)
		case a.Needed == nil:
			return a.Rendering, nil
		}
		n := a.Needed
		got, err := c.download(ctx, n.Repository, n.Chart, n.Version)
		if err != nil {
			return nil, fmt.Errorf("%s%w", n.For, err)
		}
		q.Archives[keyOf(n.Repository, n.Chart, n.Version)] = sentArchive{got.content, got.from, got.version}
	}
}

func ask(parent context.Context, q question) (a answer, err error) {
	self, err := os.Executable()
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(parent, maxTime)
	defer cancel()
	cmd := childprocess.Command(ctx, self)
	cmd.Args = []string{processName}
	cmd.Env = []string{"GOTRACEBACK=none", fmt.Sprintf("GOMEMLIMIT=%d", maxMemory/4*3)} // no password is inherited
	out, problems := &bounded{left: maxObjects}, &beginning{left: 10000}
	cmd.Stdout, cmd.Stderr = out, problems
	in, err := cmd.StdinPipe()
	if err != nil {
		return a, err
	}
	if err = cmd.Start(); err == nil {
		go func() { _ = json.NewEncoder(in).Encode(q) }() // it fails if the process ends
		err = cmd.Wait()
	}
	switch {
	case parent.Err() != nil:
		return a, context.Cause(parent)
	case err != nil || out.left < 0:
		return a, explain(q.Chart, ctx.Err(), err, out.left < 0, problems.String())
	}
	return a, kjson.UnmarshalCaseSensitivePreserveInts(out.Bytes(), &a)
}

// explain returns the error for a process that ended without an answer.
func explain(want Chart, timeout, ended error, tooMuch bool, problems string) error {
	hint := "look for a loop in the chart's templates, and for a very large value: helm template --debug CHART"
	first, _, _ := strings.Cut(strings.TrimSpace(problems), "\n")
	switch {
	case timeout != nil:
		return fault.New(fault.Failure, "rendering chart %q takes more than %v", want.Name, maxTime).Hint(hint)
	case tooMuch:
		return fault.New(fault.Failure, "the objects of chart %q are larger than %d MiB", want.Name, maxObjects>>20).Hint(hint)
	case strings.Contains(problems, "out of memory"), strings.Contains(problems, "cannot allocate"), strings.Contains(problems, "stack overflow"):
		return fault.New(fault.Failure, "rendering chart %q needs more than %d MiB of memory", want.Name, maxMemory>>20).Hint(hint)
	}
	return fault.New(fault.Failure, "the process that renders chart %q ended: %w: %s", want.Name, ended, first).Hint(hint)
}

// bounded keeps what is written, up to a number of bytes.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("too much output")
	}
	return b.Buffer.Write(p)
}

// beginning keeps the first bytes that are written to it, and drops the rest.
type beginning struct {
	bytes.Buffer
	left int
}

func (b *beginning) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.Buffer.Write(p[:n])
	return len(p), nil
}

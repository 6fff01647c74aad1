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
		Archives []sent
	}
	sent struct {
		Wanted  wanted
		Archive archive
	}
	answer struct {
		Rendering *Rendering
		// Needed is an archive that the process does not have, or nil. NeededFor names what needs it.
		Needed    *wanted
		NeededFor string
		Message   string // of the error, or empty
		Hint      string
		Code      fault.Code
	}
)

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
	c := Client{charts: map[wanted]archive{}}
	for _, s := range q.Archives {
		c.charts[s.Wanted] = s.Archive
	}
	var a answer
	var needed wanted
	made, err := c.renderAlike(q.Chart)
	switch {
	case err == nil:
		a.Rendering = made
	case errors.As(err, &needed):
		a.Needed, a.NeededFor = &needed, strings.TrimSuffix(err.Error(), needed.Error())
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
	q := question{Chart: want}
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
		got, err := c.download(ctx, *a.Needed)
		if err != nil {
			return nil, fmt.Errorf("%s%w", a.NeededFor, err)
		}
		q.Archives = append(q.Archives, sent{*a.Needed, got})
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
	out, problems := &bounded{left: maxObjects, strict: true}, &bounded{left: 10000}
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
	case err != nil || out.cut:
		return a, explain(q.Chart, ctx.Err(), err, out.cut, problems.String())
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

// bounded keeps the first bytes that are written to it. It drops the rest, or fails if it is strict.
type bounded struct {
	bytes.Buffer
	left        int
	strict, cut bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.Buffer.Write(p[:n])
	if b.cut = b.cut || n < len(p); b.cut && b.strict {
		return n, errors.New("too much output")
	}
	return len(p), nil
}

// Package results runs the commands of a run that takes hours, and records what became of each.
// The run can be stopped and continued.
package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A Result is the last run of a command.
type Result struct {
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
}

func (r Result) String() string {
	if r.Seconds == 0 {
		return "not run"
	}
	word := "passed"
	if !r.Passed {
		word = "failed"
	}
	return fmt.Sprintf("%s, %.0f s", word, r.Seconds)
}

// A Record has results by name. Its directory also has each command's output.
type Record struct {
	dir     string
	results map[string]Result
}

const fileName = "results.json"

// Open reads the record in a directory. A directory without one gives an empty record.
func Open(dir string) (*Record, error) {
	r := &Record{dir: dir, results: map[string]Result{}}
	data, err := os.ReadFile(filepath.Join(dir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &r.results); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, fileName), err)
	}
	return r, nil
}

// Of is the result of a name, with zero time if there is none.
func (r *Record) Of(name string) Result { return r.results[name] }

// Run runs a command with its output in NAME.log and records its result. A command that fails is
// no error. An interrupt reaches the command, which removes its hosts, and records nothing.
func (r *Record) Run(ctx context.Context, name string, argv []string) (Result, error) {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return Result{}, err
	}
	started := time.Now()
	err := logged(ctx, filepath.Join(r.dir, name+".log"), argv)
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, err // it did not run
	}
	r.results[name] = Result{Passed: err == nil, Seconds: time.Since(started).Seconds()}
	data, err := json.MarshalIndent(r.results, "", "  ")
	if err != nil {
		return Result{}, err
	}
	return r.results[name], Replace(filepath.Join(r.dir, fileName), append(data, '\n'))
}

func logged(ctx context.Context, path string, argv []string) error {
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Stdout, c.Stderr = log, log
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 2 * time.Minute
	return c.Run()
}

// Replace writes a file as a whole or not at all.
func Replace(path string, data []byte) error {
	if err := os.WriteFile(path+".writing", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".writing", path)
}

// E2E is the command that runs a test of package e2e, given as for go test -run, with a bundle.
func E2E(test, bundle string) []string {
	return []string{"go", "test", "-tags", "e2e", "-count", "1", "-timeout", "40m", "-v", "-run", test, "./e2e", "-bundle", bundle}
}

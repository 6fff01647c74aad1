// Package results runs the commands of a run that takes hours, and records each result. The run can
// be stopped and continued, also on another machine: the records are part of the repository, in
// docs/results, and so is the page that each of them is the source of.
package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A Result is the last run of a command.
type Result struct {
	Passed   bool    `json:"passed"`
	Seconds  float64 `json:"seconds"`
	Date     string  `json:"date"`               // when it began, "2026-11-22"
	Revision string  `json:"revision,omitempty"` // the commit it ran at, as git describe prints it
}

func (r Result) String() string {
	if r.Date == "" {
		return "not run"
	}
	word := "passed"
	if !r.Passed {
		word = "failed"
	}
	return fmt.Sprintf("%s, %.0f s", word, r.Seconds)
}

// A Record has results by name.
type Record struct {
	file, logs string
	results    map[string]Result
}

// Open reads a record. A file that does not exist is an empty record. Each command's output goes
// to NAME.log below the directory logs.
func Open(file, logs string) (*Record, error) {
	r := &Record{file: file, logs: logs, results: map[string]Result{}}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &r.results); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return r, nil
}

// Of is the result of a name, without a date if there is none.
func (r *Record) Of(name string) Result { return r.results[name] }

// Run runs a command and records its result. A command that fails is not an error. An interrupt
// reaches the command, which removes its hosts, and records nothing.
func (r *Record) Run(ctx context.Context, name string, argv []string) (Result, error) {
	log := filepath.Join(r.logs, name+".log")
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return Result{}, err
	}
	started := time.Now()
	err := logged(ctx, log, argv)
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, err // it did not run
	}
	r.results[name] = Result{Passed: err == nil, Seconds: math.Round(10*time.Since(started).Seconds()) / 10,
		Date: started.Format(time.DateOnly), Revision: revision(ctx)}
	data, err := json.MarshalIndent(r.results, "", "  ")
	if err != nil {
		return Result{}, err
	}
	return r.results[name], Replace(r.file, append(data, '\n'))
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

// revision describes the checked out commit; "" outside a git repository.
func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Replace writes a file as a whole or not at all, and the directory it is in.
func Replace(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".writing", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".writing", path)
}

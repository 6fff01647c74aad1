package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/internal/fault"
	"airlift/scripts/live/results"
)

// A table is a page with the results of rows.
type table struct {
	only, steps         string // names, separated by commas; "" has all
	again               bool
	logs, results, page string
	rows                []row
	text                func(*results.Record) string // of the page
}

// A row is run step by step.
type row struct {
	name   string
	notRun string // why it cannot be run here
	steps  []step
	done   func() error // after the steps, or nil
}

// A step is a command. If it is the only one of its row, it needs no name.
type step struct {
	name   string
	needed bool   // by the next steps, which do not run if it fails
	file   string // if set, what the step writes: a step that passed is run again if it is gone
	argv   []string
}

// bind adds the flags of all tables. what names the rows: "versions".
func (t *table) bind(f *flag.FlagSet, what string) {
	f.StringVar(&t.only, "only", "", "only these `"+what+"`, separated by commas")
	f.BoolVar(&t.again, "again", false, "also run what passed")
	f.StringVar(&t.logs, "logs", "out/"+what, "the `directory` for logs")
	f.StringVar(&t.results, "results", "docs/results/"+what+".json", "the `file` with the results")
	f.StringVar(&t.page, "page", "docs/"+what+".md", "the `file` to write")
}

func list(flag string) []string {
	return slices.DeleteFunc(strings.Split(flag, ","), func(s string) bool { return s == "" })
}

// resultName is the name of a step's result, and of its log.
func resultName(row, step string) string { return strings.TrimSuffix(row+"/"+step, "/") }

// run runs the rows. A row that fails does not stop the others.
func (t *table) run(ctx context.Context) error {
	var names, steps, failed []string
	for _, r := range t.rows {
		names = append(names, r.name)
		for _, s := range r.steps {
			if !slices.Contains(steps, s.name) {
				steps = append(steps, s.name)
			}
		}
	}
	if err := known(t.only, "rows", names); err != nil {
		return err
	}
	if err := known(t.steps, "steps", steps); err != nil {
		return err
	}
	record, err := results.Open(t.results, t.logs)
	if err != nil {
		return err
	}
	if err := t.write(record); err != nil { // before hours of tests
		return err
	}
	for _, r := range t.rows {
		if t.only != "" && !slices.Contains(list(t.only), r.name) {
			continue
		}
		passed, err := t.runRow(ctx, r, record)
		if err != nil {
			return err
		}
		if !passed {
			failed = append(failed, r.name)
		}
	}
	if len(failed) > 0 {
		return fault.New(fault.Failure, "failed: %s", strings.Join(failed, ", ")).Hint("the logs are in " + t.logs)
	}
	return nil
}

// known returns an error if a flag names an unknown row or step.
func known(flag, what string, names []string) error {
	for _, name := range list(flag) {
		if !slices.Contains(names, name) {
			return fault.New(fault.Usage, "unknown %s %q", strings.TrimSuffix(what, "s"), name).Hint(what + ": " + strings.Join(names, ", "))
		}
	}
	return nil
}

// runRow runs the steps of a row, and reports whether all of them passed.
func (t *table) runRow(ctx context.Context, r row, record *results.Record) (bool, error) {
	if r.notRun != "" {
		fmt.Printf("%s: not run: %s\n", r.name, r.notRun)
		return true, nil
	}
	passed := true
	for _, s := range r.steps {
		if t.steps != "" && !slices.Contains(list(t.steps), s.name) {
			continue
		}
		name := resultName(r.name, s.name)
		if record.Of(name).Passed && !t.again && s.hasFile() {
			fmt.Printf("%s: passed before\n", name)
			continue
		}
		fmt.Printf("%s: running\n", name)
		result, err := record.Run(ctx, name, s.argv)
		if err != nil {
			return false, err
		}
		fmt.Printf("%s: %s\n", name, result)
		if err := t.write(record); err != nil {
			return false, err
		}
		passed = passed && result.Passed
		if s.needed && !result.Passed {
			break
		}
	}
	if r.done != nil {
		return passed, r.done()
	}
	return passed, nil
}

// hasFile reports whether the file that the step writes is there.
func (s step) hasFile() bool {
	if s.file == "" {
		return true
	}
	_, err := os.Stat(s.file)
	return err == nil
}

func (t *table) write(record *results.Record) error {
	return results.Replace(t.page, []byte(t.text(record)))
}

// e2e is the command that runs a test of package e2e with a bundle, given as for go test -run.
func e2e(test, bundle string) []string {
	return []string{"go", "test", "-tags", "e2e,grpcnotrace", "-count", "1", "-timeout", "40m", "-v", "-run", test, "./e2e", "-bundle", absolute(bundle)}
}

// absolute returns the path of a file for a command that runs in another directory.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

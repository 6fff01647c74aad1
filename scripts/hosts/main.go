// Hosts runs TestHosts of package e2e, each kind of host separately, and writes the results to
// docs/hosts.md. It can be stopped and continued: a row that passed is not run again.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"airlift/fault"
	"airlift/scripts/results"
)

func main() {
	var o options
	only := flag.String("only", "", "only these `rows`, separated by commas, such as firewalld")
	flag.BoolVar(&o.again, "again", false, "also run the rows that passed")
	flag.StringVar(&o.bundle, "bundle", "out/install", "the bundle `file`, as make bundle writes it")
	flag.StringVar(&o.logs, "logs", "out/hosts", "the `directory` for logs")
	flag.StringVar(&o.results, "results", "docs/results/hosts.json", "the `file` with the results")
	flag.StringVar(&o.page, "page", "docs/hosts.md", "the `file` to write")
	flag.Parse()
	o.only = slices.DeleteFunc(strings.Split(*only, ","), func(s string) bool { return s == "" })
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	rows, err := listRows(ctx)
	if err == nil {
		err = hosts(ctx, o, rows, results.E2E)
	}
	if err != nil && ctx.Err() != nil {
		err = fault.Wrap(err, fault.Interrupted, "run the same command again to continue")
	}
	stop()
	fault.Print(os.Stderr, err)
	os.Exit(int(fault.ExitCode(err)))
}

type options struct {
	only                        []string
	again                       bool
	bundle, logs, results, page string
}

// A row is one of TestHosts.
type row struct {
	Name, About string
	NotHere     string // why it cannot be run here
}

// listRows asks the test for its rows.
func listRows(ctx context.Context) ([]row, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-tags", "e2e,grpcnotrace", "-count", "1", "-v", "./e2e", "-args", "-list-hosts").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the rows of TestHosts: %w", err)
	}
	first, _, _ := strings.Cut(string(out), "\n") // then come go test's own lines
	var rows []row
	if err := json.Unmarshal([]byte(first), &rows); err != nil {
		return nil, fmt.Errorf("listing the rows of TestHosts: %w", err)
	}
	return rows, nil
}

// hosts runs the rows. A row that fails does not stop the others.
func hosts(ctx context.Context, o options, rows []row, command func(test, bundle string) []string) error {
	var names, failed []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return fault.New(fault.Usage, "unknown row %q", name).Hint("rows: " + strings.Join(names, ", "))
		}
	}
	bundle, err := filepath.Abs(o.bundle)
	if err != nil {
		return err
	}
	record, err := results.Open(o.results, o.logs)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if len(o.only) > 0 && !slices.Contains(o.only, r.Name) {
			continue
		}
		switch {
		case r.NotHere != "":
			fmt.Printf("%s: not run: %s\n", r.Name, r.NotHere)
			continue
		case record.Of(r.Name).Passed && !o.again:
			fmt.Printf("%s: passed before\n", r.Name)
			continue
		}
		fmt.Printf("%s: running\n", r.Name)
		result, err := record.Run(ctx, r.Name, command("^TestHosts$/^"+r.Name+"$", bundle))
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", r.Name, result)
		if !result.Passed {
			failed = append(failed, r.Name)
		}
		if err := writePage(o.page, rows, record); err != nil {
			return err
		}
	}
	if err := writePage(o.page, rows, record); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fault.New(fault.Failure, "failed: %s", strings.Join(failed, ", ")).Hint("the logs are in " + o.logs)
	}
	return nil
}

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"strings"

	"airlift/scripts/live/results"
)

// hosts runs TestHosts of package e2e, each kind of host separately.
func hosts(f *flag.FlagSet) func(context.Context) error {
	t := &table{}
	t.bind(f, "hosts")
	bundle := f.String("bundle", "out/install", "the bundle `file`, as make bundle writes it")
	return func(ctx context.Context) error {
		kinds, err := listHosts(ctx)
		if err != nil {
			return err
		}
		t.addHosts(kinds, func(test string) []string { return e2e(test, *bundle) })
		return t.run(ctx)
	}
}

// A hostKind is a row of TestHosts.
type hostKind struct {
	Name, About string
	NotHere     string // why it cannot be run here
}

// listHosts gets the list of rows from the test.
func listHosts(ctx context.Context) (kinds []hostKind, err error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-tags", "e2e,grpcnotrace", "-count", "1", "-v", "./e2e", "-args", "-list-hosts").Output()
	if err == nil {
		first, _, _ := strings.Cut(string(out), "\n") // then come go test's own lines
		err = json.Unmarshal([]byte(first), &kinds)
	}
	if err != nil {
		return nil, fmt.Errorf("listing the rows of TestHosts: %w", err)
	}
	return kinds, nil
}

// hostsPage is docs/hosts.md without the rows of its table, which replace the line ROWS.
//
//go:embed hosts.md
var hostsPage string

// addHosts adds a row for each kind of host, which command runs.
func (t *table) addHosts(kinds []hostKind, command func(test string) []string) {
	for _, k := range kinds {
		t.rows = append(t.rows, row{name: k.Name, notRun: k.NotHere, steps: []step{{argv: command("^TestHosts$/^" + k.Name + "$")}}})
	}
	t.text = func(record *results.Record) string {
		var rows strings.Builder
		for _, k := range kinds {
			result := record.Of(k.Name).String()
			if k.NotHere != "" {
				result = "not run: " + k.NotHere
			}
			rows.WriteString("| `" + k.Name + "` | " + k.About + " | " + result + " |\n")
		}
		return strings.Replace(hostsPage, "ROWS\n", rows.String(), 1)
	}
}

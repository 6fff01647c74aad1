// Versions takes Kubernetes versions through everything that the tests do with one: it builds the
// components and a bundle, runs the tests on isolated hosts with that bundle, and writes the
// results to docs/versions.md. It can be stopped and continued: a step that passed is not run
// again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"airlift/fault"
	"airlift/scripts/oracle"
	"airlift/scripts/results"
	"airlift/scripts/rig"
	"airlift/scripts/upstream/components"
)

func main() {
	only := flag.String("only", "", "only these `versions`, separated by commas, such as v1.36.3 or v1.36")
	steps := flag.String("steps", "", "only these `steps`, separated by commas")
	again := flag.Bool("again", false, "also run the steps that passed")
	remove := flag.Bool("remove", false, "remove a version's Kubernetes components and bundle when all of its steps have run")
	dir := flag.String("dir", "out/versions", "the `directory` for bundles and logs")
	record := flag.String("results", "docs/results/versions.json", "the `file` with the results")
	table := flag.String("table", "docs/versions.md", "the `file` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := versions(ctx, options{list(*only), list(*steps), *again, *remove, *dir, *record, *table}, allSteps)
	if err != nil && ctx.Err() != nil {
		err = fault.Wrap(err, fault.Interrupted, "run the same command again to continue")
	}
	stop()
	fault.Print(os.Stderr, err)
	os.Exit(int(fault.ExitCode(err)))
}

type options struct {
	only, steps   []string
	again, remove bool
	// dir has a directory for each version, with its logs and its bundle.
	dir, results, table string
}

func list(flag string) []string {
	return slices.DeleteFunc(strings.Split(flag, ","), func(s string) bool { return s == "" })
}

// A step is one column of the table. The steps are run in order.
type step struct {
	name    string // also the log's name
	heading string
	needed  bool // by the next steps, which do not run if it fails
	// file, if set, is what the step writes into the version's directory. A step that passed is
	// run again if it is gone.
	file string
	argv func(r components.Release, bundle string) []string
}

var allSteps = []step{
	{name: "components", heading: "components built", needed: true, argv: func(r components.Release, _ string) []string {
		return []string{"bin/upstream", "build", "--version", r.Kubernetes}
	}},
	{name: "oracle", heading: "files and objects as this kubeadm makes them", argv: func(r components.Release, _ string) []string {
		return []string{"env", rig.Variable + "=1", oracle.VersionsVariable + "=" + r.Kubernetes,
			"go", "test", "-count", "1", "-v", "-run", "Kubeadm", "./installer/pki", "./installer/render"}
	}},
	{name: "bundle", heading: "bundle built", needed: true, file: "install", argv: func(r components.Release, bundle string) []string {
		return []string{"go", "run", "./scripts/buildbundle", "--version", r.Kubernetes, "--compression", "fastest", "--output", bundle}
	}},
	{name: "cluster", heading: "init, worker, workload and DNS across hosts, reboot, reset", argv: e2e("TestCluster")},
	{name: "control-planes", heading: "control planes", argv: e2e("TestControlPlanes")},
	{name: "kubeadm", heading: "kubeadm joins and is joined, its output compared", argv: e2e("TestInterop")},
}

// e2e runs a test of package e2e.
func e2e(test string) func(components.Release, string) []string {
	return func(_ components.Release, bundle string) []string { return results.E2E("^"+test+"$", bundle) }
}

func versions(ctx context.Context, o options, steps []step) error {
	releases := components.Releases()
	if len(o.only) > 0 {
		releases = nil
		for _, v := range o.only {
			r, err := components.Find(v)
			if err != nil {
				return fault.Wrap(err, fault.Usage, "")
			}
			releases = append(releases, r)
		}
	}
	for _, name := range o.steps {
		var names []string
		for _, s := range steps {
			names = append(names, s.name)
		}
		if !slices.Contains(names, name) {
			return fault.New(fault.Usage, "unknown step %q", name).Hint("steps: " + strings.Join(names, ", "))
		}
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	record, err := results.Open(o.results, dir)
	if err != nil {
		return err
	}
	if err := writeTable(o.table, record, steps); err != nil { // before hours of tests
		return err
	}
	var failed []string
	for _, r := range releases {
		ok, err := one(ctx, o, steps, r, filepath.Join(dir, r.Kubernetes), record)
		if err != nil {
			return err
		}
		if !ok {
			failed = append(failed, r.Kubernetes)
		}
	}
	if len(failed) > 0 {
		return fault.New(fault.Failure, "failed: %s", strings.Join(failed, ", ")).Hint("the logs are in " + dir)
	}
	return nil
}

// one runs the steps of one version, and reports whether all of them passed.
func one(ctx context.Context, o options, steps []step, r components.Release, dir string, record *results.Record) (bool, error) {
	passed := true
	for _, s := range steps {
		if len(o.steps) > 0 && !slices.Contains(o.steps, s.name) {
			continue
		}
		name := resultName(r, s)
		if record.Of(name).Passed && !o.again && s.hasFile(dir) {
			fmt.Printf("%s %s: passed before\n", r.Kubernetes, s.name)
			continue
		}
		fmt.Printf("%s %s: running\n", r.Kubernetes, s.name)
		result, err := record.Run(ctx, name, s.argv(r, filepath.Join(dir, "install")))
		if err != nil {
			return false, err
		}
		fmt.Printf("%s %s: %s\n", r.Kubernetes, s.name, result)
		if err := writeTable(o.table, record, steps); err != nil {
			return false, err
		}
		if !result.Passed {
			passed = false
			if s.needed {
				break
			}
		}
	}
	if o.remove {
		return passed, removeComponents(r, dir)
	}
	return passed, nil
}

// hasFile reports whether the file that the step writes is there.
func (s step) hasFile(dir string) bool {
	if s.file == "" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, s.file))
	return err == nil
}

// resultName is the name of a step's result, and of its log.
func resultName(r components.Release, s step) string { return r.Kubernetes + "/" + s.name }

// removeComponents frees the disk: the components that only this version has, and its bundle.
func removeComponents(r components.Release, dir string) error {
	cache, err := components.CacheDir()
	if err != nil {
		return err
	}
	for _, recipe := range r.Recipes() {
		if recipe.Version == r.Kubernetes {
			if err := os.RemoveAll(recipe.Dir(cache)); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(filepath.Join(dir, "install")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

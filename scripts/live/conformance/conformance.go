// Package conformance runs upstream's own conformance tests, e2e.test, on a cluster of two isolated hosts:
// every [Conformance] test that is not [Serial]. The cluster is made by Airlift or by real
// kubeadm. The results go to docs/conformance.md. It can be stopped and continued: a test that
// passed is not run again.
package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"airlift/internal/fault"
	"airlift/scripts/lab"
	"airlift/scripts/oracle/upstream/components"
)

// perBatch is the number of tests in one call of ginkgo. Results are stored after each call, and at
// the end of each the machine waits for the slowest tests, which take minutes.
const perBatch = 110

type options struct {
	version, by, focus string
	processes          int
	keep, again        bool
	dir, results, page string
}

// Define adds the flags, and returns what runs the tests.
func Define(f *flag.FlagSet) func(context.Context) error {
	var o options
	f.StringVar(&o.version, "version", "v1.37.1", "Kubernetes `version`")
	f.StringVar(&o.by, "by", "airlift", "what makes the cluster: airlift, hardened (airlift with --profile hardened), load-balancer (airlift with this add-on) or kubeadm")
	f.StringVar(&o.focus, "focus", "", "only tests whose names match this regular `expression`")
	f.IntVar(&o.processes, "processes", 8, "the `number` of tests that run at the same time")
	f.BoolVar(&o.keep, "keep", false, "leave the hosts running (labctl down --name conformance-airlift removes them)")
	f.BoolVar(&o.again, "again", false, "also run the tests that passed")
	f.StringVar(&o.dir, "logs", "out/conformance", "the `directory` for logs")
	f.StringVar(&o.results, "results", "docs/results", "the `directory` for results")
	f.StringVar(&o.page, "page", "docs/conformance.md", "the `file` to write")
	return func(ctx context.Context) error { return run(ctx, o) }
}

func run(ctx context.Context, o options) error {
	release, err := components.Find(o.version)
	if err != nil {
		return fault.Wrap(err, fault.Usage, "")
	}
	focus, err := regexp.Compile(o.focus)
	if err != nil {
		return fault.Wrap(err, fault.Usage, "")
	}
	install, ok := installers[o.by]
	if !ok {
		return fault.New(fault.Usage, "unknown installer %q", o.by).Hint("use airlift, hardened, load-balancer or kubeadm")
	}
	e2e, err := components.Path(release.Kubernetes, "e2e.test")
	if err != nil {
		return err
	}
	all, err := listTests(ctx, e2e)
	if err != nil {
		return err
	}
	dir := filepath.Join(o.dir, release.Kubernetes+"-"+o.by)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	rec, err := readRecord(recordFile(o.results, release.Kubernetes, o.by))
	if err != nil {
		return err
	}
	if err := writePage(o.page, o.results); err != nil { // before hours of tests
		return err
	}
	selected := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return causes[name].notRun || !focus.MatchString(name) || rec.Tests[name].State == passed && !o.again
	})
	rec.Names = all
	fmt.Printf("%s by %s: %d conformance tests that are not serial, %d to run\n", release.Kubernetes, o.by, len(all), len(selected))
	if len(selected) == 0 {
		return nil
	}
	failed, err := runOnCluster(ctx, o, release, install, selected, dir, rec)
	if err != nil {
		return err
	}
	if failed > 0 {
		return fault.New(fault.Failure, "failed: %d of %d tests", failed, len(selected)).Hint("the logs are in " + dir)
	}
	return nil
}

// labName returns the name of the lab, always the same, so that the next run replaces kept hosts.
func labName(by string) string { return "conf-" + by }

// runOnCluster makes a cluster, runs the tests on it and removes it. It returns how many failed.
func runOnCluster(ctx context.Context, o options, release components.Release, install installer, tests []string, dir string, rec *record) (failed int, err error) {
	name := labName(o.by)
	if old, err := lab.Open(name); err == nil {
		if err := old.Down(ctx); err != nil {
			return 0, err
		}
	}
	c, err := startCluster(ctx, name, o.keep, release, install, dir)
	if c != nil && !o.keep {
		defer func() {
			// Also remove the hosts if ctx was cancelled.
			err = errors.Join(err, c.site.Down(context.Background()))
		}()
	}
	if err != nil {
		return 0, err
	}
	for batch := range slices.Chunk(tests, perBatch) {
		results, err := c.run(ctx, batch, o.processes, dir)
		rec.add(results)
		if err := errors.Join(rec.write(recordFile(o.results, release.Kubernetes, o.by)), writePage(o.page, o.results)); err != nil {
			return failed, err
		}
		if err != nil {
			return failed, err
		}
		for _, name := range batch {
			r, ran := results[name]
			if !ran {
				return failed, fmt.Errorf("e2e.test did not run %q, see %s", name, dir)
			}
			if r.State != passed {
				fmt.Printf("%s: %s: %s\n", r.State, name, r.Message)
			}
			if r.State == failing {
				failed++
			}
		}
	}
	counts, err := c.site.Escapes(ctx)
	if err != nil {
		return failed, err
	}
	fmt.Println(counts)
	return failed, nil
}

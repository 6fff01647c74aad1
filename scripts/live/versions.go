package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/live/results"
	"airlift/scripts/oracle"
	"airlift/scripts/oracle/upstream/components"
)

// versions takes Kubernetes versions through everything that the tests do with one: it builds the
// components and a bundle, and runs the tests on isolated hosts with that bundle.
func versions(f *flag.FlagSet) func(context.Context) error {
	t := &table{}
	t.bind(f, "versions")
	f.StringVar(&t.steps, "steps", "", "only these `steps`, separated by commas")
	remove := f.Bool("remove", false, "remove a version's Kubernetes components and bundle when all of its steps have run")
	return func(ctx context.Context) error {
		if err := t.addVersions(versionSteps, *remove); err != nil {
			return err
		}
		return t.run(ctx)
	}
}

// A versionStep is one column of the table. The steps are run in order.
type versionStep struct {
	name    string // also the log's name
	heading string
	needed  bool   // by the next steps
	file    string // what the step writes into the version's directory, or ""
	argv    func(r components.Release, bundle string) []string
}

var versionSteps = []versionStep{
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
	{name: "cluster", heading: "init, worker, workload and DNS across hosts, reboot, reset", argv: onHosts("TestCluster")},
	{name: "control-planes", heading: "control planes", argv: onHosts("TestControlPlanes")},
	{name: "kubeadm", heading: "kubeadm joins and is joined, its output compared", argv: onHosts("TestInterop")},
}

func onHosts(test string) func(components.Release, string) []string {
	return func(_ components.Release, bundle string) []string { return e2e("^"+test+"$", bundle) }
}

// addVersions adds a row for each release. The logs of a version and its bundle are in a
// subdirectory of the log directory.
func (t *table) addVersions(steps []versionStep, remove bool) error {
	var only []string
	for _, v := range list(t.only) {
		r, err := components.Find(v)
		if err != nil {
			return fault.Wrap(err, fault.Usage, "")
		}
		only = append(only, r.Kubernetes)
	}
	t.only = strings.Join(only, ",")
	for _, r := range components.Releases() {
		dir := absolute(filepath.Join(t.logs, r.Kubernetes))
		added := row{name: r.Kubernetes}
		for _, s := range steps {
			this := step{name: s.name, needed: s.needed, argv: s.argv(r, filepath.Join(dir, "install"))}
			if s.file != "" {
				this.file = filepath.Join(dir, s.file)
			}
			added.steps = append(added.steps, this)
		}
		if remove {
			added.done = func() error { return removeComponents(r, dir) }
		}
		t.rows = append(t.rows, added)
	}
	t.text = func(record *results.Record) string { return versionsText(record, steps) }
	return nil
}

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

var versionsPage = strings.ReplaceAll(`# Which Kubernetes versions were run?

'make versions' writes this page. It builds the real components of each version, compares
the files and objects of the packages pki and render with the output of its kubeadm,
builds a bundle, and runs the tests on isolated Debian hosts with it: 'TestCluster',
'TestControlPlanes' and 'TestInterop' of 'e2e'. Each cell has the result and the time of the
last run.

The conformance tests of Kubernetes are on [another page](conformance.md).

`, "'", "`")

// versionsText is docs/versions.md.
func versionsText(record *results.Record, steps []versionStep) string {
	var b strings.Builder
	b.WriteString(versionsPage)
	b.WriteString("| version |")
	for _, s := range steps {
		b.WriteString(" " + s.heading + " |")
	}
	b.WriteString(" modules of another patch |\n|" + strings.Repeat("---|", len(steps)+2) + "\n")
	for _, r := range components.Releases() {
		b.WriteString("| " + r.Kubernetes + " |")
		for _, s := range steps {
			b.WriteString(" " + record.Of(resultName(r.Kubernetes, s.name)).String() + " |")
		}
		var substitutes []string
		for module, version := range r.Substitutes() {
			substitutes = append(substitutes, module+" "+version)
		}
		slices.Sort(substitutes)
		b.WriteString(strings.TrimRight(" "+strings.Join(substitutes, ", "), " ") + " |\n")
	}
	return b.String()
}

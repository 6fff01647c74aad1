package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/oracle/upstream/components"
)

// A version that failed continues at the step that failed, and the page has all results.
func TestContinuesWhereItFailed(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	may, mayThird := filepath.Join(dir, "may"), filepath.Join(dir, "may-third")
	sh := func(script string) func(components.Release, string) []string {
		return func(r components.Release, _ string) []string { return []string{"sh", "-c", script, r.Kubernetes} }
	}
	steps := []versionStep{
		{name: "first", heading: "the first", needed: true, argv: sh("echo $0 first >>" + count)},
		{name: "second", heading: "the second", needed: true, argv: sh("echo $0 second >>" + count + "; test -e " + may)},
		{name: "third", heading: "the third", argv: sh("echo $0 third >>" + count + "; test -e " + mayThird)},
		{name: "last", heading: "the last", argv: sh("echo $0 last >>" + count)},
	}
	o := table{only: "v1.36", logs: filepath.Join(dir, "versions"), results: filepath.Join(dir, "versions.json"), page: filepath.Join(dir, "versions.md")}
	run := func() error {
		now := o
		if err := now.addVersions(steps, false); err != nil {
			return err
		}
		return now.run(t.Context())
	}
	expect := func(code fault.Code, ran, row string) {
		t.Helper()
		os.Remove(count)
		if err := run(); fault.ExitCode(err) != code {
			t.Errorf("exit code %d, want %d: %v", fault.ExitCode(err), code, err)
		}
		if text, _ := os.ReadFile(count); strings.ReplaceAll(string(text), "v1.36.3 ", "") != ran {
			t.Errorf("ran %q, want %q", text, ran)
		}
		page, err := os.ReadFile(o.page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), row) || !strings.Contains(string(page), "\n| v1.29.15 | not run | not run | not run | not run | |\n") {
			t.Errorf("%q is not in\n%s", row, page)
		}
	}
	expect(fault.Failure, "first\nsecond\n", "\n| v1.36.3 | passed, 0 s | failed, 0 s | not run | not run | |\n")
	if err := os.WriteFile(may, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	expect(fault.Failure, "second\nthird\nlast\n", "\n| v1.36.3 | passed, 0 s | passed, 0 s | failed, 0 s | passed, 0 s | |\n")
	if err := os.WriteFile(mayThird, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	expect(0, "third\n", "\n| v1.36.3 | passed, 0 s | passed, 0 s | passed, 0 s | passed, 0 s | |\n")
	// A file that was removed since is made again.
	steps[0].file = "made"
	expect(0, "first\n", "| v1.36.3 |")
	if err := os.WriteFile(filepath.Join(o.logs, "v1.36.3", "made"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	expect(0, "", "| v1.36.3 |")
	o.again = true
	expect(0, "first\nsecond\nthird\nlast\n", "| v1.36.3 |")
	o.steps = "fourth"
	if err := run(); fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "first, second, third, last") {
		t.Errorf("%v", err)
	}
}

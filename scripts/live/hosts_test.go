package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/internal/fault"
)

// A row that fails stops no other row. The next run continues with it, and the page has every row.
func TestContinuesWithWhatFailed(t *testing.T) {
	dir := t.TempDir()
	ran, may := filepath.Join(dir, "ran"), filepath.Join(dir, "may")
	command := func(test string) []string {
		return []string{"sh", "-c", `echo "$0" >>` + ran + `; test "$0" != '^TestHosts$/^bad$' || test -e ` + may, test}
	}
	kinds := []hostKind{{Name: "bad", About: "a bad host"}, {Name: "good", About: "a good host"}, {Name: "other", About: "another host", NotHere: "no such kernel"}}
	o := table{logs: filepath.Join(dir, "logs"), results: filepath.Join(dir, "results", "hosts.json"), page: filepath.Join(dir, "hosts.md")}
	run := func() error {
		now := o
		now.addHosts(kinds, command)
		return now.run(t.Context())
	}
	expect := func(code fault.Code, want string, lines ...string) {
		t.Helper()
		os.Remove(ran)
		if err := run(); fault.ExitCode(err) != code {
			t.Errorf("exit code %d, want %d: %v", fault.ExitCode(err), code, err)
		}
		if text, _ := os.ReadFile(ran); strings.NewReplacer("^TestHosts$/^", "", "$\n", " ").Replace(string(text)) != want {
			t.Errorf("ran %q, want %q", text, want)
		}
		page, err := os.ReadFile(o.page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range append(lines, "| `other` | another host | not run: no such kernel |\n\n") {
			if !strings.Contains(string(page), line) {
				t.Errorf("%q is not in\n%s", line, page)
			}
		}
	}
	o.only = "bad"
	expect(fault.Failure, "bad ", "| `bad` | a bad host | failed, 0 s |", "| `good` | a good host | not run |")
	o.only = ""
	expect(fault.Failure, "bad good ", "| `bad` | a bad host | failed, 0 s |", "| `good` | a good host | passed, 0 s |")
	if err := os.WriteFile(may, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	expect(0, "bad ", "| `bad` | a bad host | passed, 0 s |")
	o.again = true
	expect(0, "bad good ")
	o.only = "ugly"
	if err := run(); fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "bad, good, other") {
		t.Errorf("%v", err)
	}
}

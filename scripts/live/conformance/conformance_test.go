package conformance

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/lab"
)

func TestParseTests(t *testing.T) {
	names, err := parseTests([]byte(`
- testname: Pods, update
  codename: '[sig-node] Pods should be updated [NodeConformance]
    [Conformance]'
- codename: '[sig-apps] Daemon set [Serial] should rollback [Conformance]'
- codename: '[sig-apps] Deployment should scale [Conformance]'
`))
	want := []string{"[sig-apps] Deployment should scale [Conformance]", "[sig-node] Pods should be updated [NodeConformance] [Conformance]"}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v", names, err)
	}
}

// A lab can have the name of each cluster.
func TestLabName(t *testing.T) {
	for by := range installers {
		if err := lab.CheckName(labName(by)); err != nil {
			t.Errorf("%s: %v", by, err)
		}
	}
}

// The expression selects the given tests and no other, also none whose name has more after it.
func TestFocus(t *testing.T) {
	e := regexp.MustCompile(focus([]string{"[sig-a] one (of two) [Conformance]", "[sig-a] other [Conformance]"}))
	for name, want := range map[string]bool{
		"Kubernetes e2e suite [sig-a] one (of two) [Conformance]":            true,
		"Kubernetes e2e suite [sig-a] other [Conformance]":                   true,
		"Kubernetes e2e suite [sig-a] other [Conformance] [NodeConformance]": false,
		"Kubernetes e2e suite [sig-b] other [Conformance]":                   false,
	} {
		if e.MatchString(name) != want {
			t.Errorf("%s: selected: %v", name, !want)
		}
	}
}

// The report has each test of e2e.test, of which most are not in focus.
func TestParseReport(t *testing.T) {
	results, err := parseReport([]byte(`<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="8"><testsuite name="Kubernetes e2e suite">
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="2"></testcase>
<testcase name="[It] passes" status="passed" time="3.5"></testcase>
<testcase name="[It] fails" status="failed" time="61"><failure type="failed">timed out after 60s
more</failure><system-err>the log</system-err></testcase>
<testcase name="[It] panics" status="panicked" time="1"><failure type="panicked">index out of range</failure></testcase>
<testcase name="[It] not selected" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
<testcase name="[It] needs more" status="skipped" time="1"><skipped message="skipped - Requires 3 nodes"></skipped></testcase>
<testcase name="[It] stopped" status="interrupted" time="1"><failure type="interrupted">by a user</failure></testcase>
</testsuite></testsuites>`))
	want := map[string]result{
		"passes":     {State: passed, Seconds: 3.5},
		"fails":      {State: failing, Seconds: 61, Message: "timed out after 60s"},
		"panics":     {State: failing, Seconds: 1, Message: "index out of range"},
		"needs more": {State: skipped, Seconds: 1, Message: "Requires 3 nodes"},
	}
	if err != nil || !maps.Equal(results, want) {
		t.Errorf("%+v, %v", results, err)
	}
}

// A failure stays on the page when the test passes later, and the page has every version that ran.
func TestPage(t *testing.T) {
	const unbuilt = "[sig-api-machinery] Aggregator Should be able to support the 1.17 Sample API Server using the current Aggregator [Conformance]"
	dir := t.TempDir()
	write := func(by string, runs ...map[string]result) {
		t.Helper()
		where := recordFile(dir, "v1.37.1", by)
		rec, err := readRecord(where)
		if err != nil {
			t.Fatal(err)
		}
		rec.Names = []string{"a", "b|c", "d", "e", unbuilt}
		for _, r := range runs {
			rec.add(r)
		}
		if err := rec.write(where); err != nil {
			t.Fatal(err)
		}
	}
	write("airlift",
		map[string]result{"a": {State: passed, Seconds: 60}, "b|c": {State: failing, Seconds: 30}, "d": {State: skipped}},
		map[string]result{"b|c": {State: passed, Seconds: 60}})
	write("kubeadm", map[string]result{"b|c": {State: failing, Seconds: 30}})
	page := filepath.Join(dir, "page.md")
	if err := writePage(page, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"\n| v1.37.1 | Airlift | 5 | 2 | 0 | 1 | 2 | 2 min |\n",
		"\n| v1.37.1 | kubeadm | 5 | 0 | 1 | 0 | 4 | 0 min |\n",
		"\n| v1.37.1 | b\\|c | passed, failed before: 1 | – | – | failed once | |\n",
		"\n| v1.37.1 | d | skipped | – | – | not run | |\n",
		"\n| v1.37.1 | " + unbuilt + " | not run | – | – | not run | the rig does not build the image sample-apiserver:1.17.7 |\n",
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("%q is not in\n%s", row, text)
		}
	}
	if strings.Contains(string(text), "v1.29") {
		t.Errorf("a version that never ran is in\n%s", text)
	}
}

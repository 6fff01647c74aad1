package conformance

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	kubeconfig = "/root/admin.conf"
	reports    = "/root/reports"
)

// listTests returns the names of the conformance tests that are not serial, from the list in
// e2e.test.
func listTests(ctx context.Context, e2e string) ([]string, error) {
	out, err := exec.CommandContext(ctx, e2e, "--list-conformance-tests").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the conformance tests: %w", err)
	}
	return parseTests(out)
}

func parseTests(text []byte) ([]string, error) {
	var list []struct{ Codename string }
	if err := yaml.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("reading the list of conformance tests: %w", err)
	}
	var names []string
	for _, t := range list {
		if !strings.Contains(t.Codename, "[Serial]") {
			names = append(names, t.Codename)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// run runs tests in parallel, and returns the results of the tests that ran. A failed test is not
// an error.
func (c *cluster) run(ctx context.Context, tests []string, processes int, dir string) (map[string]result, error) {
	id := time.Now().UTC().Format("20060102T150405")
	log, err := os.Create(filepath.Join(dir, "e2e-"+id+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	report := reports + "/junit_" + id + "-01.xml"
	fmt.Printf("running %d tests, the log is %s\n", len(tests), log.Name())
	ran := c.tester.Exec(ctx, nil, log, log, "ginkgo", "--procs="+strconv.Itoa(processes), "--no-color", "--timeout=24h",
		"--grace-period=5s", // after an interrupt; the lab kills it after ten
		"--focus="+focus(tests), "/usr/local/bin/e2e.test", "--",
		"--kubeconfig="+kubeconfig, "--provider=skeleton", "--num-nodes=2", "--kubectl-path=/usr/local/bin/kubectl",
		"--report-dir="+reports, "--report-prefix="+id+"-", "--disable-log-dump")
	// After an interrupt, the report has the tests that ended before it.
	text, err := c.tester.Output(context.WithoutCancel(ctx), "cat", report)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("running the tests, see %s: %w", log.Name(), errors.Join(ran, err))
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(report)), []byte(text), 0o644); err != nil {
		return nil, err
	}
	results, err := parseReport([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Base(report), err)
	}
	if ctx.Err() != nil {
		// The interrupt may have failed the tests that ran.
		maps.DeleteFunc(results, func(_ string, r result) bool { return r.State != passed })
	}
	return results, ctx.Err()
}

// focus is the expression for exactly these tests. ginkgo matches it with the name of the suite
// and the name of a test.
func focus(tests []string) string {
	quoted := make([]string, len(tests))
	for i, t := range tests {
		quoted[i] = regexp.QuoteMeta(t)
	}
	return "(" + strings.Join(quoted, "|") + ")$"
}

type testCase struct {
	Name    string  `xml:"name,attr"`
	Status  string  `xml:"status,attr"`
	Time    float64 `xml:"time,attr"`
	Skipped struct {
		Message string `xml:"message,attr"`
	} `xml:"skipped"`
	Failure struct {
		Text string `xml:",chardata"`
	} `xml:"failure"`
}

// parseReport reads the results of the tests that ran from a JUnit report.
func parseReport(text []byte) (map[string]result, error) {
	var report struct {
		Suites []struct {
			Cases []testCase `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.NewDecoder(bytes.NewReader(text)).Decode(&report); err != nil {
		return nil, err
	}
	results := map[string]result{}
	for _, s := range report.Suites {
		for _, c := range s.Cases {
			name, isTest := strings.CutPrefix(c.Name, "[It] ")
			if !isTest {
				continue
			}
			r := result{Seconds: c.Time}
			switch c.Status {
			case "passed":
				r.State = passed
			case "failed", "panicked", "timedout":
				r.State = failing
				r.Message, _, _ = strings.Cut(strings.TrimSpace(c.Failure.Text), "\n")
			case "skipped":
				// A test that is not in focus has no reason.
				reason, given := strings.CutPrefix(c.Skipped.Message, "skipped - ")
				if !given {
					continue
				}
				r.State, r.Message = skipped, reason
			default:
				continue // it was interrupted
			}
			results[name] = r
		}
	}
	return results, nil
}

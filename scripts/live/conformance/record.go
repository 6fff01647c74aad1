package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/scripts/live/results"
)

// The states of a test that ran.
const (
	passed  = "passed"
	failing = "failed"
	skipped = "skipped"
)

// A result is the last run of a test.
type result struct {
	State    string  `json:"state"`
	Seconds  float64 `json:"seconds"`
	Message  string  `json:"message,omitempty"`  // of a test that did not pass: why
	Failures int     `json:"failures,omitempty"` // how often it failed, in all runs
}

// A record has the results of one Kubernetes version on clusters of one installer.
type record struct {
	Names []string          `json:"names"` // of all tests
	Tests map[string]result `json:"tests"` // by name
}

// recordFile is the file with the results of a version on the clusters of an installer.
func recordFile(dir, version, by string) string {
	return filepath.Join(dir, "conformance-"+version+"-"+by+".json")
}

// readRecord reads a file with results. A file that does not exist is an empty record.
func readRecord(file string) (*record, error) {
	r := &record{Tests: map[string]result{}}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return r, nil
}

func (r *record) add(results map[string]result) {
	for name, new := range results {
		new.Failures = r.Tests[name].Failures
		if new.State == failing {
			new.Failures++
		}
		r.Tests[name] = new
	}
}

func (r *record) write(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return results.Replace(file, append(data, '\n'))
}

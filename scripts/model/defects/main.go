// Command defects removes fixes from the source, one after the other, and fails if the model test passes
// without one of them. The source tree stays as it is.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const patches = "scripts/model/testdata/defects"

func main() {
	random := flag.Int("random", 0, "how many random sequences to try for each defect, after the one that finds it")
	flag.Parse()
	if err := run(*random, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "defects:", err)
		os.Exit(1)
	}
}

// run tests without the fixes of the defects with the numbers; of all if there are none.
func run(random int, numbers []string) error {
	list, err := filepath.Glob(patches + "/*.patch")
	if err != nil || len(list) == 0 {
		return fmt.Errorf("there is no patch in %s: run this command in the top directory", patches)
	}
	dir, err := os.MkdirTemp("", "defects-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var missed []string
	for _, patch := range list {
		number := strings.TrimSuffix(filepath.Base(patch), ".patch")
		if len(numbers) > 0 && !slices.Contains(numbers, number) {
			continue
		}
		test, err := build(patch, filepath.Join(dir, number))
		if err != nil {
			return fmt.Errorf("defect %s: %w", number, err)
		}
		found := play(test, "-test.run=TestFound/"+number+":")
		fmt.Printf("defect %s: %s\n", number, cmp.Or(found, "NOT FOUND"))
		if found == "" {
			missed = append(missed, number)
		}
		if random > 0 {
			found = play(test, "-test.run=TestSequences", fmt.Sprintf("-rapid.checks=%d", random), "-rapid.shrinktime=0s")
			fmt.Printf("defect %s: %s\n", number, cmp.Or(found, fmt.Sprintf("not in %d random sequences", random)))
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("the model test does not find defect %s", strings.Join(missed, ", "))
	}
	return nil
}

// build compiles the model test with a patch in a directory, and returns its path.
func build(patch, dir string) (test string, err error) {
	replace := map[string]string{}
	names, err := exec.Command("git", "apply", "--numstat", patch).Output()
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", patch, err)
	}
	for line := range strings.Lines(string(names)) {
		name := strings.Fields(line)[2]
		data, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		copied := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(copied, data, 0o600); err != nil {
			return "", err
		}
		replace[name] = copied
	}
	absolute, err := filepath.Abs(patch)
	if err != nil {
		return "", err
	}
	apply := exec.Command("git", "apply", absolute)
	apply.Dir = dir
	if out, err := apply.CombinedOutput(); err != nil {
		return "", fmt.Errorf("applying %s: %w: %s", patch, err, out)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", err
	}
	test = filepath.Join(dir, "model.test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-tags", "grpcnotrace", "-overlay", file, "-o", test, "./scripts/model").CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the model test: %w: %s", err, out)
	}
	return test, nil
}

var findings = regexp.MustCompile(`failed after \d+ tests?|(?m)^ *violation: .*`)

// play runs a test, and returns what it finds; "" if it finds nothing.
func play(test string, args ...string) string {
	cmd := exec.Command(test, args...)
	cmd.Dir = "scripts/model"
	cmd.Env = append(os.Environ(), "AIRLIFT_RIG=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	return strings.Join(strings.Fields(strings.Join(findings.FindAllString(string(out), 2), ": ")), " ")
}

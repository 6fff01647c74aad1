package model

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDefectsPage: docs/defects.md has each patch and each sequence of found, and the tests that it names exist.
func TestDefectsPage(t *testing.T) {
	top := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(top, "docs/defects.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("`go run ./scripts/model/defects ([0-9]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[1])
	}
	patches, err := filepath.Glob("testdata/defects/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatal("there are no patches", err)
	}
	for i, p := range patches {
		check := exec.Command("/usr/bin/git", "apply", "--check", filepath.Join("scripts/model/testdata/defects", filepath.Base(p)))
		check.Dir = top
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("make model cannot bring defect %s back: %v\n%s", filepath.Base(p), err, out)
		}
		patches[i] = strings.TrimSuffix(filepath.Base(p), ".patch")
	}
	var sequences []string
	for _, f := range found {
		number, _, _ := strings.Cut(f.name, ":")
		sequences = append(sequences, number)
	}
	if !slices.Equal(listed, patches) || !slices.Equal(listed, sequences) {
		t.Errorf("the page has the defects %q, there are patches of %q and sequences of %q", listed, patches, sequences)
	}
	for _, m := range regexp.MustCompile("`go test -run ([A-Za-z]+) (?:-tags e2e )?\\./([a-z0-9/]+)`").FindAllStringSubmatch(string(page), -1) {
		files, _ := filepath.Glob(filepath.Join(top, m[2], "*_test.go"))
		if !slices.ContainsFunc(files, func(file string) bool {
			text, _ := os.ReadFile(file)
			return strings.Contains(string(text), "func "+m[1]+"(")
		}) {
			t.Errorf("./%s has no test %s", m[2], m[1])
		}
	}
}

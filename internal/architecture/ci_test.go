package architecture

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// .ci/run names the tests that it runs on hosts. A name that no test has would select nothing,
// without an error.
func TestNamesInCIExist(t *testing.T) {
	script, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	entries, err := os.ReadDir("e2e")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		code, err := os.ReadFile("e2e/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(code), -1) {
			tests[m[1]] = true
		}
	}
	lists := regexp.MustCompile(`(?m)^(oldest|newest)='(.*)'$`).FindAllStringSubmatch(string(script), -1)
	if len(lists) != 2 {
		t.Fatalf("%d lists of tests in .ci/run, want 2", len(lists))
	}
	for _, list := range lists {
		for name := range strings.SplitSeq(list[2], "|") {
			if !tests[name] {
				t.Errorf(".ci/run: %s: e2e has no test %s", list[1], name)
			}
		}
	}
}

// A test that uses rapid gets its seed from AIRLIFT_SEED, which .ci/run sets.
func TestGeneratedInputsHaveASeed(t *testing.T) {
	const seed = "airlift/scripts/fixtures/seed"
	found := 0
	for _, p := range list(t) {
		imports := slices.Concat(p.TestImports, p.XTestImports)
		if !slices.Contains(imports, "pgregory.net/rapid") {
			continue
		}
		found++
		if !slices.Contains(imports, seed) {
			t.Errorf("the tests of %s use rapid and do not import %s", p.ImportPath, seed)
		}
	}
	if found < 10 {
		t.Errorf("%d packages with tests that use rapid", found)
	}
}

package adoption_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"airlift/installer/adoption"
)

// section returns the part of docs/adopt.md below a heading.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/adopt.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("the document has no heading %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// rows returns the cells of a table's rows, without the heading.
func rows(text string) (list [][]string) {
	for line := range strings.Lines(text) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|---") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			list = append(list, cells)
		}
	}
	return list[1:]
}

// TestDocumentedMakers compares the tables of makers with the code's, mark by mark.
func TestDocumentedMakers(t *testing.T) {
	documented := map[string][]string{}
	for heading, adopted := range map[string]bool{"Recognised": true, "Refused: other tools": false} {
		for _, row := range rows(section(t, heading)) {
			name, _, _ := strings.Cut(row[0], ",")
			if slices.Contains(adoption.Makers(), name) != adopted {
				t.Errorf("%s is in the table %q", name, heading)
			}
			if name != adoption.Kubeadm {
				documented[name] = strings.Split(strings.ReplaceAll(row[1], "`", ""), "; ")
			}
		}
	}
	want := adoption.Marks()
	if is, want := slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(want)); !slices.Equal(is, want) {
		t.Errorf("the document has %q, want %q", is, want)
	}
	for maker, marks := range want {
		if is, want := slices.Sorted(slices.Values(documented[maker])), slices.Sorted(slices.Values(marks)); !slices.Equal(is, want) {
			t.Errorf("%s: the document has\n%q, want\n%q", maker, is, want)
		}
	}
}

// reported returns the names that the source code reports with a method, or with a row of the table, a function of the same name.
func reported(t *testing.T, method string) (names []string) {
	t.Helper()
	sources, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		if !strings.HasSuffix(s.Name(), ".go") || strings.HasSuffix(s.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), s.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			called, _ := call.Fun.(*ast.Ident)
			if s, ok := call.Fun.(*ast.SelectorExpr); ok {
				called = s.Sel
			}
			if called != nil && called.Name == method {
				if name, ok := call.Args[0].(*ast.BasicLit); ok {
					text, _ := strconv.Unquote(name.Value)
					names = append(names, text)
				}
			}
			return true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestDocumentedNames compares the names of refusals and findings with the document.
func TestDocumentedNames(t *testing.T) {
	code := regexp.MustCompile("`([A-Z][A-Za-z0-9]+)`")
	for heading, method := range map[string]string{"Refused: this node": "refuse", "Found, with what an upgrade does": "find"} {
		var documented []string
		for _, row := range rows(section(t, heading)) {
			for _, m := range code.FindAllStringSubmatch(row[0], -1) {
				documented = append(documented, m[1])
			}
		}
		slices.Sort(documented)
		if want := reported(t, method); !slices.Equal(documented, want) {
			t.Errorf("%s: the document has\n%q, want\n%q", heading, documented, want)
		}
	}
}

// TestDocumentedFailures compares the table of reported failures with the tests.
func TestDocumentedFailures(t *testing.T) {
	var want []string
	for _, f := range failures {
		row := fmt.Sprintf("| %s | `%s`", f.issue, f.name)
		if f.refused {
			row += ", refused"
		}
		want = append(want, row+" |")
	}
	var is []string
	for line := range strings.Lines(section(t, "Failures that others reported")) {
		if strings.Contains(line, "#") {
			is = append(is, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(is, want) {
		t.Errorf("the document has\n%s, want\n%s", strings.Join(is, "\n"), strings.Join(want, "\n"))
	}
}

package adoption_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wordsOf are the numbers of words of the items that a finder has, as far as the source shows them.
func wordsOf(finder ast.Node, functions map[string]*ast.FuncDecl) (counts []int) {
	ast.Inspect(finder, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if f := functions[n.Name]; f != nil && f.Type.Results != nil && len(f.Type.Params.List) > 0 && finder == ast.Node(n) {
				counts = append(counts, wordsOf(f.Body, functions)...)
			}
		case *ast.CallExpr:
			called, _ := n.Fun.(*ast.Ident)
			switch {
			case called == nil:
			case called.Name == "when":
				counts = append(counts, 0)
				return false
			case called.Name == "word" || called.Name == "each":
				counts = append(counts, 1)
				return false
			case called.Name == "given":
				counts = append(counts, len(n.Args)-1)
			case called.Name == "single":
				counts = append(counts, len(n.Args))
			case called.Name == "append":
				for _, arg := range n.Args[1:] {
					if c, ok := arg.(*ast.CompositeLit); ok {
						counts = append(counts, len(c.Elts))
					}
				}
			case functions[called.Name] != nil:
				counts = append(counts, wordsOf(called, functions)...)
			}
		case *ast.CompositeLit:
			if a, ok := n.Type.(*ast.ArrayType); ok && a.Len == nil {
				if inner, ok := a.Elt.(*ast.ArrayType); ok && inner.Len == nil { // [][]string{{…}}
					for _, one := range n.Elts {
						counts = append(counts, len(one.(*ast.CompositeLit).Elts))
					}
				}
			}
		}
		return true
	})
	return counts
}

// TestWordsOfRows: a text of a row of the table has only words that each of its items has, or that each node has.
func TestWordsOfRows(t *testing.T) {
	sources, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	functions := map[string]*ast.FuncDecl{}
	var names []string // of words that each node has
	for _, entry := range sources {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		for _, d := range f.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil {
				functions[f.Name.Name] = f
			}
			if ok && f.Recv != nil && f.Name.Name == "word" {
				ast.Inspect(f, func(n ast.Node) bool {
					if c, ok := n.(*ast.CaseClause); ok {
						for _, e := range c.List {
							name, _ := strconv.Unquote(e.(*ast.BasicLit).Value)
							names = append(names, name)
						}
					}
					return true
				})
			}
		}
	}
	for _, helper := range []string{"given", "single", "per", "when", "word", "each", "find", "refuse", "row"} {
		delete(functions, helper)
	}
	rows := 0
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			called, ok := call.Fun.(*ast.Ident)
			if !ok || called.Name != "find" && called.Name != "refuse" {
				return true
			}
			rows++
			counts := wordsOf(call.Args[2], functions)
			for _, text := range call.Args[3:] {
				ast.Inspect(text, func(n ast.Node) bool {
					lit, ok := n.(*ast.BasicLit)
					if !ok {
						return true
					}
					text, _ := strconv.Unquote(lit.Value)
					os.Expand(text, func(name string) string {
						number, err := strconv.Atoi(name)
						if err != nil && !slices.Contains(names, name) {
							t.Errorf("%s: no node has a word $%s: %q", call.Args[0].(*ast.BasicLit).Value, name, text)
						}
						if err == nil && len(counts) > 0 && slices.Min(counts) < number {
							t.Errorf("%s: an item has %d words: %q", call.Args[0].(*ast.BasicLit).Value, slices.Min(counts), text)
						}
						if err == nil && len(counts) == 0 {
							t.Errorf("%s: the words of its items are not known: %q", call.Args[0].(*ast.BasicLit).Value, text)
						}
						return ""
					})
					return true
				})
			}
			return true
		})
	}
	if rows < 80 || len(names) < 5 {
		t.Errorf("%d rows and %d words", rows, len(names))
	}
}

// Command mutants changes one line of a package at a time, runs the tests of the package, and prints which changes they notice. The
// source tree stays as it is. The same seed tries the same changes of the same source.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// defaults are the packages whose changes are tried: those that decide what happens to a cluster.
var defaults = []string{"./installer/flow/...", "./installer/revision", "./installer/reconfiguration", "./installer/endpoint/...", "./installer/registry/...", "./images/store", "./installer/multihost/..."}

func main() {
	seed, count := flag.Int64("seed", 1, "draws the changes"), flag.Int("count", 150, "how many changes to try")
	model := flag.Bool("model", false, "run also the model test if the tests of the package notice nothing")
	limit := flag.Duration("limit", 5*time.Minute, "how long the tests of one change may take")
	flag.Parse()
	if err := run(*seed, *count, *model, *limit, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// A mutant is a change of a file: the bytes from start to end become text.
type mutant struct {
	pkg, file  string
	line       int
	start, end int
	text       string
}

func (m mutant) String() string { return fmt.Sprintf("%s:%d", m.file, m.line) }

func run(seed int64, count int, model bool, limit time.Duration, patterns []string) error {
	if len(patterns) == 0 {
		patterns = defaults
	}
	out, err := exec.Command("go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}"}, patterns...)...).Output()
	if err != nil {
		return fmt.Errorf("listing packages: %w", err)
	}
	top, err := os.Getwd()
	if err != nil {
		return err
	}
	draw := rand.New(rand.NewSource(seed))
	var queues [][]mutant // one for each package
	for _, dir := range strings.Fields(string(out)) {
		pkg, err := filepath.Rel(top, dir)
		if err != nil {
			return err
		}
		found, err := mutants(pkg)
		if err != nil {
			return err
		}
		draw.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
		if len(found) > 0 {
			queues = append(queues, found)
		}
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	noticed, tried := map[string]int{}, map[string]int{}
	var survivors []string
	for left := count; left > 0 && len(queues) > 0; {
		draw.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
		for i := range queues {
			if left == 0 {
				break
			}
			m := queues[i][0]
			queues[i] = queues[i][1:]
			verdict, shown, err := try(m, filepath.Join(dir, "mutant"), model, limit)
			if err != nil {
				return err
			}
			if verdict == notCompiled {
				continue
			}
			left--
			tried[m.pkg]++
			if verdict == survived {
				survivors = append(survivors, m.String()+": "+shown)
			} else {
				noticed[m.pkg]++
			}
			fmt.Printf("%-9s %s: %s\n", verdict, m, shown)
		}
		queues = slices.DeleteFunc(queues, func(q []mutant) bool { return len(q) == 0 })
	}
	fmt.Printf("\n%-40s %8s %8s\n", "package", "noticed", "of")
	total := 0
	for _, pkg := range slices.Sorted(maps.Keys(tried)) {
		fmt.Printf("%-40s %8d %8d\n", pkg, noticed[pkg], tried[pkg])
		total += noticed[pkg]
	}
	fmt.Printf("\nseed %d: %d of %d changes were noticed; these were not:\n%s\n", seed, total, total+len(survivors), strings.Join(slices.Sorted(slices.Values(survivors)), "\n"))
	return nil
}

// mutants returns all changes of a package.
func mutants(pkg string) (list []mutant, err error) {
	files, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		add := func(from, to token.Pos, text string) {
			at, end := set.Position(from), set.Position(to).Offset
			list = append(list, mutant{pkg, file, at.Line, at.Offset, end, strings.Replace(text, present, string(source[at.Offset:end]), 1)})
		}
		ast.Inspect(tree, func(n ast.Node) bool { change(n, add); return true })
	}
	return list, nil
}

// swapped are operators that take the place of others.
var swapped = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD,
}

// present stands for the text that is replaced.
const present = "\x00"

// change adds the changes of a node.
func change(n ast.Node, add func(from, to token.Pos, text string)) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if op, ok := swapped[n.Op]; ok {
			add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), op.String())
		}
	case *ast.IfStmt:
		add(n.Cond.Pos(), n.Cond.End(), "!("+present+")")
		add(n.Cond.Pos(), n.Cond.End(), "false")
	case *ast.ReturnStmt:
		if len(n.Results) == 0 {
			return
		}
		last := n.Results[len(n.Results)-1]
		if id, ok := last.(*ast.Ident); ok && id.Name == "err" {
			add(last.Pos(), last.End(), "nil")
		}
	case *ast.BranchStmt:
		if other := map[token.Token]string{token.CONTINUE: "break", token.BREAK: "continue"}[n.Tok]; other != "" && n.Label == nil {
			add(n.Pos(), n.End(), other)
		}
	case *ast.ExprStmt:
		if _, ok := n.X.(*ast.CallExpr); ok {
			add(n.Pos(), n.End(), "")
		}
	case *ast.DeferStmt:
		add(n.Pos(), n.End(), "")
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			add(n.Pos(), n.End(), other)
		}
	case *ast.BasicLit:
		if other := map[string]string{"0": "1", "1": "2"}[n.Value]; n.Kind == token.INT && other != "" {
			add(n.Pos(), n.End(), other)
		}
	}
}

// Verdicts about a change.
const notCompiled, survived, seen = "", "survived", "noticed"

// try runs tests with a change. shown is the changed line.
func try(m mutant, dir string, model bool, limit time.Duration) (verdict, shown string, err error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", "", err
	}
	changed := string(text[:m.start]) + m.text + string(text[m.end:])
	end := m.start + len(m.text)
	from, to := strings.LastIndexByte(changed[:m.start], '\n')+1, strings.IndexByte(changed[end:], '\n')+end
	shown = cmp.Or(strings.TrimSpace(changed[from:to]), "(nothing)")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	file, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	absolute, err := filepath.Abs(m.file)
	if err != nil {
		return "", "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{absolute: file}})
	if err != nil {
		return "", "", err
	}
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		return "", "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", "", err
	}
	tests := [][]string{{"./" + m.pkg}}
	if model {
		tests = append(tests, []string{"./scripts/model"})
	}
	for _, packages := range tests {
		args := append([]string{"test", "-tags", "grpcnotrace", "-vet=off", "-failfast", "-overlay", overlay, "-timeout", limit.String()}, packages...)
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "AIRLIFT_SEED=1")
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
		case strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
			return notCompiled, shown, nil
		default:
			return seen, shown, nil
		}
	}
	return survived, shown, nil
}

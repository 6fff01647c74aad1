package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// sources are the directories with the texts of bundle and install.
var sources = []string{"bundle", "cmd", "documents", "fault", "images", "installer", "interrupt", "progress"}

// Hints lists the calls of bundle and install that texts in the product's source name, and the hints.
func Hints(root string) (calls []Call, hints []Hint, err error) {
	files := token.NewFileSet()
	for _, dir := range sources {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					hints = append(hints, hintsOf(call, files.Position(call.Pos()))...)
				}
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				text, isText := textOf(e)
				if isText {
					p := files.Position(n.Pos())
					calls = append(calls, callsIn(fmt.Sprintf("%s:%d", p.Filename, p.Line), text)...)
				}
				return !isText
			})
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	for _, h := range hints {
		if strings.HasPrefix(h.Text, "bundle ") {
			calls = append(calls, callsIn(h.Page, "'"+h.Text)...)
		}
	}
	return calls, hints, nil
}

// A Hint is the hint of an error in the source.
type Hint struct {
	Page string // file and line
	Text string
}

// hintsOf returns the hint that a call of fault.Wrap, or of Hint of a fault, has.
func hintsOf(call *ast.CallExpr, at token.Position) []Hint {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	n := len(call.Args) - 1
	x, _ := f.X.(*ast.Ident)
	switch {
	case f.Sel.Name == "Wrap" && x != nil && x.Name == "fault" && n == 2:
	case f.Sel.Name == "Hint" && x == nil && n == 0: // not fault.Hint(err)
	default:
		return nil
	}
	text, _ := textOf(call.Args[n])
	return []Hint{{fmt.Sprintf("%s:%d", at.Filename, at.Line), text}}
}

// placeholder stands for a part of a text that is not in the source.
const placeholder = "X"

var verb = regexp.MustCompile(`%(\[\d+\])?[-+#0]*\d*[sqdvxwt]`)

// textOf returns the text of an expression, if a part of it is in the source.
func textOf(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return verb.ReplaceAllString(text, placeholder), e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, ok := textOf(e.X)
		right, also := textOf(e.Y)
		return left + right, e.Op == token.ADD && (ok || also)
	}
	return placeholder, false
}

// called matches a call of install, or of bundle in quotes, up to its end.
var called = regexp.MustCompile(`(?m)(?:\./(install)|['"(](bundle))((?: [^\s|;>&#,'"` + "`" + `()…]+)+)`)

func callsIn(page, text string) (calls []Call) {
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		var args []string
		for _, word := range strings.Fields(m[3]) {
			args = append(args, strings.TrimRight(word, ".:"))
			if strings.HasSuffix(word, ".") || strings.HasSuffix(word, ":") {
				break
			}
		}
		calls = append(calls, Call{page, m[1] + m[2], args})
	}
	return calls
}

// anotherTool matches a call of a tool that is not Airlift's, up to its end.
var (
	anotherTool = regexp.MustCompile(`\b(ctr|helm|kubectl|kubeadm|systemctl)( [^;"']+)+`)
	flagName    = regexp.MustCompile(`(?:^|[ '"(=])--([a-z][a-z0-9-]+)`)
)

// Flags returns the flags of Airlift's commands that a hint names.
func (h Hint) Flags() (flags []string) {
	for _, m := range flagName.FindAllStringSubmatch(anotherTool.ReplaceAllString(h.Text, ""), -1) {
		if m[1] != "help" {
			flags = append(flags, m[1])
		}
	}
	return flags
}

package airlift

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fileWrites are the functions of package os that change files.
var fileWrites = []string{"Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "Lchown", "Link", "Mkdir", "MkdirAll",
	"MkdirTemp", "OpenFile", "Remove", "RemoveAll", "Rename", "Symlink", "Truncate", "WriteFile"}

// mayWrite lists the exceptions: the functions that a package of the installer
// may call although it is not installer/host.
var mayWrite = map[string][]string{
	"installer/preflight": {"OpenFile"}, // to check whether a sysctl can be written
}

// Package host checks the directories on a path before it writes, and records
// the write in the ledger. So all other packages of the installer use it.
func TestOnlyHostWritesFiles(t *testing.T) {
	for _, p := range list(t) {
		dir := strings.TrimPrefix(p.ImportPath, "airlift/")
		if dir != "cmd/install" && !strings.HasPrefix(dir, "installer/") || dir == "installer/host" {
			continue
		}
		for _, name := range p.GoFiles {
			for _, call := range osCalls(t, path.Join(dir, name)) {
				if slices.Contains(fileWrites, call) && !slices.Contains(mayWrite[dir], call) {
					t.Errorf("%s calls os.%s: files are written with package installer/host", path.Join(dir, name), call)
				}
			}
		}
	}
}

// osCalls returns the functions of package os that a file uses.
func osCalls(t *testing.T, name string) (functions []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	local := ""
	for _, i := range file.Imports {
		if imported, _ := strconv.Unquote(i.Path.Value); imported == "os" {
			local = "os"
			if i.Name != nil {
				local = i.Name.Name
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && local != "" {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
				functions = append(functions, s.Sel.Name)
			}
		}
		return true
	})
	return functions
}

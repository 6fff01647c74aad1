package architecture

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

// unrecordedWrites are the functions of package filesystem that change files of a host, and record
// nothing in the ledger.
var unrecordedWrites = []string{"Copy", "Move", "OpenPartial", "RemovePartial", "ReopenPartial", "RepairPartial", "Replace", "ReplaceFor", "ReplaceLink", "SaveAside", "Stage"}

// isOnHost reports whether the code of a directory runs on hosts. Of a cluster's driver, only the agent does.
func isOnHost(dir string) bool {
	return dir == "cmd/install" || strings.HasPrefix(dir, "installer/") && (!in(dir, "installer/multihost") || in(dir, "installer/multihost/agent"))
}

// mayWrite lists the exceptions: the functions that a package of the installer
// may call although it is neither installer/host nor installer/host/filesystem.
var mayWrite = map[string][]string{
	"installer/preflight":         {"OpenFile"},  // to check whether a sysctl can be written
	"installer/host/detection":    {"OpenFile"},  // the same
	"installer/host/kernel":       {"WriteFile"}, // sysctls
	"installer/host/uninstall":    {"Chmod", "Chown", "MkdirAll", "Move", "Remove", "SaveAside"},
	"installer/host/ledger":       {"Replace"},   // the ledger itself
	"installer/clustertest/probe": {"WriteFile"}, // in a pod, on the volume of the test
	// Locks of package managers, and a copy of dpkg's records in a directory that the ledger claims.
	"installer/host/ospackages": {"Mkdir", "OpenFile", "Symlink", "WriteFile"},
	// Files in a directory that the ledger claims: a service writes them, which does not have the ledger.
	"installer/registry/store": {"OpenFile", "OpenPartial", "RemovePartial", "ReopenPartial", "RepairPartial"},
}

// Package host checks the directories on a path before it writes, and records
// the write in the ledger. So all other packages of the installer use it.
func TestOnlyHostWritesFiles(t *testing.T) {
	for _, p := range list(t) {
		dir := strings.TrimPrefix(p.ImportPath, "airlift/")
		if !isOnHost(dir) || dir == "installer/host" || dir == "installer/host/filesystem" {
			continue
		}
		for _, name := range p.GoFiles {
			for _, of := range []struct {
				imported string
				writes   []string
			}{{"os", fileWrites}, {"airlift/installer/host/filesystem", unrecordedWrites}} {
				for _, call := range calls(t, path.Join(dir, name), of.imported) {
					if slices.Contains(of.writes, call) && !slices.Contains(mayWrite[dir], call) {
						t.Errorf("%s calls %s.%s: files are written with package installer/host", path.Join(dir, name), path.Base(of.imported), call)
					}
				}
			}
		}
	}
}

// calls returns the functions of an imported package that a file uses.
func calls(t *testing.T, name, imported string) (functions []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	local := ""
	for _, i := range file.Imports {
		if is, _ := strconv.Unquote(i.Path.Value); is == imported {
			local = path.Base(imported)
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

// mayOpenUnfinished are the files that may open a host for changes on which a reset or a restore was interrupted: they finish it, or check it themselves.
var mayOpenUnfinished = []string{
	"installer/node/marks.go",       // it refuses such a host, for all other commands
	"cmd/install/open.go",           // for init, join, reset, etcd restore and etcd snapshot
	"cmd/install/adoptcmd/adopt.go", // disown finishes a disown
}

// TestChangesRefuseUnfinishedRuns: a command that changes a host opens it with node.OpenToChange, which refuses one with an interrupted reset or restore
// before the first write.
func TestChangesRefuseUnfinishedRuns(t *testing.T) {
	opens := 0
	for _, p := range list(t) {
		dir := strings.TrimPrefix(p.ImportPath, "airlift/")
		if !in(dir, "cmd") && !in(dir, "installer") {
			continue
		}
		for _, name := range p.GoFiles {
			file := path.Join(dir, name)
			for _, call := range calls(t, file, "airlift/installer/host") {
				if call != "OpenLocked" {
					continue
				}
				opens++
				if !slices.Contains(mayOpenUnfinished, file) {
					t.Errorf("%s calls host.OpenLocked: use node.OpenToChange", file)
				}
			}
		}
	}
	if opens == 0 {
		t.Error("no file calls host.OpenLocked")
	}
}

package childprocess_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/internal/childprocess"
)

// A command sees what it needs, and none of the variables that hold secrets in practice.
func TestSecretsAreNotInherited(t *testing.T) {
	for _, name := range []string{"AIRLIFT_KEY_PASSWORD", "AWS_SECRET_ACCESS_KEY", "VAULT_TOKEN", "HTTPS_PROXY", "https_proxy", "GITHUB_TOKEN", "LCPASSWORD"} {
		t.Setenv(name, "the-secret")
	}
	t.Setenv("LC_ALL", "C")
	t.Setenv("CONTAINERD_ADDRESS", "/run/x.sock")
	for _, inherits := range []bool{false, true} {
		c := childprocess.Command(t.Context(), "env")
		if inherits {
			childprocess.Inherit(c, "CONTAINERD_ADDRESS")
		}
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(out), "\n")
		if bytes.Contains(out, []byte("the-secret")) || !slices.Contains(lines, "LC_ALL=C") || !strings.Contains(string(out), "PATH=") ||
			slices.Contains(lines, "CONTAINERD_ADDRESS=/run/x.sock") != inherits {
			t.Errorf("the environment is %q", out)
		}
	}
}

// Every command of the product is started by this package.
func TestNobodyElseStartsCommands(t *testing.T) {
	files := 0
	for _, dir := range []string{"bundle", "cmd", "images", "installer", "internal"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata") || filepath.Base(path) == "childprocess.go" {
				return err
			}
			files++
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if from, ok := s.X.(*ast.Ident); ok && (from.Name == "exec" && strings.HasPrefix(s.Sel.Name, "Command") || from.Name == "os" && s.Sel.Name == "StartProcess") {
					t.Errorf("%s uses %s.%s: the command would inherit every secret in the environment", path, from.Name, s.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were read", files)
	}
}

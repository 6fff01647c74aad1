package main

import (
	"errors"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/internal/interrupt"
)

// oldName matches what names the command otherwise than as the user started it.
var oldName = regexp.MustCompile("(?m)\\./install\\b|['\"`]install [a-z]|^\\s+install [a-z]+ ")

// TestHelpUnderAnotherName prints the help of all commands.
func TestHelpUnderAnotherName(t *testing.T) {
	name := output.NameOf("./airlift-v1.37.1", "")
	file := filepath.Join(t.TempDir(), "out")
	var walk func(path []string, cmd *cobra.Command)
	walk = func(path []string, cmd *cobra.Command) {
		out, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		root := newRootCmd()
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: output.Written}
		root.SetOut(output.Text{Name: name, Out: interrupt.Output{File: out}})
		root.SetArgs(append(path, "--help"))
		err = root.ExecuteContext(t.Context())
		text, readErr := os.ReadFile(file)
		if err := errors.Join(err, readErr, out.Close()); err != nil {
			t.Fatal(err)
		}
		if found := oldName.FindAllString(string(text), -1); len(found) > 0 {
			t.Errorf("%q: the help has %q:\n%s", path, found, text)
		}
		if len(path) > 0 && !strings.Contains(string(text), "./airlift-v1.37.1 "+strings.Join(path, " ")) {
			t.Errorf("%q: the help does not name the command:\n%s", path, text)
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				walk(append(path[:len(path):len(path)], sub.Name()), sub)
			}
		}
	}
	walk(nil, newRootCmd())
}

// TestMessagesUnderAnotherName runs the executable under other names.
func TestMessagesUnderAnotherName(t *testing.T) {
	for _, name := range []string{"./airlift-v1.37.1", "/root/air lift", "tools/install"} {
		shown, err := output.NameOf(name, name).Here, error(nil)
		for _, args := range [][]string{
			{"init", "--frobnicate"}, {"join", "a:1", "b:1"}, {"status"}, {"status", "-o", "json"}, {"status", "-o", "yaml"}, {"status", "-o", "jsonpath={.problems[*].fix}"}, {"doctor", "x"},
			{"token", "delete"}, {"config", "validate"}, {"etcd", "member", "remove"}, {"images", "export"}, {"certs", "renew"}, {"token", "create", "--frob"},
		} {
			cmd := exec.Command(os.Args[0])
			cmd.Args = append([]string{name}, args...)
			cmd.Env = append(os.Environ(), asMain+"=1")
			var out []byte
			out, err = cmd.CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			text := string(out)
			if !strings.Contains(text, shown) || oldName.MatchString(strings.ReplaceAll(text, shown, "")) {
				t.Errorf("%s %q printed\n%s", name, args, text)
			}
		}
	}
}

// TestTextsNameTheCommandAlike reads the texts of all packages that the installer may print: only
// what is written as ./install is replaced.
func TestTextsNameTheCommandAlike(t *testing.T) {
	verbs := []string{}
	for _, cmd := range newRootCmd().Commands() {
		verbs = append(verbs, cmd.Name())
	}
	other := regexp.MustCompile(`(?:^|[^./\w-])install (?:` + strings.Join(verbs, "|") + `)\b`)
	for _, dir := range []string{".", "../output", "../../installer", "../../internal", "../../images"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := gotoken.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == gotoken.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil && other.MatchString(text) {
						t.Errorf("%s: write ./install in %q", set.Position(lit.Pos()), text)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

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

	"airlift/installer/host"
	"airlift/interrupt"
)

func TestNameOf(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	for _, name := range []string{"airlift", "a b", "it's"} {
		writeProgram(t, filepath.Join(bin, name))
	}
	writeProgram(t, filepath.Join(dir, "coreutils", "install"))
	writeProgram(t, filepath.Join(dir, "install"))
	t.Setenv("PATH", bin+":"+filepath.Join(dir, "coreutils"))
	for _, c := range []struct{ arg0, path, here, there string }{
		{"./install", "/root/install", "./install", "./install"},
		{"/root/install", "/root/install", "/root/install", "./install"},
		{"./airlift-v1.37", "/root/airlift-v1.37", "./airlift-v1.37", "./airlift-v1.37"},
		{"../x/airlift_1", "/x/airlift_1", "../x/airlift_1", "./airlift_1"},
		{"airlift", filepath.Join(bin, "airlift"), "airlift", "./airlift"},
		{"install", filepath.Join(dir, "install"), filepath.Join(dir, "install"), "./install"}, // PATH has coreutils' one
		{"nowhere", "/root/airlift", "/root/airlift", "./airlift"},
		{"./a b", filepath.Join(bin, "a b"), "'./a b'", "'./a b'"},
		{"./it's", filepath.Join(bin, "it's"), "./install", "./install"},
		{"./a\u2028b", "", "./install", "./install"},
		{"./a\x1b[31m", "", "./install", "./install"},
		{"./a\u202eb", "", "./install", "./install"},
		{"./a\xffb", "", "./install", "./install"},
		{"./größe", "", "'./größe'", "'./größe'"},
		{host.StubPath, "", "./install", "./install"},
		{"", "/root/airlift", "/root/airlift", "./airlift"},
	} {
		if got := nameOf(c.arg0, c.path); got != (ownName{c.here, c.there}) {
			t.Errorf("nameOf(%q, %q) = %+v", c.arg0, c.path, got)
		}
	}
}

func writeProgram(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestOwnNameIn(t *testing.T) {
	n := ownName{"/root/airlift-v1", "./airlift-v1"}
	for text, want := range map[string]string{
		"run ./install reset":                                          "run /root/airlift-v1 reset",
		"./install":                                                    "/root/airlift-v1",
		"see './install init --help'.":                                 "see '/root/airlift-v1 init --help'.",
		"yes | ./install reset, or ./install init.":                    "yes | /root/airlift-v1 reset, or /root/airlift-v1 init.",
		"./install join 10.0.0.1:6443 --token x":                       "./airlift-v1 join 10.0.0.1:6443 --token x",
		"./install join k8s.site.example:6443":                         "./airlift-v1 join k8s.site.example:6443",
		"./install join [fd00::1]:6443":                                "./airlift-v1 join [fd00::1]:6443",
		"./install join --help":                                        "/root/airlift-v1 join --help",
		"and run there: ./install upgrade node\n":                      "and run there: ./airlift-v1 upgrade node\n",
		"first run on these nodes: ./install upgrade undo":             "first run on these nodes: ./airlift-v1 upgrade undo",
		"if none is running, run on the control plane: ./install init": "if none is running, run on the control plane: ./airlift-v1 init",
		"on the other control planes: ./install certs rotate-ca issue": "on the other control planes: ./airlift-v1 certs rotate-ca issue",
		"Run on these nodes, control planes first:\n\n    one\n    two.x\n\n    ./install reset":          "Run on these nodes, control planes first:\n\n    one\n    two.x\n\n    ./airlift-v1 reset",
		"on the first control plane: ./install upgrade apply, then on the others: ./install upgrade node": "on the first control plane: /root/airlift-v1 upgrade apply, then on the others: ./airlift-v1 upgrade node",
		"on its host: ./install reset, or here: ./install status":                                         "on its host: ./airlift-v1 reset, or here: /root/airlift-v1 status",
		"If the host comes back, run ./install reset --force there.\n":                                    "If the host comes back, run ./airlift-v1 reset --force there.\n",
		"run on another control plane: ./install etcd member remove a1; then join again here":             "run on another control plane: ./airlift-v1 etcd member remove a1; then join again here",
		"./installer ./install.000 ./install-x":                                                           "./installer ./install.000 ./install-x",
		"to go back: with the file of v1.36.3, run on each control plane: ./FILE reset --force":           "to go back: with the file of v1.36.3, run on each control plane: ./FILE reset --force",
		"../install /usr/./install": "../install /usr/./install",
	} {
		if got := n.in(text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
}

// TestQuotedOwnName: a text that quotes a command has no quotes in quotes.
func TestQuotedOwnName(t *testing.T) {
	n := ownName{"'./a b'", "'./a b'"}
	for text, want := range map[string]string{
		"see './install status'":                       "see './a b' status",
		"run './install init', or ./install reset.":    "run './a b' init, or './a b' reset.",
		"see './install status' and './install reset'": "see './a b' status and './a b' reset",
		"'./install'": "'./a b'",
	} {
		if got := n.in(text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
}

// oldName matches what names the command otherwise than as the user started it.
var oldName = regexp.MustCompile("(?m)\\./install\\b|['\"`]install [a-z]|^\\s+install [a-z]+ ")

// TestHelpUnderAnotherName prints the help of all commands.
func TestHelpUnderAnotherName(t *testing.T) {
	ownCommand = ownName{"./airlift-v1.37.1", "./airlift-v1.37.1"}
	t.Cleanup(func() { ownCommand = ownName{written, written} })
	file := filepath.Join(t.TempDir(), "out")
	var walk func(path []string, cmd *cobra.Command)
	walk = func(path []string, cmd *cobra.Command) {
		out, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		root := newRootCmd()
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: written}
		root.SetOut(textOutput{interrupt.Output{File: out}})
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
		shown, err := nameOf(name, name), error(nil)
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
			if !strings.Contains(text, shown.here) || oldName.MatchString(strings.ReplaceAll(text, shown.here, "")) {
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
	for _, dir := range []string{".", "../../installer", "../../fault", "../../interrupt", "../../images"} {
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

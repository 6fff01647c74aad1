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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/cmd/output"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
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

// TestCompletionHasTheNameInUse: the scripts complete the command as the user writes it, and never coreutils' install.
func TestCompletionHasTheNameInUse(t *testing.T) {
	registered := regexp.MustCompile(`(?m)^\s*(?:complete|compdef) .*\s(\S+)$|^#compdef (\S+)$`)
	for _, c := range []struct {
		name output.Name
		want []string
	}{
		{output.Name{Here: "./install", There: "./install"}, []string{"airlift", "./install"}},
		{output.Name{Here: "/root/install", There: "./install"}, []string{"airlift", "/root/install"}},
		{output.Name{Here: "airlift", There: "airlift", File: output.Written}, []string{"airlift"}},
		{output.Name{Here: "/usr/local/bin/airlift", There: "airlift", File: output.Written}, []string{"airlift", "/usr/local/bin/airlift"}},
		{output.Name{Here: "./airlift-v1.37", There: "./airlift-v1.37"}, []string{"airlift-v1.37", "./airlift-v1.37"}},
		{output.Name{Here: "'./a b'", There: "'./a b'"}, []string{"airlift", "'./a b'"}},
	} {
		for _, shell := range []string{"bash", "zsh"} {
			var out strings.Builder
			root := newRootCmd()
			root.SetOut(output.Text{Name: c.name, Out: &out})
			nameCompletion(root, c.name)
			root.SetArgs([]string{"completion", shell})
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, line := range strings.Split(out.String(), "\n") {
				m := registered.FindStringSubmatch(line)
				if m == nil {
					continue
				}
				name := m[1] + m[2]
				if strings.HasSuffix(line, "'") { // a name with a space
					name = line[strings.Index(line, "'"):]
				}
				if !slices.Contains(got, name) {
					got = append(got, name)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, %s: %q", c.name.Here, shell, got)
			}
			if line := strings.TrimSpace(out.String()); shell == "bash" && exec.Command("bash", "-n", "-c", line).Run() != nil {
				t.Errorf("%s: bash does not read the script", c.name.Here)
			}
		}
	}
}

// TestCommandsThatNeedTheFile are commands, and those that need none are below them.
func TestCommandsThatNeedTheFile(t *testing.T) {
	root := newRootCmd()
	for _, words := range append(slices.Clone(output.NeedFile), output.NeedNone...) {
		cmd, rest, err := root.Find(strings.Fields(words))
		if err != nil || len(rest) > 0 || commandName(cmd) != words {
			t.Errorf("%q: %q, %v", words, rest, err)
		}
	}
	for _, words := range output.NeedNone {
		if !slices.ContainsFunc(output.NeedFile, func(above string) bool { return strings.HasPrefix(words, above+" ") }) {
			t.Errorf("%q is not below a command that needs a file", words)
		}
	}
}

// TestWhichFile: a file is used only with the digests of the recorded one and with the same installer. Without it, the hint names what is
// missing.
func TestWhichFile(t *testing.T) {
	root := t.TempDir()
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	hint := func(want string) {
		t.Helper()
		if got := whichFile(h, lastFile(h)); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	hint("copy the file with the binaries and images")
	f, err := bundle.Open(bundleFile(t, "v1.37.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ran := func(command, version, file, id string) {
		h.Records().BeginRun(ledger.Run{Command: command, Version: version, File: file, Bundle: id, Began: time.Now()})
		h.Records().EndRun(time.Now(), 0, "")
	}
	claim := func(sum string) {
		if err := h.Records().Record(ledger.Entry{Kind: ledger.Binary, Name: host.CommandPath, SHA256: sum}); err != nil {
			t.Fatal(err)
		}
	}
	claim("another")
	ran("init", "v1.36.3", "/root/older", "a")
	ran("upgrade apply", "v1.37.1", "/root/newer", f.ID())
	ran("certs renew", "", "", "")
	hint("copy the file of Kubernetes v1.37.1 to this host, and run it instead; it was /root/newer")
	if isOf(h, f, lastFile(h)) {
		t.Error("a file with another installer")
	}
	claim(f.Installer().SHA256)
	if !isOf(h, f, lastFile(h)) || isOf(h, f, ledger.Run{File: "/root/newer", Bundle: "b"}) {
		t.Error("the file of the last run, and another one")
	}
	if err := errors.Join(os.Mkdir(filepath.Join(root, "root"), 0o755), os.WriteFile(filepath.Join(root, "root/newer"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	hint("run a file of Kubernetes v1.37.1 instead, for example /root/newer")
}

package output

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
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
		{"", "/root/airlift", "/root/airlift", "./airlift"},
	} {
		if got := NameOf(c.arg0, c.path); got != (Name{Here: c.here, There: c.there}) {
			t.Errorf("NameOf(%q, %q) = %+v", c.arg0, c.path, got)
		}
	}
}

// Kubelets, pods, other hosts and files word parts of what commands print. Documents and what draws on a terminal stay as they are.
func TestTextsCannotControlTheTerminal(t *testing.T) {
	const evil = "\x1b]0;owned\x07\x1b[2J\u009b2J\u202e\r"
	var out strings.Builder
	text := Text{Name: Name{Here: Written, There: Written}, Out: &out}
	fmt.Fprintf(text, "node w1: %s\n", evil)
	table := tabwriter.NewWriter(text, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "w1\tv1.37.1%s\tReady\n", evil)
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := text.WriteString("ä … 日本" + evil); err != nil || strings.ContainsAny(out.String(), evil[:1]+"\x07\u009b\u202e\r") || !strings.Contains(out.String(), "ä … 日本?") {
		t.Errorf("%q %v", out.String(), err)
	}
	out.Reset()
	fmt.Fprint(Documents(text), evil)
	fmt.Fprint(Verbatim(text), evil)
	if out.String() != evil+evil {
		t.Errorf("%q", out.String())
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

func TestNameIn(t *testing.T) {
	n := Name{Here: "/root/airlift-v1", There: "./airlift-v1"}
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

// TestQuotedName: a text that quotes a command has no quotes in quotes.
func TestQuotedName(t *testing.T) {
	n := Name{Here: "'./a b'", There: "'./a b'"}
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

// TestNameOfTheCommandOfANode: what only a file with a payload can do has the name of such a file.
func TestNameOfTheCommandOfANode(t *testing.T) {
	bin := t.TempDir()
	command := filepath.Join(bin, "airlift")
	writeProgram(t, command)
	t.Setenv("PATH", "/nowhere")
	if got := nameOf(command, "", command); got.Here != command || got.There != "airlift" {
		t.Errorf("outside of PATH: %+v", got)
	}
	t.Setenv("PATH", bin)
	n := nameOf("airlift", "", command)
	if n != nameOf(command, "", command) || n.Here != "airlift" {
		t.Errorf("in PATH: %+v", n)
	}
	if got := nameOf("airlift", command, command); got.File != "" {
		t.Errorf("a file with a payload: %+v", got)
	}
	for text, want := range map[string]string{
		"see './install status --help'":                            "see 'airlift status --help'",
		"run ./install join 10.0.0.1:6443":                         "run ./install join 10.0.0.1:6443",
		"then on the others: ./install upgrade node":               "then on the others: ./install upgrade node",
		"to return: ./install upgrade undo; or ./install upgrade":  "to return: airlift upgrade undo; or ./install upgrade",
		"on the other nodes: ./install certs rotate-ca issue":      "on the other nodes: airlift certs rotate-ca issue",
		"with an edited file: ./install reconfigure --config FILE": "with an edited file: ./install reconfigure --config FILE",
		"./install":                       "airlift",
		"./install reset, ./installer x":  "airlift reset, ./installer x",
		"./install registry status":       "airlift registry status",
		"./install etcd restore FILE":     "./install etcd restore FILE",
		"./install images unpin":          "airlift images unpin",
		"./install cluster-name, a value": "airlift cluster-name, a value",
	} {
		if got := n.in(text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
}

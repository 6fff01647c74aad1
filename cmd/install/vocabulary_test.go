package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/docs"
)

// TestVocabulary: help lists no more commands and flags than the documentation says.
func TestVocabulary(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", docs.Count(newRootCmd()))
	if err := docs.CheckVocabulary(newRootCmd(), string(page)); err != nil {
		t.Error(err)
	}
}

// TestEveryCommandHasAGroup: help lists each command once, as a person works.
func TestEveryCommandHasAGroup(t *testing.T) {
	for _, c := range newRootCmd().Commands() {
		if c.GroupID == "" && !c.Hidden {
			t.Errorf("%s has no group", c.Name())
		}
	}
}

// TestFlagsHaveOneMeaning: a name and a letter mean the same wherever they are.
func TestFlagsHaveOneMeaning(t *testing.T) {
	types := map[string]string{
		"yes": "bool", "plan": "bool", "dry-run": "bool", "force": "bool", "detailed-exitcode": "bool", "output": "string", "keep": "int", "out": "string",
	}
	letters := map[string]string{"y": "yes", "o": "output", "f": "file", "c": "context-lines", "v": "v", "h": "help"}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for name, kind := range types {
			if f := cmd.Flags().Lookup(name); f != nil && f.Value.Type() != kind {
				t.Errorf("%s: --%s is a %s, elsewhere a %s", cmd.CommandPath(), name, f.Value.Type(), kind)
			}
		}
		for letter, name := range letters {
			f := cmd.Flags().ShorthandLookup(letter)
			kubeadms := strings.HasPrefix(cmd.CommandPath(), "install reset") // -f is --force in kubeadm reset and its phases
			if f != nil && f.Name != name && !(letter == "f" && kubeadms) {
				t.Errorf("%s: -%s is --%s, elsewhere --%s", cmd.CommandPath(), letter, f.Name, name)
			}
		}
		if f := cmd.Flags().Lookup("output"); f != nil && f.Shorthand != "o" {
			t.Errorf("%s: --output has no -o", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRootCmd())
}

// TestOtherWords: what a person types who knows another tool, or who mistypes, leads to the command here.
func TestOtherWords(t *testing.T) {
	for typed, want := range map[string]string{
		"uninstall":                       "'install reset'",
		"remove w1":                       "'install node remove'",
		"delete node w1":                  "'install node remove'",
		"backup":                          "'install etcd snapshot'",
		"restore":                         "'install etcd restore'",
		"nodes":                           "'install status'",
		"get nodes":                       "kubectl get",
		"drain w1":                        "kubectl drain",
		"rest":                            "'install reset'",
		"joni":                            "'install join'",
		"update":                          "'install upgrade'",
		"rollback":                        "'install upgrade undo'",
		"alpha certs check-expiration":    "'install certs check-expiration'",
		"kubeadm init":                    "'install init'",
		"renew":                           "'install certs renew'",
		"certs renw":                      "'install certs renew'",
		"images import":                   "'install import'",
		"cluster uninstall":               "'install cluster reset'",
		"cluster aply":                    "'install cluster apply'",
		"cluster apply --config k0s.yaml": "'--file'",
		"cluster apply --dry-run":         "'install cluster plan'",
		"cluster apply --auto-approve":    "'--yes'",
		"reset --forse":                   "'--force'",
		"apply --undo":                    "'install apply undo'",
		"apply --remove web":              "'install apply remove'",
		"--version":                       "'install version'",
		"docs instal":                     "did you mean install?",
		"docs backups":                    "did you mean backup?",
		"certs renew apiservr":            "did you mean apiserver?",
		"certs check-expiration -o jsn":   "did you mean json?",
		"init phase cert":                 "did you mean certs?",
	} {
		cmd := newRootCmd()
		cmd.SetArgs(strings.Fields(typed))
		cmd.SetOut(t.Output())
		cmd.SetErr(t.Output())
		err := cmd.ExecuteContext(t.Context())
		if hint := fault.Hint(err); fault.ExitCode(err) != fault.Usage && want != "" || !strings.Contains(hint, want) {
			t.Errorf("%q: %v (exit code %d), hint %q, want %q", typed, err, fault.ExitCode(err), hint, want)
		}
	}
}

// TestCompletionOfChecks: each name that completion offers is a check of a host.
func TestCompletionOfChecks(t *testing.T) {
	for _, name := range []string{"init", "join"} {
		complete, ok := at(newRootCmd(), name).GetFlagCompletionFunc("ignore-preflight-errors")
		if !ok {
			t.Fatalf("%s has no completion", name)
		}
		if names, _ := complete(nil, nil, ""); slices.Contains(names, "Port-0") || len(names) < 10 {
			t.Errorf("%s: %q", name, names)
		}
	}
}

package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/docs"
)

// TestVocabulary: help lists no more commands and flags than the documentation says, each command in a group.
func TestVocabulary(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	root := newRootCmd()
	t.Logf("%+v", docs.Count(root))
	if err := docs.CheckVocabulary(root, string(page)); err != nil {
		t.Error(err)
	}
	for _, c := range root.Commands() {
		if c.GroupID == "" && !c.Hidden {
			t.Errorf("%s has no group", c.Name())
		}
	}
}

func TestOtherWords(t *testing.T) {
	for typed, want := range map[string]string{
		"biuld":                    "'bundle build'",
		"create":                   "'bundle build'",
		"upload":                   "'bundle push'",
		"vulnerabilities":          "'bundle scan'",
		"build --verson v1.37":     "'--version'",
		"versions -o yml":          "did you mean yaml?",
		"versions too":             "see 'bundle versions --help'",
		"inspect":                  "see 'bundle inspect --help'",
		"verify --sign-key k file": "this flag is one of",
		"docs multihost":           "did you mean multi-host?",
	} {
		cmd := newRootCmd()
		cmd.SetArgs(strings.Fields(typed))
		cmd.SetOut(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		if hint := fault.Hint(err); fault.ExitCode(err) != fault.Usage || !strings.Contains(hint, want) {
			t.Errorf("%q: %v, hint %q, want %q", typed, err, hint, want)
		}
	}
}

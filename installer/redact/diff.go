package redact

import "github.com/pmezard/go-difflib/difflib"

// A Version is one of two versions of a text, with its name.
type Version struct {
	Name string
	Text []byte
}

// Diff returns a unified diff of two versions of a text of a form, with some lines around each change. It is "" if they differ
// only in what the form takes out. All differences that are shown come from here.
func Diff(form Form, from, to Version, lines int) string {
	text, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{ // a string has no errors
		A: difflib.SplitLines(string(form(from.Text))), B: difflib.SplitLines(string(form(to.Text))), FromFile: from.Name, ToFile: to.Name, Context: lines,
	})
	return text
}

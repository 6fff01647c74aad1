package manual

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestFit: at each width no line of a page is wider than the terminal, except code, and no letter is lost.
func TestFit(t *testing.T) {
	letters := regexp.MustCompile(`[\s|─-]+`)
	for _, p := range Pages() {
		text := p.Text()
		for _, width := range []int{40, 80, 132} {
			fitted := fit(text, width)
			code := regexp.MustCompile(`^(    |#)`)
			for line := range strings.Lines(fitted) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width && !code.MatchString(line) {
					t.Errorf("%s at %d: %d columns: %s", p.Name(), width, n, line)
				}
			}
			count := func(text string) map[rune]int {
				n := map[rune]int{}
				for _, r := range letters.ReplaceAllString(text, "") {
					n[r]++
				}
				return n
			}
			is, want := count(fitted), count(text)
			for r, n := range want {
				if r != '\\' && r != ':' && is[r] != n { // of escapes and of delimiters
					t.Errorf("%s at %d: %d times %q, want %d", p.Name(), width, is[r], r, n)
				}
			}
		}
	}
}

func TestFitTable(t *testing.T) {
	got := fit("# A\n\n| do | command |\n|---|---|\n| see all that changes | `a \\| b` |\n| b | c |\n\n- one two three four five six\n  seven\n", 24)
	want := `# A

do               command
────────────────────────
see all that     ` + "`a | b`" + `
changes

b                c

- one two three four
  five six seven
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

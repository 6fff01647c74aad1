package preflight

import (
	"maps"
	"testing"
)

// TestEnvironmentFile has the forms of systemd.exec(5). What follows a comment with a backslash at its end is part of it up to systemd 253.
func TestEnvironmentFile(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"a=a\n# comment\nb=b\n;c=c\n": {"a": "a", "b": "b"},
		"a=a\\\nb=c\n":                {"a": "ab=c"},
		"a= 'x y' \nb=\"1\n2\"\n":     {"a": "x y", "b": "1\n2"},
		"a=\"one \\\n two\"\n":        {"a": "one  two"},
		"a=it's\nb=c\n":               {"a": "it's", "b": "c"},
		"a=\\\"x\\\"  \n":             {"a": "\"x\""},
		"a=\"\\$x \\n\"\n":            {"a": "$x \\n"},
		"a='x\\n'\"y\"\n":             {"a": "x\\ny"},
		"# comment \\\n a=b\nc=d":     {"c": "d"},
		"word\na=b":                   {"a": "b"},
		"  a =b\r\nc=":                {"a": "b", "c": ""},
		"a=1\na=2":                    {"a": "2"},
		"":                            nil,
	} {
		if got := EnvironmentFile([]byte(text)); !maps.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

package kubelet

import (
	"regexp"
	"strings"

	"airlift/installer/config"
)

// ParseFlags parses the kubelet's flags in KUBELET_EXTRA_ARGS, as systemd and the
// kubelet do: from an EnvironmentFile (or one line of it, or only the value), split
// at white space outside quotes. A word that is not a flag has no Name.
func ParseFlags(file string) []config.Arg {
	const variable = "KUBELET_EXTRA_ARGS="
	line := file
	if strings.Contains(file, variable) {
		line = "" // it may be in a comment
		for l := range strings.Lines(file) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(l), variable); ok {
				line = unquote(v)
			}
		}
	}
	var args []config.Arg
	list := words(line)
	for i := 0; i < len(list); i++ {
		word := list[i]
		if word == "--" {
			continue
		}
		if !strings.HasPrefix(word, "-") || word == "-" {
			args = append(args, config.Arg{Value: word})
			continue
		}
		name, v, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		// -v is the only flag of one letter with a value: -v2, -v=2, -v 2.
		if !strings.HasPrefix(word, "--") && len(name) > 1 && name[0] == 'v' && !given {
			name, v, given = "v", name[1:], true
		}
		if !given && needsNoValue(name) {
			v = "true"
		} else if !given && i+1 < len(list) {
			i++
			v = list[i]
		}
		args = append(args, config.Arg{Name: name, Value: v})
	}
	return args
}

func needsNoValue(flag string) bool {
	known := facts()["flag"][canonical(flag)]
	return len(known) > 0 && (known[0].is == "optional" || strings.HasPrefix(known[0].is, "bool"))
}

// unquote is the value of one assignment in an EnvironmentFile of systemd.
func unquote(s string) string {
	var out strings.Builder
	var quote byte
	for i := 0; i < len(s); i++ {
		switch ch := s[i]; {
		case quote != 0 && ch == quote:
			quote = 0
		case quote == 0 && (ch == '"' || ch == '\'') && (i == 0 || s[i-1] == '"' || s[i-1] == '\''):
			quote = ch
		case ch == '\\' && quote != '\'' && i+1 < len(s):
			i++
			out.WriteByte(s[i])
		default:
			out.WriteByte(ch)
		}
	}
	return strings.TrimSpace(out.String())
}

var (
	wordPattern  = regexp.MustCompile(`("[^"]*"?|'[^']*'?|[^ \t\n\r"'])+`)
	quotePattern = regexp.MustCompile(`"([^"]*)"?|'([^']*)'?`)
)

// words splits a variable's value as systemd does for an unquoted $NAME: at
// white space, except in quotes, which it removes.
func words(s string) []string {
	list := wordPattern.FindAllString(s, -1)
	for i, word := range list {
		list[i] = quotePattern.ReplaceAllString(word, "$1$2")
	}
	return list
}

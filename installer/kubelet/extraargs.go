package kubelet

import (
	"regexp"
	"strings"

	"airlift/installer/config"
)

var assignment = regexp.MustCompile(`(?m)^[ \t]*KUBELET_EXTRA_ARGS=(.*)$`)

// ParseFlags parses the kubelet's flags in KUBELET_EXTRA_ARGS, as systemd and the
// kubelet do: from an EnvironmentFile (or one line of it, or only the value), split
// at white space outside quotes. A word that is not a flag has no Name.
func ParseFlags(file string) []config.Arg {
	line := file
	if strings.Contains(file, "KUBELET_EXTRA_ARGS=") {
		line = "" // it may be in a comment
		for _, found := range assignment.FindAllStringSubmatch(file, -1) {
			line = unquote(found[1])
		}
	}
	var args []config.Arg
	for list := words(line); len(list) > 0; list = list[1:] {
		word := list[0]
		if word == "--" {
			continue
		}
		// The flags of one letter are -h, and -v2, -v=2 or -v 2.
		if level, ok := strings.CutPrefix(word, "-v"); ok {
			word = strings.TrimSuffix("--v="+strings.TrimPrefix(level, "="), "=")
		} else if word == "-h" {
			word = "--help"
		}
		name, v, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		known := facts()["flag"][canonical(name)]
		switch {
		case !strings.HasPrefix(word, "--"):
			name, v = "", word
		case !given && len(known) > 0 && (known[0].has("bool") || known[0].has("versionValue")):
			v = "true"
		case !given && len(list) > 1:
			v, list = list[1], list[1:]
		}
		args = append(args, config.Arg{Name: name, Value: v})
	}
	return args
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

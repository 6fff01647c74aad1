package preflight

import (
	"regexp"
	"strings"

	"airlift/installer/config"
	"airlift/installer/kubeletcheck"
)

// KubeletFlags returns the kubelet's flags in a variable of one of its EnvironmentFiles, as
// systemd and the kubelet read them: systemd splits the variable's last value at white space
// outside quotes. A word that is not a flag has no Name.
func KubeletFlags(variable string, file []byte) []config.Arg {
	return kubeletcheck.ParseFlags(Words(EnvironmentFile(file)[variable]))
}

// EnvironmentFile returns the variables of an EnvironmentFile, as systemd reads them (systemd.exec(5)): a value may be in quotes,
// which may have several lines, and a backslash at the end of a line continues it.
func EnvironmentFile(data []byte) map[string]string {
	values := map[string]string{}
	for rest := string(data); ; {
		rest = strings.TrimLeft(rest, " \t\r\n")
		if rest == "" {
			return values
		}
		end := strings.IndexAny(rest, "=\n")
		switch {
		case rest[0] == '#' || rest[0] == ';':
			rest = comment.ReplaceAllString(rest, "")
		case end < 0:
			return values
		case rest[end] == '\n':
			rest = rest[end:]
		default:
			name := strings.TrimSpace(rest[:end])
			values[name], rest = environmentValue(rest[end+1:])
		}
	}
}

// environmentValue returns the value of one assignment, and what follows it. Quotes count at the beginning, and after other quotes.
func environmentValue(text string) (value, rest string) {
	var out strings.Builder
	var quote byte
	begin, kept := true, 0 // kept is the length without white space at the end
	for i := 0; i < len(text); i++ {
		ch := text[i]
		switch {
		case ch == '\\' && quote != '\'' && i+1 < len(text):
			i++
			if quote == '"' && !strings.ContainsRune("\"\\`$\n", rune(text[i])) {
				out.WriteByte(ch)
			}
			if text[i] != '\n' {
				out.WriteByte(text[i])
				kept, begin = out.Len(), false
			}
		case quote != 0 && ch == quote:
			quote, begin = 0, true
		case quote != 0:
			out.WriteByte(ch)
			kept = out.Len()
		case ch == '\n':
			return out.String()[:kept], text[i:]
		case begin && (ch == '"' || ch == '\''):
			quote = ch
		case ch == ' ' || ch == '\t' || ch == '\r':
			if !begin {
				out.WriteByte(ch)
			}
		default:
			out.WriteByte(ch)
			kept, begin = out.Len(), false
		}
	}
	return out.String()[:kept], ""
}

// comment is a comment at the beginning of a text; a backslash at the end of its line continues it.
var comment = regexp.MustCompile(`^(\\\n|[^\n])*`)

var (
	wordPattern  = regexp.MustCompile(`("[^"]*"?|'[^']*'?|[^ \t\n\r"'])+`)
	quotePattern = regexp.MustCompile(`"([^"]*)"?|'([^']*)'?`)
)

// Words splits a variable's value as systemd does for an unquoted $NAME: at
// white space, except in quotes, which it removes.
func Words(s string) []string {
	list := wordPattern.FindAllString(s, -1)
	for i, word := range list {
		list[i] = quotePattern.ReplaceAllString(word, "$1$2")
	}
	return list
}

package preflight

import (
	"regexp"
	"strings"

	"airlift/installer/config"
	"airlift/installer/kubelet"
)

// KubeletFlags returns the kubelet's flags in a variable of one of its EnvironmentFiles, as
// systemd and the kubelet read them: systemd splits the variable's last value at white space
// outside quotes. A word that is not a flag has no Name.
func KubeletFlags(variable string, file []byte) []config.Arg {
	value := ""
	for _, found := range regexp.MustCompile(`(?m)^[ \t]*`+variable+`=(.*)$`).FindAllSubmatch(file, -1) {
		value = unquote(string(found[1]))
	}
	return kubelet.ParseFlags(Words(value))
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

// Words splits a variable's value as systemd does for an unquoted $NAME, and for Environment=: at
// white space, except in quotes, which it removes.
func Words(s string) []string {
	list := wordPattern.FindAllString(s, -1)
	for i, word := range list {
		list[i] = quotePattern.ReplaceAllString(word, "$1$2")
	}
	return list
}

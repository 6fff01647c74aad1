package output

import (
	"io"
	"regexp"
	"strings"
)

// A Given has the flags that the user gave to a command, and that commands in its texts keep.
type Given struct {
	command *regexp.Regexp
	flags   string
}

// Keep lets the commands in texts for out have flags, such as " -f site.yaml --skip w7". Each command is written as in texts:
// "./install cluster apply".
func Keep(out io.Writer, commands []string, flags string) {
	switch o := Documents(out).(type) {
	case Text:
		if o.Given != nil {
			*o.Given = Given{regexp.MustCompile(`(?:` + strings.ReplaceAll(regexp.QuoteMeta(strings.Join(commands, "\n")), "\n", "|") + `)\b`), flags}
		}
	case document:
		Keep(o.Writer, commands, flags)
	}
}

// in adds the flags to the commands in a text.
func (g *Given) in(text string) string {
	if g == nil || g.flags == "" {
		return text
	}
	return g.command.ReplaceAllStringFunc(text, func(command string) string { return command + g.flags })
}

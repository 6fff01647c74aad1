package redact

import (
	"regexp"
	"slices"
	"strings"
)

var (
	assignment   = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=((?s:.*))$`)
	upperName    = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
	unitSection  = regexp.MustCompile(`^\[(Unit|Service|Install|Timer|Socket|Mount|Automount|Swap|Path|Slice|Scope)\]$`)
	unitFile     = regexp.MustCompile(`^# /(etc|usr|run|lib)/[\w./@\\-]+\.(service|timer|socket|mount|slice|conf)$`) // systemctl cat's heading
	unitLine     = regexp.MustCompile(`^([A-Za-z]+)\s*=\s*(.*)$`)
	environments = set("Environment DefaultEnvironment ManagerEnvironment")
)

// Environment redacts a file with variables, as systemd and shells read it. Comments are taken
// out.
func Environment(text []byte) []byte {
	var out strings.Builder
	for _, line := range logicalLines(string(text), true) {
		line = strings.TrimSpace(line)
		switch m := assignment.FindStringSubmatch(line); {
		case line == "":
			continue
		case m == nil || !isVariable(m[1]):
			out.WriteString(Marker + "\n")
		default:
			out.WriteString(m[1] + "=" + quoteOne(variableValue(m[1], strings.Join(splitWords(m[2]), " "))) + "\n")
		}
	}
	return []byte(out.String())
}

// isVariable reports whether a text is the name of a variable, and not a line of something else.
func isVariable(name string) bool {
	return harmlessVariables[name] || proxyVariables[name] || upperName.MatchString(name) && (strings.Contains(name, "_") || secretName.MatchString(name))
}

// Unit redacts systemd's unit files. Comments are taken out.
func Unit(text []byte) []byte {
	var out strings.Builder
	for _, line := range logicalLines(string(text), false) {
		line = strings.TrimSpace(line)
		switch m := unitLine.FindStringSubmatch(line); {
		case line == "" || unitSection.MatchString(line) || unitFile.MatchString(line):
			out.WriteString(line + "\n")
		case line[0] == '#' || line[0] == ';':
		case m == nil:
			out.WriteString(Marker + "\n")
		default:
			out.WriteString(directive(m[1], m[2]) + "\n")
		}
	}
	return []byte(out.String())
}

// directive redacts one setting of a unit.
func directive(name, value string) string {
	switch {
	case environments[name]:
		return name + "=" + quote(assignments(splitWords(value)))
	case strings.HasPrefix(name, "Exec"):
		return name + "=" + quote(Arguments(splitWords(value), true))
	case unitNames[name]:
		return name + "=" + plain(value)
	case freeText[name]:
		return name + "=" + Marker
	}
	return Marker
}

// assignments redacts the words of Environment=.
func assignments(words []string) []string {
	out := make([]string, len(words))
	for i, word := range words {
		if m := assignment.FindStringSubmatch(word); m != nil && (i == 0 || upperName.MatchString(m[1])) {
			out[i] = m[1] + "=" + variableValue(m[1], m[2])
		} else {
			out[i] = Marker
		}
	}
	return slices.Compact(out)
}

var (
	property     = regexp.MustCompile(`^([A-Z][A-Za-z0-9]*)=(.*)$`)
	execProperty = regexp.MustCompile(`^\{ path=[\w./-]+ ;`)
	freeText     = set("Description StatusText SetCredential SetCredentialEncrypted StandardInputText StandardInputData PassEnvironment UnsetEnvironment LogExtraFields RootHash RootHashSignature")
)

// properties redacts what systemctl show prints.
func properties(text []byte) []byte {
	return eachLine(text, func(line string) string {
		m := property.FindStringSubmatch(line)
		switch {
		case line == "" || strings.HasPrefix(line, "("):
			return line
		case m == nil:
			return Marker
		case environments[m[1]]:
			return directive(m[1], m[2])
		case strings.HasPrefix(m[1], "Exec") && strings.HasPrefix(m[2], "{"):
			return m[1] + "=" + execProperty.FindString(m[2]) + " " + Marker + " }"
		case freeText[m[1]] && m[2] != "":
			return m[1] + "=" + Marker
		}
		return Line(line)
	})
}

var (
	process     = regexp.MustCompile(`^(.*?[├└]─\s*[0-9]+ |\s*[0-9]+ )(.*)$`)
	commandLine = regexp.MustCompile(`^(\s*Process: [0-9]+ Exec\w+=)(.*?)( \((?:code|status)=[\w/, =]+\))?$`)
	described   = regexp.MustCompile(`^(\S+ [\w@.\\:-]+\.(?:service|timer|socket|mount|slice|scope|target) - ).+$`)
	statusText  = regexp.MustCompile(`^(\s*Status: )".*"$`)
)

// tree redacts the processes that systemctl and systemd-cgls show with their arguments.
func tree(text []byte) []byte {
	return eachLine(text, func(line string) string {
		if m := process.FindStringSubmatch(line); m != nil {
			return m[1] + strings.Join(Arguments(strings.Fields(m[2]), true), " ")
		}
		if m := commandLine.FindStringSubmatch(line); m != nil {
			return m[1] + strings.Join(Arguments(strings.Fields(m[2]), true), " ") + m[3]
		}
		if m := statusText.FindStringSubmatch(line); m != nil {
			return m[1] + Marker
		}
		if m := described.FindStringSubmatch(line); m != nil {
			return m[1] + Marker
		}
		return Line(line)
	})
}

// logicalLines joins lines that end with a backslash and, if quotes count, lines within quotes.
// Comments are not lines of their own when quotes count.
func logicalLines(text string, quotes bool) (lines []string) {
	var line strings.Builder
	quote := rune(0)
	escaped, comment := false, false
	for _, r := range text {
		switch {
		case escaped:
			escaped = false
			if r == '\n' {
				line.WriteByte(' ')
			} else {
				line.WriteRune('\\')
				line.WriteRune(r)
			}
			continue
		case comment && r != '\n':
			continue
		case r == '\\' && quote != '\'':
			escaped = true
			continue
		case r == '\n' && quote == 0:
			lines = append(lines, line.String())
			line.Reset()
			comment = false
			continue
		case quotes && (r == '#' || r == ';') && strings.TrimSpace(line.String()) == "":
			comment = true
			continue
		case quotes && quote == 0 && (r == '"' || r == '\''):
			quote = r
		case r == quote:
			quote = 0
		}
		line.WriteRune(r)
	}
	if line.Len() > 0 {
		lines = append(lines, line.String())
	}
	return lines
}

// splitWords splits a command line as systemd and shells do: quotes join, a backslash escapes.
// A quote that is not closed takes everything.
func splitWords(text string) (words []string) {
	var word strings.Builder
	quote, escaped, inside := rune(0), false, false
	for _, r := range text {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inside = true, true
		case quote == 0 && (r == '"' || r == '\''):
			quote, inside = r, true
		case r == quote:
			quote = 0
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n' || r == '\r'):
			if inside {
				words = append(words, word.String())
			}
			word.Reset()
			inside = false
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if inside {
		words = append(words, word.String())
	}
	return words
}

// quote joins words to a command line. Markers in a row are one.
func quote(words []string) string {
	out := make([]string, 0, len(words))
	for _, word := range words {
		out = append(out, quoteOne(word))
	}
	return strings.Join(slices.CompactFunc(out, func(a, b string) bool { return a == Marker && b == Marker }), " ")
}

func quoteOne(word string) string {
	if strings.ContainsAny(word, " \t\n'\\") && word != Marker {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(word) + `"`
	}
	return word
}

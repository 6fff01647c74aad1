package redact

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// Line redacts a text without a structure, such as a message: from what looks like a secret to
// the end of the text, also if it has more lines.
func Line(text string) string {
	if i := suspicion(text); i >= 0 {
		return text[:i] + Marker
	}
	return text
}

// Log redacts lines of a log: from what looks like a secret to the end of the line, and the
// lines that follow, up to the next one that begins as a record of a log does.
func Log(text []byte) []byte { return lines(text, isRecord) }

// Records redacts a text of which each line is a record of its own, such as a table. Lines that
// follow an open quote, a name without a value or the beginning of a key are redacted, too.
func Records(text []byte) []byte { return lines(text, nil) }

// logPrefix is what the CRI's log format or journalctl puts before each line; the name of the
// process is in it.
var logPrefix = regexp.MustCompile(`^(?:\S+ (?:stdout|stderr) [FP]|[0-9-]+T[0-9:.,+-]+Z? \S+ ([^\s\[:]+)(?:\[[0-9]+\])?:)(?: |$)`)

// record matches the beginning of a record in the logs of Kubernetes' components, etcd,
// containerd, CoreDNS and flannel.
var record = regexp.MustCompile(`^\s*(?:[IWEF][0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.|time="?[0-9]{4}-|level=[a-z]+ |\{"(?:level|ts|time)":|\[(?:INFO|WARNING|ERROR|DEBUG|FATAL)\] |[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T][0-9]{2}:)`)

// isRecord reports whether a line without its prefix begins a record. Each line of the kernel
// and of systemd does.
func isRecord(process, line string) bool {
	return process == "kernel" || process == "systemd" || record.MatchString(line)
}

// lines redacts line by line. begins reports whether a line begins a record, which ends what
// follows a secret; nil means that each line does, unless something is open before it.
func lines(text []byte, begins func(process, line string) bool) []byte {
	r := reader{begins: begins}
	return eachLine(cutKey(text), func(line string) string {
		prefix := logPrefix.FindStringSubmatch(line)
		if prefix == nil {
			return r.next("", line)
		}
		return prefix[0] + r.next(prefix[1], line[len(prefix[0]):])
	})
}

// A reader redacts the lines of a text in their order.
type reader struct {
	begins    func(process, line string) bool
	inside    bool // after a secret that may continue
	announced int  // after a name without a value: its indentation + 1, while names below it follow
	public    bool // in a certificate, whose lines look like secrets
}

// next redacts the next line.
func (r *reader) next(process, line string) string {
	switch {
	case r.public:
		r.public = !strings.Contains(line, "-----END ")
		return line
	case r.inside && r.continues(process, line):
		r.announced = 0
		return keepEmpty(line)
	}
	below := r.isBelow(line)
	if r.inside = false; !below {
		r.announced = 0
	}
	line = objectsIn(kernelLine(line))
	at := suspicion(line)
	if begin := mappedSecret(line); below && begin >= 0 && (at < 0 || begin < at) {
		at = begin
	}
	switch {
	case at < 0:
		r.public = publicBegin.MatchString(line)
		return line
	case strings.TrimSpace(line[at:]) == "":
		if r.inside = true; !below {
			r.announced = 1 + indentation(line)
		}
		return line
	}
	r.inside = r.begins != nil && !below || isOpen(line, at)
	return line[:at] + Marker
}

// isBelow reports whether a line has a name below one that has no value itself.
func (r *reader) isBelow(line string) bool {
	return r.announced > 0 && indentation(line) >= r.announced && isMapping.MatchString(line)
}

// mappedSecret returns where the value of a name below that of a secret begins, or -1 if it is
// none for any name or the name, such as secretName, says that it is not.
func mappedSecret(line string) int {
	m := isMapping.FindStringSubmatchIndex(line)
	if m == nil {
		return -1
	}
	words, value := wordsOf(line[m[2]:m[3]]), line[m[1]:]
	if strings.TrimSpace(value) == "" || harmlessEnds[words[len(words)-1]] || harmlessValue(words[len(words)-1], value) {
		return -1
	}
	return m[1]
}

// kernelLine redacts the kernel's arguments in its log.
func kernelLine(line string) string {
	if m := kernelLog.FindStringSubmatch(line); m != nil {
		return m[1] + string(kernelArguments([]byte(m[2])))
	}
	return line
}

var kernelLog = regexp.MustCompile(`(?i)^(.*\bkernel command line: |command line: )(.+)$`)

// objectsIn redacts JSON objects in a line as structures. The records of a log are JSON, too, and
// stay.
func objectsIn(line string) string {
	var out strings.Builder
	for !record.MatchString(line) {
		start := strings.Index(line, `{"`)
		if start < 0 {
			break
		}
		d := json.NewDecoder(strings.NewReader(line[start:]))
		d.UseNumber()
		var object map[string]any
		if d.Decode(&object) != nil {
			break
		}
		redacted, err := json.Marshal(Object(object))
		if err != nil {
			break
		}
		out.WriteString(line[:start])
		out.Write(redacted)
		line = line[start+int(d.InputOffset()):]
	}
	return out.String() + line
}

// continues reports whether a line belongs to the secret in the lines before it.
func (r *reader) continues(process, line string) bool {
	if r.isBelow(line) {
		return false // names with values of their own
	}
	if r.begins != nil {
		return !r.begins(process, line)
	}
	return !strings.HasPrefix(line, "$ ")
}

func keepEmpty(line string) string {
	if strings.TrimSpace(line) == "" {
		return line
	}
	return Marker
}

func indentation(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

var (
	publicBegin = regexp.MustCompile(`^\s*-----BEGIN (?:CERTIFICATE|PUBLIC KEY)-----$`)
	isMapping   = regexp.MustCompile(`^\s*(?:- )?([A-Za-z][\w.-]*):(?:\s+|$)`)
	keyEnd      = regexp.MustCompile(`-----END [A-Z ]*(?:PRIVATE KEY|MESSAGE|PRIVATE KEY BLOCK)[A-Z ]*-----`)
	beginBlock  = []byte("-----BEGIN ")
)

// cutKey takes out the end of a key whose beginning was cut off.
func cutKey(text []byte) []byte {
	at := keyEnd.FindIndex(text)
	if at == nil || bytes.Contains(text[:at[0]], beginBlock) {
		return text
	}
	return append([]byte(Marker), text[at[1]:]...)
}

// isOpen reports whether a secret that begins at an index continues on the next line.
func isOpen(line string, at int) bool {
	value := strings.TrimSpace(line[at:])
	return value == "" || strings.HasPrefix(value, "-----BEGIN") || strings.HasSuffix(value, `\`) || openBlock.MatchString(value) ||
		strings.Count(value, `"`)%2 == 1 || strings.Count(value, "'")%2 == 1 || strings.Count(value, "[") > strings.Count(value, "]") || strings.Count(value, "{") > strings.Count(value, "}")
}

var openBlock = regexp.MustCompile(`^[|>][-+0-9]*$`)

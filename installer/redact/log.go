package redact

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Line redacts a text without a structure, such as a message: from what looks like a secret to
// the end of the text, also if it has more lines.
func Line(text string) string {
	if strings.Contains(text, "\x1b") {
		text = colors.ReplaceAllString(text, "")
	}
	if redacted, ok := recordInJSON(text); ok {
		return redacted
	}
	text = objectsIn(text)
	if i := suspicion(text); i >= 0 {
		return text[:i] + Marker
	}
	return text
}

// Log redacts lines of a log: from what looks like a secret to the end of the line, and the
// lines that follow, up to the next one that begins as a record of a log does.
func Log(text []byte) []byte { return lines(text, isRecord, 0) }

// CutLines is the maximum number of lines of a secret whose beginning is missing.
const CutLines = 200

// End redacts the end of a log whose beginning is missing: its first lines may belong to a secret.
// End removes them up to the first line that begins a record, but no more than CutLines of each
// stream or process.
func End(text []byte) []byte { return lines(text, isRecord, CutLines) }

// Records redacts a text in which each line is a separate record, such as a table. Lines that
// follow an open quote, a name without a value or the beginning of a key are redacted, too.
func Records(text []byte) []byte { return lines(text, nil, 0) }

// logPrefix matches the prefix of a line in the CRI's log format or from journalctl. Its groups are
// the stream, the process with its number, and the process without it.
var logPrefix = regexp.MustCompile(`^(?:\S+ (stdout|stderr) [FP](?::\S*)?|[0-9-]+T[0-9:.,+-]+Z? \S+ (([^\s\[:]+)(?:\[[0-9]+\])?):)(?: |$)`)

// record matches the beginning of a record in the logs of Kubernetes' components, etcd,
// containerd, CoreDNS and flannel.
var record = regexp.MustCompile(`^\s*(?:[IWEF][0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.|time="?[0-9]{4}-|level=[a-z]+ |\{\s*(?:".*,\s*)?"(?:level|severity|ts|time|timestamp|@timestamp|msg|message)"\s*:\s*["0-9]|\[(?:INFO|WARNING|ERROR|DEBUG|FATAL)\] |[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T][0-9]{2}:)`)

// isRecord reports whether a line without its prefix begins a record. Each line of the kernel
// and of systemd does.
func isRecord(process, line string) bool {
	return process == "kernel" || process == "systemd" || record.MatchString(line)
}

// colors matches what terminals do not show: it may be between a name and its value.
var colors = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// lines redacts line by line, each stream and each process by itself. begins reports whether a line
// begins a record, which ends what follows a secret; nil means that each line begins a record,
// unless an earlier record is unfinished. Up to cut lines may belong to a secret that began before
// the text, except lines of a process that systemd starts in the text.
func lines(text []byte, begins func(process, line string) bool, cut int) []byte {
	readers := map[string]*reader{}
	of := func(source string) *reader {
		if readers[source] == nil {
			readers[source] = &reader{begins: begins, inside: cut > 0, cut: cut}
		}
		return readers[source]
	}
	r := of("") // a line without a prefix continues the one before it
	return eachLine(cutKey(JoinParts(colors.ReplaceAll(text, nil))), func(line string) string {
		m := logPrefix.FindStringSubmatch(line)
		if m == nil {
			return r.next("", line)
		}
		r = of(m[1] + m[2])
		rest := line[len(m[0]):]
		if m[3] == "systemd" && strings.HasPrefix(rest, "Start") {
			cut = 0
		}
		return m[0] + r.next(m[3], rest)
	})
}

var part = regexp.MustCompile(`^(\S+ (stdout|stderr) )([PF])((?::\S*)?(?: |$))`)

// JoinParts joins the records that the runtime wrote in parts, each stream by itself: a secret may
// begin in one part and end in another.
func JoinParts(text []byte) []byte {
	if !bytes.Contains(text, []byte(" P")) {
		return text
	}
	var out strings.Builder
	begun := map[string]*strings.Builder{} // the unfinished record of each stream
	for line := range strings.Lines(string(text)) {
		m := part.FindStringSubmatch(line)
		switch {
		case m == nil:
			out.WriteString(line)
			continue
		case begun[m[2]] == nil:
			begun[m[2]] = &strings.Builder{}
			begun[m[2]].WriteString(m[1] + "F" + m[4])
		}
		record := begun[m[2]]
		record.WriteString(strings.TrimRight(line[len(m[0]):], "\r\n"))
		if m[3] == "F" {
			out.WriteString(record.String() + "\n")
			delete(begun, m[2])
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(begun)) {
		out.WriteString(begun[stream].String() + "\n")
	}
	return []byte(out.String())
}

// A reader redacts the lines of a stream in their order.
type reader struct {
	begins    func(process, line string) bool
	inside    bool // after a secret that may continue
	cut       int  // how many more lines may belong to a secret that began before the text
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
		r.cut--
		r.inside = r.cut != 0
		return keepEmpty(line)
	}
	below := r.isBelow(line)
	if r.inside, r.cut = false, 0; !below {
		r.announced = 0
	}
	if redacted, ok := recordInJSON(line); ok {
		return redacted
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
		if r.inside = true; !below && strings.HasSuffix(strings.TrimSpace(line), ":") {
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

// mappedSecret returns the start of a value in a mapping below the name of a secret. It returns -1
// if the value is never a secret, or if its own name, such as secretName, shows that it is not a
// secret.
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
	if !strings.Contains(line, "ommand line: ") {
		return line
	}
	if m := kernelLog.FindStringSubmatch(line); m != nil {
		return m[1] + string(kernelArguments([]byte(m[2])))
	}
	return line
}

var kernelLog = regexp.MustCompile(`(?i)^(.*\bkernel command line: |command line: )(.+)$`)

// objectsIn redacts JSON objects in a line as structures.
func objectsIn(line string) string {
	var out strings.Builder
	for {
		start := objectBegin.FindStringIndex(line)
		if start == nil {
			break
		}
		d := json.NewDecoder(strings.NewReader(line[start[0]:]))
		d.UseNumber()
		var object map[string]any
		if d.Decode(&object) != nil {
			break
		}
		redacted, err := marshal(Object(object))
		if err != nil {
			break
		}
		out.WriteString(line[:start[0]] + redacted)
		line = line[start[0]+int(d.InputOffset()):]
	}
	return out.String() + line
}

var objectBegin = regexp.MustCompile(`\{\s*"`)

// recordInJSON redacts a record of a log that is a JSON object: texts as messages, lists and objects
// as structures. The fields keep their order.
func recordInJSON(line string) (string, bool) {
	if !strings.HasPrefix(line, "{") || !record.MatchString(line) {
		return "", false
	}
	d := json.NewDecoder(strings.NewReader(line))
	if _, err := d.Token(); err != nil {
		return "", false
	}
	var out strings.Builder
	done := 0
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return "", false
		}
		end := int(d.InputOffset())
		redacted, err := recordField(name.(string), value)
		if err != nil || Line(name.(string)) != name {
			return "", false
		}
		out.WriteString(line[done:end-len(value)] + redacted)
		done = end
	}
	_, err := d.Token()
	return out.String() + line[done:], err == nil && strings.TrimSpace(line[d.InputOffset():]) == ""
}

// recordField redacts a field of a record. A field without secrets is returned unchanged.
func recordField(name string, text json.RawMessage) (string, error) {
	v, err := decodeJSON(text)
	if err != nil {
		return "", err
	}
	redacted := recordValue(name, string(text), v)
	if reflect.DeepEqual(v, redacted) {
		return string(text), nil
	}
	return marshal(redacted)
}

func recordValue(name, text string, v any) any {
	if isSecretValue(name, ':', text) {
		return Marker
	}
	switch v := v.(type) {
	case string:
		return Line(v)
	case []any:
		if argumentNames[name] {
			return argumentList(true)(v)
		}
		return each(v, func(item any) any {
			if s, ok := item.(string); ok && (harmlessFlags[name] || recordLists[name]) {
				return Line(s)
			}
			return branches(item, recordNames)
		})
	case map[string]any:
		return branches(v, recordNames)
	}
	return v
}

func marshal(v any) (string, error) {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(out.String(), "\n"), err
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

// cutKey removes the end of a key whose beginning was cut off.
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
	return value == "" || strings.Contains(line, "-----BEGIN") || strings.Contains(line, "PRIVATE KEY") || strings.HasSuffix(value, `\`) || openBlock.MatchString(value) ||
		strings.Count(value, `"`)%2 == 1 || strings.Count(value, "'")%2 == 1 || strings.Count(value, "[") > strings.Count(value, "]") || strings.Count(value, "{") > strings.Count(value, "}") || strings.Count(value, "(") > strings.Count(value, ")")
}

var openBlock = regexp.MustCompile(`^(?:#.*|(?:.*\s)?[|>][-+0-9]*|<<[-~]?['"]?\w+['"]?)$`)

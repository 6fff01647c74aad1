package redact

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// hidden are the secrets that have a form of their own in a text, and the places where the components of a node
// print objects of others: the kubelet the command of a probe and, in older versions, a container with its environment;
// containerd the configuration of its CRI plugin, which may have passwords of registries. Nothing else in
// a text is taken out. A text without needs is not searched.
var hidden = []struct {
	needs   string
	pattern *regexp.Regexp
	shown   string
}{
	{"-----BEGIN ", pemBlock, Marker},
	{"LS0tLS1CRUdJTi", regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]+`), Marker}, // a PEM block in base64
	{"AGE-SECRET-KEY-", regexp.MustCompile(`AGE-SECRET-KEY-[0-9A-Z]+`), Marker},
	{"eyJ", regexp.MustCompile(`eyJ[\w-]{10,}(?:\.[\w-]*)*`), Marker},              // a JSON web token
	{".", regexp.MustCompile(`\b([a-z0-9]{6})\.[a-z0-9]{16}\b`), "${1}." + Marker}, // a bootstrap token: its first part is public
	{"earer", regexp.MustCompile(`(\b[Bb]earer[ "':=\\]+)[A-Za-z0-9+/._~=-]{16,}`), "${1}" + Marker},
	{"asic", regexp.MustCompile(`(\b[Bb]asic[ "':=\\]+)[A-Za-z0-9+/._~=-]{16,}`), "${1}" + Marker},
	{"ertificate", regexp.MustCompile(`(\b[Cc]ertificate[ -]?[Kk]ey["':= ]{1,4})[0-9a-f]{64}\b`), "${1}" + Marker},
	{"@", regexp.MustCompile(`(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s"'<>]*@`), "${1}" + Marker + "@"},
	{"ommand line: ", regexp.MustCompile(`(\b[Cc]ommand line: ).*`), "${1}" + Marker}, // the kernel's
	{"cmd=[", regexp.MustCompile(`(\bcmd=\[).*`), "${1}" + Marker},
	{"Container{", regexp.MustCompile(`(&\w*Container\{)(?:.*\}|.*)`), "${1}" + Marker + "}"},
	// What the kubelet and containerd say of hooks, commands that do not exist, and mounts.
	{"ommand '", regexp.MustCompile(`(?s)(\b[Cc]ommand ').*`), "${1}" + Marker},
	{"ifecycle hook (", regexp.MustCompile(`(?s)(\blifecycle hook \().*`), "${1}" + Marker},
	{"exec: ", regexp.MustCompile(`(?s)(\bexec: \\*"[^"\\\s]*\s).*`), "${1}" + Marker}, // with arguments in one word
	{"ounting arguments: ", regexp.MustCompile(`(?s)(\b[Mm]ounting arguments: ).*`), "${1}" + Marker},
	{"[systemd-run] ", regexp.MustCompile(`(\[systemd-run\] ).*`), "${1}" + Marker}, // the description of a unit
	// An API server with --audit-log-path=-.
	{"audit.k8s.io/", regexp.MustCompile(`\{.*"apiVersion":"audit\.k8s\.io/.*`), Marker},
	{"?", regexp.MustCompile(`(?i)([?&][\w.-]*(?:token|secret|pass|pwd|signature|credential|key)[\w.-]*=)[^&\s"'\\]+`), "${1}" + Marker}, // in the query of a URL
	{"config", regexp.MustCompile(`(\bconfig=\\*"?|with config )\{.*`), "${1}" + Marker},
}

// Line redacts a text without a structure, such as a message.
func Line(text string) string {
	for _, h := range hidden {
		if strings.Contains(text, h.needs) {
			text = h.pattern.ReplaceAllString(text, h.shown)
		}
	}
	return text
}

// Log redacts a log, of which a line may be in parts. The expressions are fast with short texts.
func Log(text []byte) []byte {
	return eachLine(pemBlock.ReplaceAll(JoinParts(text), []byte(Marker)), Line)
}

// End redacts a log whose beginning is missing: it may begin within a key.
func End(text []byte) []byte {
	if at := keyEnd.FindIndex(text); at != nil && !bytes.Contains(text[:at[0]], []byte("-----BEGIN ")) {
		text = append([]byte(Marker), text[at[1]:]...)
	}
	return Log(text)
}

var (
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\z)`)
	keyEnd   = regexp.MustCompile(`-----END [A-Z0-9 ]+-----`)
	part     = regexp.MustCompile(`^(\S+ (stdout|stderr) )([PF])((?::\S*)?(?: |$))`)
)

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

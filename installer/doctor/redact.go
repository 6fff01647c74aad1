package doctor

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
)

// redacted replaces what is taken out.
const redacted = "[redacted]"

// secretName matches the end of a name whose value is a secret. Names such as
// service-account-key-file, tokenTTL, secretName and authorization-mode are not among them.
const secretName = `[-\w.]*?(?:password|passwd|passphrase|passwort|pwd|secret|token|api[-_]?key|access[-_]?key(?:[-_]?id)?|secret[-_]?key|private[-_]?key|` +
	`signing[-_]?key|encryption[-_]?key|client-key-data|certificate[-_]?key|credentials?|auth|authorization|bearer|cookie|session[-_]?key|identitytoken|registrytoken|license[-_]?key)`

// A rule replaces all matches of a pattern.
type rule struct {
	pattern *regexp.Regexp
	with    string
}

// rules are applied in this order.
var rules = []rule{
	// Private keys in PEM, also with escaped line ends as in JSON, and indented as in YAML;
	// also one that was cut off.
	{regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`), "[redacted private key]"},
	// The rest of one whose beginning was cut off.
	{regexp.MustCompile(`\A(?:[A-Za-z0-9+/= \t]*\r?\n)+[ \t]*-----END [A-Z0-9 ]*PRIVATE KEY-----`), "[redacted private key]"},
	{regexp.MustCompile(`AGE-SECRET-KEY-1[A-Z0-9]+`), redacted},
	{regexp.MustCompile(`(?i)\b(bearer|basic)([ :]+)[A-Za-z0-9._~+/=-]{8,}`), "$1$2" + redacted},
	// JSON web tokens, such as those of service accounts.
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*)?`), redacted},
	// Bootstrap tokens: the first part is the public ID.
	{regexp.MustCompile(`\b([a-z0-9]{6})\.[a-z0-9]{16}\b`), "$1." + redacted},
	{regexp.MustCompile(`(://[^/\s:@"']*):[^/\s@"']+@`), "$1:" + redacted + "@"},
	// Environment variables of a container, whose name and value are on two lines, or two
	// fields in JSON.
	{regexp.MustCompile(`(?i)("?\bname"?\s*:\s*"?` + secretName + `"?(?:\s*,\s*|\s*\n[^\n]{0,120}?)"?\bvalue"?\s*:\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}]+[^\n,}]*)`), "${1}" + redacted},
	// A flag with its value as the next word.
	{regexp.MustCompile(`(?i)(--` + secretName + `[ \t]+)("[^"]*"|'[^']*'|[^\s"'-][^\s"']*)`), "${1}" + redacted},
	// The same in JSON that is a string in JSON.
	{regexp.MustCompile(`(?i)(\b` + secretName + `\\+"\s*:\s*\\+")[^"\\]+`), "${1}" + redacted},
	// name: "value", "name": "value", NAME='value'.
	{regexp.MustCompile(`(?i)(\b` + secretName + `\\?["']?[ \t]*[:=][ \t]*\\?)("(?:[^"\\]|\\.)+"|'[^']+')`), `${1}"` + redacted + `"`},
}

// block matches a name whose value is the following, deeper lines, as in YAML.
var block = regexp.MustCompile(`(?i)^(\s*-?\s*)["']?` + secretName + `["']?\s*:\s*[|>][-+0-9]*\s*$`)

// plain matches a name with a value without quotes. Values that are not secrets are kept: see
// harmless.
var plain = regexp.MustCompile(`(?i)(\b` + secretName + `["']?[ \t]*[:=][ \t]*)([^\s"'\\,;}\]{\[|>&][^\s,;}\]"']*)`)

// harmless matches values that help and are not secret: yes or no, a path, nothing.
var harmless = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|null|none|nil|~|enabled|disabled|/[^\s]*|unix:.*|\[redacted.*|<[a-z ]+>)$`)

// encoded matches what may be base64, as in kubeconfigs.
var encoded = regexp.MustCompile(`[A-Za-z0-9+/]{60,}={0,2}`)

// Redact takes secrets out of a text: private keys, tokens, passwords, headers with
// credentials, certificate keys, and variables whose names look secret. It keeps
// certificates, digests and names.
func Redact(text []byte) []byte {
	text = redactBlocks(text)
	for _, r := range rules {
		text = r.pattern.ReplaceAll(text, []byte(r.with))
	}
	text = plain.ReplaceAllFunc(text, func(match []byte) []byte {
		parts := plain.FindSubmatch(match)
		if harmless.Match(parts[2]) {
			return match
		}
		return append(bytes.Clone(parts[1]), redacted...)
	})
	return encoded.ReplaceAllFunc(text, func(match []byte) []byte {
		if hidesKey(string(match)) {
			return []byte("[redacted private key]")
		}
		return match
	})
}

// hidesKey reports whether a text is a private key in base64, at any depth.
func hidesKey(text string) bool {
	for range 3 {
		data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
		if err != nil {
			return false
		}
		if bytes.Contains(data, []byte("PRIVATE KEY")) || !bytes.Equal(Redact(data), data) && printable(data) {
			return true
		}
		text = strings.TrimSpace(string(data))
		if !encoded.MatchString(text) {
			return false
		}
	}
	return false
}

// printable reports whether data is text.
func printable(data []byte) bool {
	return !bytes.ContainsFunc(data, func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == '\uFFFD' })
}

// logPrefix is what a container's log or the journal puts before each line.
var logPrefix = regexp.MustCompile(`^(?:\S+ (?:stdout|stderr) [FP] |[0-9-]+T[0-9:.,+-]+ \S+ [^\s\[]+\[[0-9]+\]: )`)

// redactBlocks takes out the deeper lines after a secret name.
func redactBlocks(text []byte) []byte {
	if !bytes.Contains(text, []byte("\n")) {
		return text
	}
	var out bytes.Buffer
	inside, indent := false, 0
	for line := range bytes.Lines(text) {
		text := line[len(logPrefix.Find(line)):]
		depth := len(text) - len(bytes.TrimLeft(text, " \t"))
		blank := len(bytes.TrimSpace(text)) == 0
		if inside && (blank || depth > indent) {
			continue
		}
		inside = false
		out.Write(line)
		if block.Match(bytes.TrimRight(text, "\r\n")) {
			inside, indent = true, depth
			out.WriteString(strings.Repeat(" ", depth+2) + redacted + "\n")
		}
	}
	return out.Bytes()
}

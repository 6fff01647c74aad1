// Package redact removes secrets from data that is shown or sent to others. It decodes structured
// data, redacts it and encodes it again: it keeps only values that a list or a Kubernetes type
// marks as harmless. In a text without a structure, such as a log, it takes out only secrets that have
// a form of their own. Marker replaces everything that was removed.
package redact

import (
	"bytes"
	"path"
	"reflect"
	"regexp"
	"strings"
)

// Marker replaces what was taken out.
const Marker = "[redacted]"

// A Form redacts a text of one form, such as YAML or a log.
type Form func(text []byte) []byte

// files are the forms of files, by patterns of their paths. The first match counts.
var files = []struct {
	pattern string
	form    Form
}{
	{"/etc/kubernetes/manifests/*", Documents},
	{"/etc/kubernetes/*.conf", Documents},
	{"/var/lib/kubelet/*.yaml", Documents},
	{"/etc/cni/net.d/*", Documents},
	{"/etc/containerd/*", TOML},
	{"/etc/containerd/*/*", TOML},
	{"/etc/containerd/*/*/*", TOML},
	{"/etc/default/*", Environment},
	{"/etc/sysconfig/*", Environment},
	{"/etc/os-release", Environment},
	{"/*/*/*.env", Environment},
	{"/*/*/*/*.env", Environment},
	{"/*/systemd/system/*", Unit},
	{"/*/systemd/system/*/*", Unit},
	{"/*/*/systemd/system/*", Unit},
	{"/*/*/systemd/system/*/*", Unit},
	{"/etc/fstab", mounts},
	{"/etc/hosts", words(hostsLine)},
	{"/etc/resolv.conf", words(resolverLine)},
	{"/etc/nsswitch.conf", words(switchLine)},
	{"/etc/modules-load.d/*", modules},
	{"/etc/sysctl.d/*", parameters},
}

// File returns the form of a file of a host. Of a file with an unknown form, nothing is kept.
func File(name string) Form {
	for _, f := range files {
		if ok, _ := path.Match(f.pattern, name); ok { // the patterns are valid
			return f.form
		}
	}
	return func(text []byte) []byte { return opaque(text, "a file of an unknown form", nil) }
}

// commands are the forms of commands' output, by the beginning of the command line.
var commands = []struct {
	begin string
	form  Form
}{
	{"journalctl", End},
	{"systemctl status", tree},
	{"systemd-cgls", tree},
	{"systemctl show", properties},
	{"systemctl cat", Unit},
	{"sysctl -a", parameters},
	{"crictl info", runtimeInfo},
	{"cat /proc/cmdline", kernelArguments},
}

// Command returns the form of a command's output.
func Command(line string) Form {
	for _, c := range commands {
		if strings.HasPrefix(line, c.begin) {
			return c.form
		}
	}
	return Log
}

// runtimeInfo redacts the CRI's description of containerd, which has its configuration.
func runtimeInfo(text []byte) []byte {
	return rewrite(text, func(v any) any { return named(v, runtimeNames) })
}

// As returns the form of JSON that has the fields of a type. Other fields are taken out.
func As[T any]() Form {
	return func(text []byte) []byte {
		return rewrite(text, func(v any) any { return document(v, reflect.TypeFor[T]()) })
	}
}

// opaque replaces a text that cannot be decoded: what cannot be read cannot be judged. Of err,
// only the line is shown: messages of decoders quote the text.
func opaque(text []byte, why string, err error) []byte {
	if len(bytes.TrimSpace(text)) == 0 || bytes.HasPrefix(text, []byte(Marker)) {
		return text
	}
	why = Marker + ": " + why
	if err != nil {
		if line := errorLine.FindString(err.Error()); line != "" {
			why += ", " + line
		}
	}
	return []byte(why + "\n")
}

var errorLine = regexp.MustCompile(`\bline [0-9]+`)

// Lines of files that have only harmless words.
var (
	hostsLine    = regexp.MustCompile(`^(?:[0-9]+\.[0-9.]+|[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f.]*)(%[\w.-]+)?([ \t]+[A-Za-z0-9._-]+)+[ \t]*$`)
	resolverLine = regexp.MustCompile(`^(nameserver|search|domain|options|sortlist)([ \t]+[A-Za-z0-9.:_/%-]+)+[ \t]*$`)
	switchLine   = regexp.MustCompile(`^[a-z]+:([ \t]+(files|dns|systemd|compat|db|myhostname|mymachines|resolve|nis|sss|ldap|winbind|mdns4?(_minimal)?|\[[!A-Z]+=[a-z]+\]))*[ \t]*$`)
	moduleLine   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*[ \t]*$`)
	sysctlName   = regexp.MustCompile(`^-?(abi|crypto|debug|dev|fs|fscache|kernel|net|sunrpc|user|vm)([./][a-zA-Z0-9_*-]+)+[ \t]*$`) // the directories in /proc/sys
	sysctlSecret = regexp.MustCompile(`(?:key|secret|seed)[ \t]*$`)
	sysctlValue  = regexp.MustCompile(`^[ \t]*(-?[0-9]{1,20}([ \t]+-?[0-9]{1,20})*|[a-z_]{1,16}([ \t]+[a-z_]{1,16})*|\|?/[\w./ %-]+|Linux|[a-z0-9]+(-[a-z0-9]+)*\.[\w.+~-]+|\(none\)|)[ \t]*$`)
)

// words returns the form of a file whose lines are kept if they match. Comments are removed: they
// may be disabled configuration lines.
func words(line *regexp.Regexp) Form {
	return func(text []byte) []byte {
		return oneMarker(eachLine(text, func(s string) string {
			if strings.TrimSpace(s) == "" || line.MatchString(s) {
				return s
			}
			return Marker
		}))
	}
}

// modules redacts a list of modules. Each word may be one: if another line is none, the text is something else.
func modules(text []byte) []byte {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && line != Marker && !strings.ContainsAny(line[:1], "#;") && !moduleLine.MatchString(line) {
			return opaque(text, "not a list of modules", nil)
		}
	}
	return words(moduleLine)(text)
}

// parameters redacts the kernel's parameters: numbers and words are kept, unless the name is the
// name of a key.
func parameters(text []byte) []byte {
	return oneMarker(eachLine(text, func(s string) string {
		name, value, assigned := strings.Cut(s, "=")
		switch {
		case strings.TrimSpace(s) == "":
			return s
		case !sysctlName.MatchString(name), !assigned && s[0] != '-': // "-name" alone excludes a parameter
			return Marker
		case sysctlSecret.MatchString(name), !sysctlValue.MatchString(value):
			return name + "= " + Marker
		}
		return s
	}))
}

// oneMarker makes one marker of several lines of them.
func oneMarker(text []byte) []byte {
	return markers.ReplaceAll(text, []byte(Marker+"\n"))
}

var markers = regexp.MustCompile(`(?m)(?:^` + regexp.QuoteMeta(Marker) + `\n){2,}`)

// eachLine changes each line of a text, which has no line end.
func eachLine(text []byte, change func(string) string) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		body := strings.TrimRight(line, "\r\n")
		out.WriteString(change(body))
		if body != line {
			out.WriteByte('\n')
		}
	}
	return []byte(out.String())
}

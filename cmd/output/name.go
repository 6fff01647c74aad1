// Package output prints the results of a command: texts, which name the command as the user started it,
// and documents in the formats of kubeadm's --output.
package output

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"airlift/installer/host"
	"airlift/internal/fault"
)

// Written is how all texts of Airlift write the command: in hints, help and results, in all
// packages. What leaves this process has the name of the user's file instead: see Text.
const Written = "./install"

// A Name is how the user writes this command.
type Name struct {
	Here  string // on this host, as it was started
	There string // on another host, to which the file was copied
	File  string // for what only a file with a payload can do; "" if this process is from one
}

// NameOf returns the name of a command that was started as arg0, from the bundle file at path,
// if there is one.
func NameOf(arg0, path string) Name { return nameOf(arg0, path, host.CommandPath) }

// nameOf is NameOf for a host with the command airlift at command.
func nameOf(arg0, path, command string) Name {
	typed := arg0
	switch found, err := exec.LookPath(arg0); {
	case path == "" && (arg0 == command || err == nil && sameFile(found, command)):
		name := filepath.Base(command)
		here := name
		if found, err := exec.LookPath(name); err != nil || !sameFile(found, command) { // sudo may have another PATH
			here = command
		}
		return Name{here, name, Written}
	case strings.Contains(arg0, "/"):
	case err != nil || path != "" && !sameFile(found, path): // coreutils has an install in PATH
		typed = path
	}
	here, there := shellWord(typed), shellWord("./"+filepath.Base(typed))
	if here == "" || there == "" {
		return Name{Here: Written, There: Written}
	}
	return Name{Here: here, There: there}
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./@%:+,=-]+$`)

// shellWord quotes a path for a shell, so that it also fits into a string of JSON. It returns ""
// if that is not possible.
func shellWord(path string) string {
	switch {
	case plainWord.MatchString(path):
		return path
	case strings.ContainsAny(path, "'\"\\") || !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }):
		return ""
	}
	return "'" + path + "'"
}

// afterName matches what follows the name of the command if it is a part of a longer name.
var afterName = regexp.MustCompile(`^(?:[A-Za-z0-9_-]|[./][A-Za-z0-9_])`)

// NeedFile are the commands that need a payload, and NeedNone are those below them that do not.
var (
	NeedFile = []string{"init", "join", "import", "apply", "packages", "preflight", "thin", "adopt", "reconfigure", "upgrade", "images", "cluster", "config images", "registry enable", "etcd restore"}
	NeedNone = []string{"packages remove", "upgrade undo", "reconfigure undo", "reconfigure print", "images unpin", "cluster example"}
)

var needFile, needNone = oneOf(NeedFile), oneOf(NeedNone)

// oneOf matches what follows the name of the command in one of the commands.
func oneOf(commands []string) *regexp.Regexp {
	return regexp.MustCompile(`^ (?:` + strings.Join(commands, "|") + `)(?:[^\w-]|$)`)
}

// joinAddress matches the arguments of a join command, which is for another host.
var joinAddress = regexp.MustCompile(`^ join [^\s:]*:`)

// onAnother matches the words before a command for another host.
var onAnother = regexp.MustCompile(`(?:\bthere(?: as root)?:?|\b[Oo]n (?:the|these) other(?:s| nodes| control planes):|\bon (?:each of them|all control planes first|another control plane|its host|the control plane):|\b[Oo]n these nodes(?:, control planes first)?:(?:\s+[a-z0-9.-]+)*|On control planes, add the key that the first one printed:)\s+$`)

// onAnotherAfter matches what follows the name in a command for another host.
var onAnotherAfter = regexp.MustCompile(`^(?: [a-z-]+)+ (?:there|on (?:the others|the other nodes|the other control planes|these nodes|its host))\b`)

// in replaces the command's name in a text.
func (n Name) in(text string) string {
	if n.Here == Written {
		return text
	}
	var out strings.Builder
	for {
		at := strings.Index(text, Written)
		if at < 0 {
			return out.String() + text
		}
		before, after := text[:at], text[at+len(Written):]
		name := n.Here
		switch {
		case afterName.MatchString(after) || before != "" && strings.ContainsAny(before[len(before)-1:], "./_-") || strings.HasSuffix(before, "~"):
			name = Written
		case n.File != "" && needFile.MatchString(after) && !needNone.MatchString(after):
			name = n.File
		case joinAddress.MatchString(after), onAnother.MatchString(before), onAnotherAfter.MatchString(after):
			name = n.There
		}
		if outside, quoted := strings.CutSuffix(before, "'"); quoted && name[0] == '\'' { // quotes in quotes end them
			if arguments, rest, found := strings.Cut(after, "'"); found {
				before, after = outside, arguments+rest
			}
		}
		out.WriteString(before + name)
		text = after
	}
}

// A Text is an output for texts of Airlift. Kubelets, pods, other hosts and files worded parts of them: what could control a
// terminal becomes "?".
type Text struct {
	Name  Name
	Out   io.Writer
	Given *Given // may be nil
	raw   bool
}

// Raw is the same output for what draws on a terminal, and for documents.
func (t Text) Raw() io.Writer {
	t.raw = true
	return t
}

// Fd is the file descriptor, of a terminal perhaps. It is -1 if there is none.
func (t Text) Fd() uintptr {
	if f, ok := t.Out.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

func (t Text) Write(p []byte) (int, error) {
	text := string(p)
	if !t.raw {
		text = fault.Printable(text)
	}
	if _, err := io.WriteString(t.Out, t.Name.in(t.Given.in(text))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString must also use Write.
func (t Text) WriteString(s string) (int, error) { return t.Write([]byte(s)) }

// Verbatim returns the output below out for content that Airlift did not word: archives, manifests,
// configuration.
func Verbatim(out io.Writer) io.Writer {
	switch o := Documents(out).(type) {
	case Text:
		return o.Out
	case document:
		return document{Verbatim(o.Writer), o.events}
	default:
		return o
	}
}

// Named replaces the command's name in text, as out does.
func Named(out io.Writer, text string) string {
	switch o := Documents(out).(type) {
	case Text:
		return o.Name.in(o.Given.in(text))
	case document:
		return Named(o.Writer, text)
	}
	return text
}

package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"airlift/installer/host"
	"airlift/interrupt"
)

// written is how all texts of Airlift write the command: in hints, help and results, in all
// packages. What leaves this process has the name of the user's file instead: see textOutput.
const written = "./install"

// ownName is how the user writes this command.
type ownName struct {
	here  string // on this host, as it was started
	there string // on another host, to which the file was copied
}

// ownCommand is this command's. It is set once, before anything is printed.
var ownCommand = ownName{written, written}

// nameOf returns the name of a command that was started as arg0, from the bundle file at path,
// if there is one.
func nameOf(arg0, path string) ownName {
	typed := arg0
	switch found, err := exec.LookPath(arg0); {
	case arg0 == host.StubPath: // a timer's copy, which has no bundle: the file is elsewhere
		return ownName{written, written}
	case strings.Contains(arg0, "/"):
	case err != nil || path != "" && !sameFile(found, path): // coreutils has an install in PATH
		typed = path
	}
	here, there := shellWord(typed), shellWord("./"+filepath.Base(typed))
	if here == "" || there == "" {
		return ownName{written, written}
	}
	return ownName{here, there}
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

// joinAddress matches the arguments of a join command, which is for another host.
var joinAddress = regexp.MustCompile(`^ join [^\s:]*:`)

// onAnother matches what precedes a command for another host.
var onAnother = regexp.MustCompile(`(?:\bthere(?: as root)?:?|\b[Oo]n (?:the|these) other(?:s| nodes| control planes):|\bon (?:each of them|all control planes first|another control plane|its host|the control plane):|\b[Oo]n these nodes(?:, control planes first)?:(?:\s+[a-z0-9.-]+)*|On control planes, add the key that the first one printed:)\s+$`)

// onAnotherAfter matches what follows the name in a command for another host.
var onAnotherAfter = regexp.MustCompile(`^(?: [a-z-]+)+ (?:there|on (?:the others|the other nodes|the other control planes|these nodes|its host))\b`)

// in replaces the command's name in a text.
func (n ownName) in(text string) string {
	if n.here == written && n.there == written {
		return text
	}
	var out strings.Builder
	for {
		at := strings.Index(text, written)
		if at < 0 {
			return out.String() + text
		}
		before, after := text[:at], text[at+len(written):]
		name := n.here
		switch {
		case afterName.MatchString(after) || before != "" && strings.ContainsAny(before[len(before)-1:], "./_-") || strings.HasSuffix(before, "~"):
			name = written
		case joinAddress.MatchString(after), onAnother.MatchString(before), onAnotherAfter.MatchString(after):
			name = n.there
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

// A textOutput is an output for texts of Airlift.
type textOutput struct{ out interrupt.Output }

// Fd is the file descriptor: of a terminal, perhaps.
func (o textOutput) Fd() uintptr { return o.out.Fd() }

func (o textOutput) Write(p []byte) (int, error) {
	if _, err := io.WriteString(o.out, ownCommand.in(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString must also use Write.
func (o textOutput) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

// verbatim returns the standard output for what is not a text of Airlift: archives, manifests,
// configuration.
func verbatim(cmd *cobra.Command) io.Writer {
	if o, ok := cmd.OutOrStdout().(textOutput); ok {
		return o.out
	}
	return cmd.OutOrStdout()
}

// inDocument replaces the command's name in the strings of a document, and returns its JSON.
func (n ownName) inDocument(document any) ([]byte, error) {
	data, err := json.Marshal(document)
	return []byte(n.in(string(data))), err
}

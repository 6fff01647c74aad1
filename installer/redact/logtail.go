package redact

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tailSize is how many bytes at the end of a log are read. A Go process that panics writes
// the stacks of its goroutines after the error.
const tailSize = 256 << 10

// LogTail returns the last lines of a container's log file, without the stacks and the usage
// text that may follow the error, for the user of this host. It returns none if the file cannot be read.
func LogTail(file string, lines int) []string {
	return logTail(file, lines, JoinParts, JoinParts)
}

// RedactedLogTail is LogTail, redacted for output that leaves this host.
func RedactedLogTail(file string, lines int) []string {
	return logTail(file, lines, Log, End)
}

// logTail redacts a complete log with the form whole, and a log without its beginning with the form
// end. It does so before it cuts: a secret may begin in an earlier line.
func logTail(file string, lines int, whole, end Form) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-tailSize), io.SeekStart)
	}
	data, err := io.ReadAll(io.LimitReader(f, tailSize))
	if err != nil {
		return nil
	}
	form := whole
	if len(data) == tailSize || Rotated(file) {
		form = end
	}
	all := messages(form(data))
	if i := slices.IndexFunc(all, isAppendix); i > 0 {
		all = all[:i]
	}
	return all[max(0, len(all)-lines):]
}

// Rotated reports whether a container's log has an earlier part: the kubelet rotates at any line.
func Rotated(file string) bool {
	earlier, _ := filepath.Glob(file + ".*") // the pattern is valid
	return len(earlier) > 0
}

// messages returns the messages in the CRI's log format, of which JoinParts has joined the
// parts: each line is a time, a stream, a tag and the text. It omits empty messages, and a first
// line that is cut off.
func messages(log []byte) (all []string) {
	for line := range strings.Lines(string(log)) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), " ", 4)
		if len(fields) < 4 || fields[1] != "stdout" && fields[1] != "stderr" {
			continue
		}
		if text := strings.TrimRight(fields[3], " \t\r"); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// isAppendix reports whether a line begins what follows an error: the stack of a goroutine,
// or a command's usage text.
func isAppendix(line string) bool {
	return strings.HasPrefix(line, "goroutine ") || strings.HasPrefix(line, "Usage")
}

package store

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"

	"airlift/installer/redact"
)

// tailSize is how many bytes at the end of a log are read. A Go process that panics writes
// the stacks of its goroutines after the error.
const tailSize = 256 << 10

// LogTail returns the last lines of a container's log file, without the stacks and the usage
// text that may follow the error, redacted. It returns none if the file cannot be read.
func LogTail(file string, lines int) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-tailSize), io.SeekStart)
	}
	data, err := io.ReadAll(io.LimitReader(f, tailSize))
	if err != nil {
		return nil
	}
	all := redact.Lines(messages(data)) // before they are cut: a secret may begin in an earlier line
	if i := slices.IndexFunc(all, isAppendix); i > 0 {
		all = all[:i]
	}
	return all[max(0, len(all)-lines):]
}

// messages returns the messages in the CRI's log format: each line is a time, a stream, P for
// a part of a message or F for its end, and the text. It omits empty messages, and a first
// line that is cut off.
func messages(log []byte) (all []string) {
	var message strings.Builder
	for line := range bytes.Lines(log) {
		fields := bytes.SplitN(bytes.TrimRight(line, "\n"), []byte(" "), 4)
		if len(fields) < 4 || string(fields[1]) != "stdout" && string(fields[1]) != "stderr" {
			continue
		}
		message.Write(fields[3])
		if string(fields[2]) == "P" {
			continue
		}
		if text := strings.TrimRight(message.String(), " \t\r"); text != "" {
			all = append(all, text)
		}
		message.Reset()
	}
	return all
}

// isAppendix reports whether a line begins what follows an error: the stack of a goroutine,
// or a command's usage text.
func isAppendix(line string) bool {
	return strings.HasPrefix(line, "goroutine ") || strings.HasPrefix(line, "Usage")
}

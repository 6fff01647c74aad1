package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"airlift/internal/childprocess"
)

// stopTime is how long a command that is interrupted may take to end between two changes.
const stopTime = time.Minute

// RunCopy runs a command with the copy of the installer, and shows what it prints on console.
func RunCopy(console io.Writer) func(ctx context.Context, args []string, stdin []byte) error {
	return func(ctx context.Context, args []string, stdin []byte) error {
		last := &lastError{}
		c := childprocess.Command(ctx, Installer, args...)
		c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(stdin), console, io.MultiWriter(console, last)
		// In a group of its own, it gets one signal, and not also the terminal's: a second one would end it at once.
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		c.WaitDelay = stopTime
		err := c.Run()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && last.text != "" {
			return fmt.Errorf("%s: %s", args[0], last.text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		return nil
	}
}

// lastError keeps the text of the last line with an error.
type lastError struct {
	line []byte
	text string
}

// maxLine is how much of a line is kept.
const maxLine = 4 << 10

func (l *lastError) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' {
			if len(l.line) < maxLine {
				l.line = append(l.line, c)
			}
			continue
		}
		if text, found := strings.CutPrefix(string(l.line), "error: "); found {
			l.text = text
		}
		l.line = l.line[:0]
	}
	return len(p), nil
}

package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"airlift/installer/redact"
	"airlift/internal/childprocess"
)

// commands returns a source with what stock commands print, each after its command line, and
// redacted in its own form. A command that this host does not have is named.
func commands(name string, list ...string) source {
	return source{name, redacted, func(ctx context.Context) ([]byte, error) {
		var out bytes.Buffer
		for _, line := range list {
			fmt.Fprintf(&out, "$ %s\n", line)
			out.Write(output(ctx, line))
			out.WriteByte('\n')
			if err := ctx.Err(); err != nil {
				return out.Bytes(), err
			}
		}
		return out.Bytes(), nil
	}}
}

// redacted is the form for text that is already redacted.
func redacted(text []byte) []byte { return text }

// output returns what a command prints, redacted, or why it could not run.
func output(ctx context.Context, line string) []byte {
	args := strings.Fields(line)
	cmd := childprocess.Command(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(cmd.Env, "LC_ALL=C", "PAGER=cat", "SYSTEMD_COLORS=0")
	var out, messages tail
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Appendf(nil, "(this host has no command %s)\n", args[0])
	}
	text := append(redact.Command(line)(out.kept), redact.Log(messages.kept)...)
	if err != nil {
		return fmt.Appendf(text, "(%v)\n", err)
	}
	return text
}

// A tail keeps the last bytes that are written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*entryLimit {
		t.kept = bytes.Clone(t.kept[len(t.kept)-entryLimit:])
	}
	return len(p), nil
}

// file returns a source with a file of the host, which need not exist. A file is read as a whole:
// the end of a configuration may look like something else.
func (d *Doctor) file(name, path string, form redact.Form) source {
	return source{name, form, func(context.Context) ([]byte, error) {
		text, cut, err := d.readEnd(path)
		if cut {
			return nil, fmt.Errorf("the file has more than %d bytes", entryLimit)
		}
		return text, err
	}}
}

// files returns a source for each file that a pattern matches, below a directory in the
// archive.
func (d *Doctor) files(directory string, patterns ...string) (list []source) {
	for _, pattern := range patterns {
		found, _ := filepath.Glob(d.Host.Path(pattern)) // the patterns are valid
		slices.Sort(found)
		for _, file := range found {
			path := strings.TrimPrefix(file, strings.TrimSuffix(d.Host.Path("/"), "/"))
			list = append(list, d.file(directory+path, path, redact.File(path)))
		}
	}
	return list
}

// readEnd reads the end of a file of the host, and reports whether its beginning was left out. A
// file that does not exist is empty.
func (d *Doctor) readEnd(path string) (text []byte, cut bool, err error) {
	f, err := os.Open(d.Host.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, false, err
	}
	if size := info.Size(); size > entryLimit {
		cut = true
		if _, err := f.Seek(size-entryLimit, 0); err != nil {
			return nil, cut, err
		}
	}
	var out tail
	_, err = io.Copy(&out, f)
	return out.kept, cut, err
}

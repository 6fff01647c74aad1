package sitefile

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"airlift/fault"
)

// maxSize is the maximum size of bundle.yaml in bytes. Manifests and files are not in it, so
// a larger one is another file by mistake.
const maxSize = 4 << 20

// A reader reads one file and collects all of its problems, so that the user can correct them
// at once.
type reader struct {
	path     string
	given    func(field string) bool
	root     yaml.Node // for lines
	problems []problem
	written  map[string]string // paths in the file, by the path that is opened
}

type problem struct {
	line       int
	text, hint string
}

func (r *reader) problem(line int, hint, format string, args ...any) {
	r.problems = append(r.problems, problem{line, fmt.Sprintf(format, args...), hint})
}

// at is a place in the file for messages: "bundle.yaml:12".
func (r *reader) at(line int) string { return fmt.Sprintf("%s:%d", r.path, line) }

// resolve returns a path that is relative to the file's directory.
func (r *reader) resolve(path string) string {
	opened := filepath.Clean(path)
	if !filepath.IsAbs(path) {
		opened = filepath.Join(filepath.Dir(r.path), path)
	}
	r.written[opened] = path
	return opened
}

func (r *reader) load() ([]byte, error) {
	const hint = `give the file with --file; "bundle init" writes an example`
	f, err := os.Open(r.path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, hint)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, hint)
	}
	if len(data) > maxSize {
		return nil, fault.New(fault.Usage, "%q has more than the %d bytes allowed for such a file", r.path, maxSize).Hint(hint)
	}
	return data, nil
}

// err returns the problems in the file's order; nil if there are none.
func (r *reader) err() error {
	slices.SortStableFunc(r.problems, func(x, y problem) int { return cmp.Compare(x.line, y.line) })
	r.problems = slices.Compact(r.problems)
	switch len(r.problems) {
	case 0:
		return nil
	case 1:
		p := r.problems[0]
		return fault.New(fault.Usage, "%s: %s", r.at(p.line), p.text).Hint(p.hint)
	}
	var lines strings.Builder
	for _, p := range r.problems {
		fmt.Fprintf(&lines, "\n  %s: %s", r.at(p.line), p.text)
		if p.hint != "" {
			fmt.Fprintf(&lines, "\n    (%s)", p.hint)
		}
	}
	return fault.New(fault.Usage, "%s has %d errors:%s", r.path, len(r.problems), lines.String())
}

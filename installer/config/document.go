package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/internal/documents"
	"airlift/internal/fault"
)

// maxFileSize is the maximum size of a configuration file in bytes: enough for
// every real one, and a safe limit if the user gives the wrong file.
const maxFileSize = 4 << 20

// A source is a configuration file being read: its documents and all of its
// errors, so that the user can correct them at once.
type source struct {
	name     string // for messages
	docs     []*document
	problems []syntaxError
	warnings []string
	// lines are the lines of fields by path: "InitConfiguration.skipPhases[0]".
	lines map[string]int
}

type syntaxError struct {
	line int
	text string
}

// document is one document of the file.
type document struct {
	documents.Document
	group, version string
	kind           string
	value          map[string]any
	of             reflect.Type // what it is decoded into, after it is checked
	bad            bool         // it has an error
}

// readSource reads and parses a file, or standard input for "-".
func readSource(path string) (*source, error) {
	name := path
	in := io.Reader(os.Stdin)
	if path == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(path)
		if err != nil {
			return nil, fault.Wrap(fmt.Errorf("reading the config file: %w", err), fault.Usage, "give kubeadm's YAML file with --config")
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFileSize+1))
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading the config file: %w", err), fault.Usage, "give kubeadm's YAML file with --config")
	}
	if len(data) > maxFileSize {
		return nil, fault.New(fault.Usage, "reading the config file: %q is larger than %d MB", name, maxFileSize>>20).Hint("give kubeadm's YAML file with --config")
	}
	return parse(name, data), nil
}

// parse reads the documents of a file. Their values are as kubeadm's library converts them, so
// that yes, 0777 and anchors mean the same.
func parse(name string, data []byte) *source {
	list, errs := documents.Read(data)
	if inline := documents.Inline(data); len(inline) > 0 { // kubeadm refuses them
		list, errs = nil, inline
	}
	s := newSource(name, list, len(errs) == 0)
	for _, e := range errs {
		s.addf(e.Line, "%s", e.Text)
	}
	return s
}

// newSource loads documents. intact reports that all of the file could be read.
func newSource(name string, list []documents.Document, intact bool) *source {
	s := &source{name: name, lines: map[string]int{}}
	kinds := map[string]int{}
	for _, one := range list {
		d := &document{Document: one}
		if !s.load(d) || intact && !s.unmerged(d) {
			continue
		}
		if first, twice := kinds[d.kind]; twice {
			s.addf(d.Line, "%s occurs twice, first at line %d: a file may have only one", d.kind, first)
			continue
		}
		kinds[d.kind] = d.Line
		s.docs = append(s.docs, d)
	}
	return s
}

// load decodes one document; false means that it has an error.
func (s *source) load(d *document) bool {
	// kubeadm parses a document that begins with { as JSON only.
	if text := bytes.TrimLeft(d.Text, " \t\n"); bytes.HasPrefix(text, []byte("{")) {
		var whole json.RawMessage
		if err := json.Unmarshal(text, &whole); err != nil {
			line := d.Line
			if at := (*json.SyntaxError)(nil); errors.As(err, &at) {
				line += bytes.Count(text[:min(int(at.Offset), len(text)-1)], []byte("\n"))
			}
			s.addf(line, "a document that begins with { is read as JSON: %v", err)
			return false
		}
	}
	var value any
	numbers := json.NewDecoder(bytes.NewReader(d.JSON))
	numbers.UseNumber()
	if err := numbers.Decode(&value); err != nil {
		s.addf(d.Line, "%v", err)
		return false
	}
	if value == nil {
		s.addf(d.Line, "this document is empty: remove the --- before or after it")
		return false
	}
	var isMap bool
	if d.value, isMap = value.(map[string]any); !isMap {
		s.addf(d.Line, "this document is %s; it must begin with apiVersion: and kind:", described(d.Node, value))
		return false
	}
	for _, name := range []string{"apiVersion", "kind"} {
		value := d.value[name]
		if _, isText := value.(string); !isText && value != nil && isScalar(value) {
			key, node := documents.Field(d.Node, name)
			line := d.Line
			if key != nil {
				line = key.Line
			}
			s.addf(line, "%s is %s and must be a string: put it in quotes, %q", name, described(node, value), documents.Written(node, value))
			return false
		}
	}
	apiVersion, _ := d.value["apiVersion"].(string)
	d.kind, _ = d.value["kind"].(string)
	var found bool
	d.group, d.version, found = strings.Cut(apiVersion, "/")
	if d.kind == "" || !found || d.group == "" || d.version == "" {
		s.addf(d.Line, "this document must have an apiVersion and a kind, such as apiVersion: kubeadm.k8s.io/v1beta4 and kind: ClusterConfiguration; it has apiVersion: %q and kind: %q", apiVersion, d.kind)
		return false
	}
	return true
}

var alreadySet = regexp.MustCompile(`line (\d+): (key .* already set in map)`)

// unmerged reports whether no key is both merged and written. kubeadm refuses it.
func (s *source) unmerged(d *document) bool {
	_, err := yaml.YAMLToJSONStrict(d.Text)
	if err == nil {
		return true
	}
	for _, m := range alreadySet.FindAllStringSubmatch(err.Error(), -1) {
		line, _ := strconv.Atoi(m[1])
		s.addf(d.Begin+line-1, "%s", m[2])
	}
	return false
}

func (s *source) addf(line int, format string, args ...any) {
	s.problems = append(s.problems, syntaxError{line, fmt.Sprintf(format, args...)})
}

func (s *source) warnf(line int, format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf("%s:%d: ", s.name, line)+fmt.Sprintf(format, args...))
}

// err returns the errors of the file in the file's order; nil if there are none.
func (s *source) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(s.problems, func(a, b syntaxError) int { return cmp.Compare(a.line, b.line) })
	lines := make([]string, len(s.problems))
	for i, m := range s.problems {
		lines[i] = fmt.Sprintf("%s:%d: %s", s.name, m.line, m.text)
	}
	if len(lines) == 1 {
		return fault.New(fault.Usage, "%s", lines[0])
	}
	return fault.New(fault.Usage, "%s has %d errors:\n  - %s", s.name, len(lines), strings.Join(lines, "\n  - "))
}

// find returns the document of that kind, or nil.
func (s *source) find(kind string) *document {
	for _, d := range s.docs {
		if d.kind == kind {
			return d
		}
	}
	return nil
}

// described describes a decoded JSON value for messages. node is where it was written, or nil:
// YAML reads 1.30 as 1.3.
func described(node *documents.Node, value any) string {
	switch v := value.(type) {
	case nil:
		return "empty"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the string %q", v)
	case bool:
		return "the boolean " + documents.Written(node, v)
	default:
		return "the number " + documents.Written(node, v)
	}
}

package config

import (
	"bufio"
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

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"airlift/fault"
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

// document is one YAML document. Lines count from the file's start, from 1.
type document struct {
	line           int // its first line with content
	offset         int // lines of the file before it
	data           []byte
	group, version string
	kind           string
	node           *yamlnode.Node // nil when it is empty
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
		return nil, fault.New(fault.Usage, "give kubeadm's YAML file with --config", "reading the config file: %q is larger than %d MB", name, maxFileSize>>20)
	}
	return parse(name, data), nil
}

// parse splits a file into documents as kubeadm does: at lines that begin with
// "---". kubeadm's library converts the values, so that yes, 0777 and anchors mean
// the same; a second library provides the line numbers.
func parse(name string, data []byte) *source {
	s := &source{name: name, lines: map[string]int{}}
	kinds := map[string]int{}
	for _, d := range s.split(data) {
		if !s.load(d) {
			continue
		}
		if first, twice := kinds[d.kind]; twice {
			s.addf(d.line, "%s occurs twice, first at line %d: a file may have only one", d.kind, first)
			continue
		}
		kinds[d.kind] = d.line
		s.docs = append(s.docs, d)
	}
	return s
}

// split works as YAMLReader in k8s.io/apimachinery/pkg/util/yaml, which kubeadm
// uses.
func (s *source) split(data []byte) (docs []*document) {
	d := &document{}
	flush := func(next int) {
		if len(d.data) > 0 {
			docs = append(docs, d)
		}
		d = &document{offset: next}
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	n := 0
	for lines.Scan() { // this also drops the CR of a CRLF
		n++
		line := lines.Bytes()
		rest, separator := bytes.CutPrefix(line, []byte("---"))
		if !separator {
			d.data = append(append(d.data, line...), '\n')
			continue
		}
		if rest = bytes.TrimSpace(rest); len(rest) > 0 && rest[0] != '#' {
			s.addf(n, "%q after --- is not read: start the document on the next line", rest)
		}
		flush(n)
	}
	flush(n)
	return docs
}

// load parses one document; false means that it has an error.
func (s *source) load(d *document) bool {
	// kubeadm parses a document that begins with { as JSON only.
	if text := bytes.TrimLeft(d.data, " \t\n"); bytes.HasPrefix(text, []byte("{")) {
		text = bytes.TrimRight(text, "\n")
		var whole json.RawMessage
		if err := json.Unmarshal(text, &whole); err != nil {
			line := d.offset + 1 + bytes.Count(d.data[:bytes.IndexByte(d.data, '{')], []byte("\n"))
			if at := (*json.SyntaxError)(nil); errors.As(err, &at) {
				line += bytes.Count(text[:min(int(at.Offset), len(text))], []byte("\n"))
			}
			s.addf(line, "a document that begins with { is read as JSON: %v", err)
			return false
		}
	}
	converted, err := yaml.YAMLToJSON(d.data)
	if err != nil {
		s.addSyntax(d, err)
		return false
	}
	var root yamlnode.Node
	if err := yamlnode.Unmarshal(d.data, &root); err != nil {
		s.addSyntax(d, err)
		return false
	}
	d.line = d.offset + 1
	if len(root.Content) > 0 {
		d.node = root.Content[0]
		d.line = d.offset + d.node.Line
	}
	var value any
	numbers := json.NewDecoder(bytes.NewReader(converted))
	numbers.UseNumber()
	if err := numbers.Decode(&value); err != nil {
		s.addSyntax(d, err)
		return false
	}
	if value == nil {
		s.addf(d.line, "this document is empty: remove the --- before or after it")
		return false
	}
	var isMap bool
	if d.value, isMap = value.(map[string]any); !isMap {
		s.addf(d.line, "this document is %s; it must begin with apiVersion: and kind:", described(value))
		return false
	}
	apiVersion, _ := d.value["apiVersion"].(string)
	d.kind, _ = d.value["kind"].(string)
	var found bool
	d.group, d.version, found = strings.Cut(apiVersion, "/")
	if d.kind == "" || !found || d.group == "" || d.version == "" {
		s.addf(d.line, "this document must have an apiVersion and a kind, such as apiVersion: kubeadm.k8s.io/v1beta4 and kind: ClusterConfiguration; it has apiVersion: %q and kind: %q", apiVersion, d.kind)
		return false
	}
	known := len(s.problems)
	s.duplicates(d, d.node, d.kind, map[*yamlnode.Node]bool{})
	// The converter's strict mode finds the rest, such as a merged key that is
	// also written.
	if len(s.problems) == known {
		if _, err := yaml.YAMLToJSONStrict(d.data); err != nil {
			s.addSyntax(d, err)
			return false
		}
	}
	return true
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// addSyntax records a parser's error. Its line counts from the document's start,
// and is missing for the first line.
func (s *source) addSyntax(d *document, err error) {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:\n", "construct errors:\n"} {
		text = strings.TrimPrefix(strings.TrimSpace(text), prefix)
	}
	for _, text := range strings.Split(text, "\n") {
		line := 1
		text = strings.TrimSpace(text)
		if at := yamlLine.FindStringSubmatchIndex(text); at != nil {
			line, _ = strconv.Atoi(text[at[2]:at[3]])
			text = text[:at[0]] + text[at[1]:]
		}
		// A line after the document's end means its last line.
		line = min(line, max(1, bytes.Count(d.data, []byte("\n"))))
		s.addf(d.offset+line, "%s", text)
	}
}

// duplicates records keys that are written twice in one mapping, of which YAML
// libraries silently keep one.
func (s *source) duplicates(d *document, node *yamlnode.Node, path string, seen map[*yamlnode.Node]bool) {
	if node == nil || seen[node] {
		return
	}
	seen[node] = true
	switch node.Kind {
	case yamlnode.MappingNode:
		first := map[string]int{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			child := path + "." + key.Value
			if line, twice := first[key.Value]; twice && key.Kind == yamlnode.ScalarNode {
				s.addf(d.offset+key.Line, "%s is written twice, first at line %d", child, line)
			} else {
				first[key.Value] = d.offset + key.Line
			}
			s.duplicates(d, node.Content[i+1], child, seen)
		}
	case yamlnode.SequenceNode:
		for i, item := range node.Content {
			s.duplicates(d, item, fmt.Sprintf("%s[%d]", path, i), seen)
		}
	}
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
		return fault.New(fault.Usage, "", "%s", lines[0])
	}
	return fault.New(fault.Usage, "", "%s has %d errors:\n  - %s", s.name, len(lines), strings.Join(lines, "\n  - "))
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

// described describes a decoded JSON value for messages.
func described(value any) string {
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
		return fmt.Sprintf("the boolean %t", v)
	default:
		return fmt.Sprintf("the number %v", v)
	}
}

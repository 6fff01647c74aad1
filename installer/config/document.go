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

// maxFileSize bounds what is read as a config file, in bytes: enough for any
// real one, and no trap for who names the wrong file.
const maxFileSize = 4 << 20

// A source is a config file being read: its documents and what is wrong with
// it, all of it, so that a user mends it in one go.
type source struct {
	name     string // as messages give it
	docs     []*document
	problems []mistake
	warnings []string
	// lines are where fields were written: "InitConfiguration.skipPhases[0]".
	lines map[string]int
}

type mistake struct {
	line int
	text string
}

// document is one YAML document. Lines are the whole file's, from 1.
type document struct {
	line           int // of its first line that says something
	offset         int // lines of the file before it
	data           []byte
	group, version string
	kind           string
	node           *yamlnode.Node // nil when it is empty
	value          map[string]any
	of             reflect.Type // what it is decoded into, once it is checked
	bad            bool         // a mistake in it was noted
}

// readSource reads a file, or standard input for "-", and takes it apart.
func readSource(path string) (*source, error) {
	name := path
	in := io.Reader(os.Stdin)
	if path == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(path)
		if err != nil {
			return nil, fault.Wrap(fmt.Errorf("reading the config file: %w", err), fault.Usage, "name kubeadm's YAML file with --config")
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFileSize+1))
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading the config file: %w", err), fault.Usage, "name kubeadm's YAML file with --config")
	}
	if len(data) > maxFileSize {
		return nil, fault.New(fault.Usage, "name kubeadm's YAML file with --config", "reading the config file: %q is larger than %d MB", name, maxFileSize>>20)
	}
	return parse(name, data), nil
}

// parse takes a file apart into documents as kubeadm does: at lines that begin
// with "---". Values are converted by the library that kubeadm uses, for what
// it makes of yes, 0777 or anchors; a second one tells the lines.
func parse(name string, data []byte) *source {
	s := &source{name: name, lines: map[string]int{}}
	kinds := map[string]int{}
	for _, d := range s.split(data) {
		if !s.load(d) {
			continue
		}
		if first, twice := kinds[d.kind]; twice {
			s.addf(d.line, "%s is there twice, first at line %d: a file may have one", d.kind, first)
			continue
		}
		kinds[d.kind] = d.line
		s.docs = append(s.docs, d)
	}
	return s
}

// split follows YAMLReader of k8s.io/apimachinery/pkg/util/yaml, which kubeadm
// splits its files with.
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
	for lines.Scan() { // which drops the CR of a CRLF, too
		n++
		line := lines.Bytes()
		rest, separator := bytes.CutPrefix(line, []byte("---"))
		if !separator {
			d.data = append(append(d.data, line...), '\n')
			continue
		}
		if rest = bytes.TrimSpace(rest); len(rest) > 0 && rest[0] != '#' {
			s.addf(n, "%q after --- is not read: begin the document on the next line", rest)
		}
		flush(n)
	}
	flush(n)
	return docs
}

// load parses one document; false means that a problem was noted.
func (s *source) load(d *document) bool {
	// kubeadm takes what begins like JSON for JSON, and for nothing else.
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
		s.addf(d.line, "this document is empty: take the --- before or after it away")
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
		s.addf(d.line, "this document must say what it is, such as apiVersion: kubeadm.k8s.io/v1beta4 and kind: ClusterConfiguration; it has apiVersion: %q and kind: %q", apiVersion, d.kind)
		return false
	}
	known := len(s.problems)
	s.duplicates(d, d.node, d.kind, map[*yamlnode.Node]bool{})
	// The converter's own strictness finds the rest, such as a merged key that
	// is written again.
	if len(s.problems) == known {
		if _, err := yaml.YAMLToJSONStrict(d.data); err != nil {
			s.addSyntax(d, err)
			return false
		}
	}
	return true
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// addSyntax notes a parser's error. Its line counts from the document's start,
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
		// The end of a document is where its last line is.
		line = min(line, max(1, bytes.Count(d.data, []byte("\n"))))
		s.addf(d.offset+line, "%s", text)
	}
}

// duplicates notes keys that are written twice in one mapping, of which YAML
// libraries keep one without a word.
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
	s.problems = append(s.problems, mistake{line, fmt.Sprintf(format, args...)})
}

func (s *source) warnf(line int, format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf("%s:%d: ", s.name, line)+fmt.Sprintf(format, args...))
}

// err is what is wrong with the file, in the file's order; nil for nothing.
func (s *source) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(s.problems, func(a, b mistake) int { return cmp.Compare(a.line, b.line) })
	lines := make([]string, len(s.problems))
	for i, m := range s.problems {
		lines[i] = fmt.Sprintf("%s:%d: %s", s.name, m.line, m.text)
	}
	if len(lines) == 1 {
		return fault.New(fault.Usage, "", "%s", lines[0])
	}
	return fault.New(fault.Usage, "", "%s has %d mistakes:\n  - %s", s.name, len(lines), strings.Join(lines, "\n  - "))
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

// described says what a decoded JSON value is, for messages.
func described(value any) string {
	switch v := value.(type) {
	case nil:
		return "empty"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %q", v)
	case bool:
		return fmt.Sprintf("the truth value %t", v)
	default:
		return fmt.Sprintf("the number %v", v)
	}
}

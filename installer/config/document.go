package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

// A source is a configuration file being read: its documents and all of its
// errors, so that the user can correct them at once.
type source struct {
	problems.List
	docs     []*document
	warnings []string
	lines    strict.Lines      // by path: "InitConfiguration.skipPhases[0]"
	files    map[string]string // of documents in other files, by kind
}

// document is one document of the file.
type document struct {
	documents.Document
	group, version string
	kind           string
	of             reflect.Type  // what it is decoded into
	value          reflect.Value // decoded, as far as it has no error
}

// readSource reads and parses a file, or standard input for "-".
func readSource(path string) (*source, error) {
	data, err := strict.Load(path)
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading the config file: %w", err), fault.Usage, "give kubeadm's YAML file with --config")
	}
	if path == "-" {
		path = "standard input"
	}
	return parse(path, data), nil
}

// parse reads the documents of a file. Their values are as kubeadm's library converts them, so
// that yes, 0777 and anchors mean the same.
func parse(name string, data []byte) *source {
	list, errs := documents.Read(data)
	if inline := documents.Inline(data); len(inline) > 0 { // kubeadm refuses them
		list, errs = nil, inline
	}
	s := newSource(name, list, len(errs) == 0)
	s.AddErrors("", errs)
	return s
}

// newSource loads documents. intact reports that all of the file could be read.
func newSource(name string, list []documents.Document, intact bool) *source {
	s := &source{List: problems.List{File: name}, lines: strict.Lines{}}
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
	if err := json.Unmarshal(d.JSON, &value); err != nil {
		s.addf(d.Line, "%v", err)
		return false
	}
	if value == nil {
		s.addf(d.Line, "this document is empty: remove the --- before or after it")
		return false
	}
	fields, isMap := value.(map[string]any)
	if !isMap {
		s.addf(d.Line, "this document is %s; it must begin with apiVersion: and kind:", strict.Describe(value, d.Node))
		return false
	}
	for _, name := range []string{"apiVersion", "kind"} {
		value := fields[name]
		if _, isText := value.(string); !isText && value != nil && isScalar(value) {
			node := documents.Value(d.Node, name)
			s.Add(s.lineOf(d, name), fmt.Sprintf("put it in quotes, %q", documents.Written(node, value)), "%s is %s and must be a string", name, strict.Describe(value, node))
			return false
		}
	}
	apiVersion, _ := fields["apiVersion"].(string)
	d.kind, _ = fields["kind"].(string)
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

// refuse adds a problem with a field that could be read.
func (s *source) refuse(path, hint, format string, args ...any) {
	if !s.Has(path) {
		o := s.origin()
		s.Problems = append(s.Problems, problems.Problem{File: strings.TrimPrefix(o.fileOf(path), s.File), Line: s.lines.Nearest("%s", path), Field: path,
			Hint: hint, Text: fmt.Sprintf(format, args...)})
	}
}

func (s *source) addf(line int, format string, args ...any) { s.Add(line, "", format, args...) }

func (s *source) warnf(line int, format string, args ...any) {
	s.warnings = append(s.warnings, s.At(line)+": "+fmt.Sprintf(format, args...))
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

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

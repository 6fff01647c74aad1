package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"airlift/fault"
)

// Decode returns the objects of a file's content: documents of YAML, or JSON values one after
// the other. Lists are replaced by their items. Empty documents are left out. It does not
// check that the objects are unique.
func Decode(file string, content []byte) ([]*Object, error) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	var objects []*Object
	for _, d := range split(content) {
		value, line, err := d.decode()
		if errors.Is(err, errNoObject) {
			continue
		}
		at := position(file, line)
		if err != nil {
			if before, _, ok := bytes.Cut(d.text, []byte("{{")); ok {
				return nil, notRendered(position(file, d.line+bytes.Count(before, []byte("\n"))), "the document")
			}
			return nil, fault.New(fault.Usage, "correct the file: it must be YAML or JSON; YAML is indented with spaces", "%s: %w", at, err)
		}
		object, ok := value.(map[string]any)
		if !ok {
			return nil, fault.New(fault.Usage, "write apiVersion, kind and metadata.name", "%s: the document is not a Kubernetes object", at)
		}
		more, err := flatten(file, line, d, object)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// A document is a part of a file.
type document struct {
	text []byte
	line int // of its first byte, from 1
}

var separator = regexp.MustCompile(`^---(\s|$)`)

// split divides a file into documents: at lines with three dashes, as YAML defines them, and
// in JSON at the end of each value.
func split(content []byte) (documents []document) {
	if trimmed := bytes.TrimLeft(content, " \t\r\n"); bytes.HasPrefix(trimmed, []byte("{")) {
		if documents, ok := splitJSON(content); ok {
			return documents
		}
	}
	current, line := document{line: 1}, 0
	for text := range bytes.Lines(content) {
		line++
		switch {
		case separator.Match(text):
			documents = append(documents, current)
			// An object may begin behind the dashes. Spaces keep the columns.
			current = document{append([]byte("   "), text[3:]...), line}
		case bytes.HasPrefix(text, []byte("...")) && len(bytes.TrimSpace(text)) == 3:
			current.text = append(current.text, '\n')
		default:
			current.text = append(current.text, text...)
		}
	}
	return append(documents, current)
}

// splitJSON returns the values of a file, or false if it is not only JSON.
func splitJSON(content []byte) (documents []document, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	for {
		var value json.RawMessage
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return documents, true
		} else if err != nil {
			return nil, false
		}
		begin := decoder.InputOffset() - int64(len(value))
		documents = append(documents, document{value, 1 + bytes.Count(content[:begin], []byte("\n"))})
	}
}

var errorLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:unmarshal errors:\n\s*)?(?:line (\d+): )?`)

// decode returns the document's value and the line of its first content, or the line that is
// wrong.
func (d document) decode() (value any, line int, err error) {
	line = d.line
	for text := range bytes.Lines(d.text) {
		if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] != '#' && trimmed[0] != '%' {
			break
		}
		line++
	}
	asJSON, err := yaml.YAMLToJSON(d.text)
	if err != nil {
		text := err.Error()
		if m := errorLine.FindStringSubmatch(text); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil {
				line = d.line + n - 1
			}
			text = "not YAML: " + strings.TrimPrefix(text, m[0])
		}
		return nil, line, errors.New(text)
	}
	if bytes.Equal(bytes.TrimSpace(asJSON), []byte("null")) {
		return nil, line, errNoObject
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &value); err != nil {
		return nil, line, err
	}
	return value, line, nil
}

// flatten returns the object, or the items of a list. As in the API, a list of a known kind
// (RoleList) gives its items their kind.
func flatten(file string, line int, d document, content map[string]any) ([]*Object, error) {
	kind, _ := content["kind"].(string)
	items, ok := content["items"].([]any)
	if content["items"] == nil && kind == "List" {
		ok = true
	}
	if !ok || !strings.HasSuffix(kind, "List") {
		o, err := newObject(file, line, content)
		return []*Object{o}, err
	}
	var lines []int
	if d.text != nil {
		lines = itemLines(d)
	}
	var objects []*Object
	for i, item := range items {
		itemLine := line
		if i < len(lines) {
			itemLine = lines[i]
		}
		object, ok := item.(map[string]any)
		if !ok {
			return nil, fault.New(fault.Usage, "write apiVersion, kind and metadata.name",
				"%s: items[%d] of the %s is not a Kubernetes object", position(file, itemLine), i, kind)
		}
		if kind != "List" && object["kind"] == nil {
			object["apiVersion"], object["kind"] = content["apiVersion"], strings.TrimSuffix(kind, "List")
		}
		more, err := flatten(file, itemLine, document{}, object)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// itemLines returns the lines of a list's items, or nothing if they cannot be found.
func itemLines(d document) (lines []int) {
	var root yamlv3.Node
	if yamlv3.Unmarshal(d.text, &root) != nil || len(root.Content) != 1 || root.Content[0].Kind != yamlv3.MappingNode {
		return nil
	}
	fields := root.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i].Value == "items" {
			for _, item := range fields[i+1].Content {
				lines = append(lines, d.line+item.Line-1)
			}
		}
	}
	return lines
}

package documents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// kindOf returns the kind of a Kubernetes object, with which the paths of errors begin.
func kindOf(n *yaml.Node) string {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "kind" && n.Content[i+1].Kind == yaml.ScalarNode {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// check adds errors for data that the conversion to JSON loses: repeated keys except the last, and
// bytes that are not UTF-8.
func (r *reader) check(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		r.checkKeys(n, path)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			r.check(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.ScalarNode:
		if decoded, err := base64.StdEncoding.DecodeString(n.Value); n.ShortTag() == "!!binary" && err == nil && !utf8.Valid(decoded) {
			r.addf(n.Line, "%s is binary and not UTF-8 text: remove !!binary", path)
		}
	}
}

func (r *reader) checkKeys(mapping *yaml.Node, path string) {
	first := map[string]int{} // lines by name
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := r.name(key)
		if line, twice := first[name]; twice {
			r.addf(key.Line, "%s is written twice, first at line %d", join(path, name), line)
		} else {
			first[name] = key.Line
		}
		if key.Tag == "!!merge" {
			for _, name := range slices.Sorted(maps.Keys(r.merged(value))) {
				if line, written := first[name]; written {
					r.addf(key.Line, "%s is replaced by << here, first at line %d: write << before it", join(path, name), line)
				}
			}
			r.check(value, path)
			continue
		}
		r.check(value, join(path, name))
	}
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// merged returns the keys that << adds.
func (r *reader) merged(n *yaml.Node) map[string]bool {
	names := map[string]bool{}
	switch n.Kind {
	case yaml.AliasNode:
		return r.merged(n.Alias)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			maps.Copy(names, r.merged(item))
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; key.Tag == "!!merge" {
				maps.Copy(names, r.merged(n.Content[i+1]))
			} else {
				names[r.name(key)] = true
			}
		}
	}
	return names
}

// name returns a key as the conversion to JSON writes it: 0x1 and "1" are the same.
func (r *reader) name(key *yaml.Node) string {
	if key.Kind == yaml.AliasNode {
		key = key.Alias
	}
	text := key.Value
	switch {
	case key.Style&yaml.TaggedStyle != 0:
		text = fmt.Sprintf("%s %q", key.Tag, text)
	case key.Style != 0:
		return text
	}
	name, known := r.names[text]
	if !known {
		var mapping map[string]any
		name = key.Value
		if sigsyaml.Unmarshal([]byte(text+": 0"), &mapping) == nil && len(mapping) == 1 {
			name = slices.Collect(maps.Keys(mapping))[0]
		}
		r.names[text] = name
	}
	return name
}

// checkJSON is check for a value that no YAML parser can read.
func (r *reader) checkJSON(value json.RawMessage) {
	var decoded any
	strict, err := kjson.UnmarshalStrict(value, &decoded)
	if err != nil {
		r.addf(r.line, "not JSON: %v", err)
		return
	}
	for _, err := range strict {
		r.addf(r.line, "%v", err)
	}
	replaced := bytes.Count(value, []byte("\ufffd")) + bytes.Count(bytes.ToLower(value), []byte(`\ufffd`))
	if again, _ := json.Marshal(decoded); bytes.Count(again, []byte("\ufffd")) > replaced {
		r.addf(r.line, `a \u escape is half of a surrogate pair`)
	}
}

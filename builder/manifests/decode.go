package manifests

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"airlift/internal/documents"
	"airlift/internal/fault"
)

// Decode returns the objects of a file's content: documents of YAML, or JSON values one after
// the other. Lists are replaced by their items. Empty documents are left out. Everything that
// kubectl would ignore is an error. It does not check that the objects are unique.
func Decode(file string, content []byte) ([]*Object, error) {
	list, errs := documents.Read(content)
	if len(errs) > 0 {
		return nil, unreadable(file, content, errs[0])
	}
	var objects []*Object
	for _, d := range list {
		if d.Empty() {
			continue
		}
		var value any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(d.JSON, &value); err != nil {
			return nil, fault.New(fault.Usage, "%s: %w", position(file, d.Line), err).Hint("correct the document")
		}
		object, ok := value.(map[string]any)
		if !ok {
			return nil, fault.New(fault.Usage, "%s: the document is not a Kubernetes object", position(file, d.Line)).Hint("write apiVersion, kind and metadata.name")
		}
		more, err := flatten(file, d.Line, d.Node, object)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// unreadable explains an error in a document, which may be a template.
func unreadable(file string, content []byte, e documents.Error) error {
	lines := bytes.SplitAfter(content, []byte("\n"))
	document, _, _ := bytes.Cut(bytes.Join(lines[e.Begin-1:], nil), []byte("\n---"))
	if before, _, ok := bytes.Cut(document, []byte("{{")); ok && strings.HasPrefix(e.Text, "not ") {
		return notRendered(position(file, e.Begin+bytes.Count(before, []byte("\n"))), "the document")
	}
	return fault.New(fault.Usage, "%s: %s", position(file, e.Line), e.Text).
		Hint("correct the file: it must be YAML or JSON; YAML is indented with spaces, and each document has --- before it")
}

// flatten returns the object, or the items of a list. As in the API, a list of a known kind
// (RoleList) gives its items their kind.
func flatten(file string, line int, node *documents.Node, content map[string]any) ([]*Object, error) {
	kind, _ := content["kind"].(string)
	items, ok := content["items"].([]any)
	if kind == "List" && !ok && content["items"] != nil {
		return nil, fault.New(fault.Usage, "%s: items of the List is not a list", position(file, line)).Hint("write the objects as a list: items: [...]")
	}
	ok = ok || kind == "List"
	if ok && kind != "" && !strings.HasSuffix(kind, "List") {
		return nil, fault.New(fault.Usage, "%s: the %s has a list items, so kubectl and install treat it as a list of objects", position(file, line), kind).
			Hint("write each object of items as its own document, or rename the field")
	}
	if !ok || !strings.HasSuffix(kind, "List") {
		o, err := newObject(file, line, node, content)
		return []*Object{o}, err
	}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "items"}, name) {
			return nil, fault.New(fault.Usage, "%s: the %s has a field %s, which kubectl ignores", position(file, fieldLine(node, name, line)), kind, name).
				Hint("write the objects of the list below items, and nothing else")
		}
	}
	var objects []*Object
	for i, item := range items {
		itemLine, itemNode := line, documents.Item(documents.Value(node, "items"), i)
		if itemNode != nil {
			itemLine = itemNode.Line
		}
		object, ok := item.(map[string]any)
		if !ok {
			return nil, fault.New(fault.Usage, "%s: items[%d] of the %s is not a Kubernetes object", position(file, itemLine), i, kind).
				Hint("write apiVersion, kind and metadata.name")
		}
		if kind != "List" && object["kind"] == nil {
			object["apiVersion"], object["kind"] = content["apiVersion"], strings.TrimSuffix(kind, "List")
		}
		more, err := flatten(file, itemLine, itemNode, object)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// fieldLine returns the line of a field, or other if it is unknown.
func fieldLine(n *documents.Node, name string, other int) int {
	if key, _ := documents.Field(n, name); key != nil {
		return key.Line
	}
	return other
}

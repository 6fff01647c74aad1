package documents

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// A Node is a value with its line.
type Node = yaml.Node

// Field returns the name and the value of a field in a mapping, or in what is merged into it.
// Both are nil if there is none.
func Field(n *Node, name string) (key, value *Node) {
	n = resolved(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			continue
		}
		merged := resolved(n.Content[i+1])
		list := []*Node{merged}
		if merged.Kind == yaml.SequenceNode {
			list = merged.Content
		}
		for _, m := range list {
			if key, value = Field(m, name); key != nil {
				return key, value
			}
		}
	}
	return nil, nil
}

// Value returns the value at a path of fields, or nil.
func Value(n *Node, path ...string) *Node {
	for _, name := range path {
		_, n = Field(n, name)
	}
	return n
}

// Item returns an item of a list, or nil.
func Item(n *Node, i int) *Node {
	n = resolved(n)
	if n == nil || n.Kind != yaml.SequenceNode || i >= len(n.Content) {
		return nil
	}
	return n.Content[i]
}

// Written returns the text of a scalar as it is in the stream, without quotes, or otherwise what
// fmt prints of its decoded value: 1.30 of a number that is decoded to 1.3.
func Written(n *Node, decoded any) string {
	if n = resolved(n); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return fmt.Sprint(decoded)
}

// IsText reports whether a scalar is a text in YAML 1.2: also yes, on and off.
func IsText(n *Node) bool {
	n = resolved(n)
	return n != nil && n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
}

// resolved follows an alias to its node.
func resolved(n *Node) *Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

package sitefile

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// A text is a scalar as it is written, with its line. A version such as 3.10 and a mode such
// as 0644 keep their digits, with and without quotes.
type text struct {
	Value string
	Line  int
}

// UnmarshalYAML refuses what has no single way to be written as text.
func (t *text) UnmarshalYAML(n *yaml.Node) error {
	bad := func(what string) error {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, what)}}
	}
	switch {
	case n.Kind == yaml.SequenceNode:
		return bad(notOneValue("list"))
	case n.Kind != yaml.ScalarNode:
		return bad(notOneValue("mapping"))
	case n.ShortTag() == "!!bool":
		return bad(fmt.Sprintf("this is the boolean %s, but must be a string", n.Value))
	}
	*t = text{n.Value, n.Line}
	return nil
}

// or returns the value, or other if it is not written.
func (t text) or(other string) string {
	if t.Value == "" {
		return other
	}
	return t.Value
}

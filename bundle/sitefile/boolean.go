package sitefile

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// A boolean is true or false.
type boolean bool

// UnmarshalYAML accepts only the words true and false, without quotes. yes and on are texts, as in
// YAML 1.2.
func (b *boolean) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: this must be true or false", n.Line)}}
	}
	return n.Decode((*bool)(b))
}

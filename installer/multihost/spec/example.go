package spec

import _ "embed"

//go:embed example.yaml
var example string

// Example returns a cluster.yaml with all fields. All but the necessary ones are comments.
func Example() string { return example }

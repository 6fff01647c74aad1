package spec

import _ "embed"

//go:embed example.yaml
var exampleFile string

// Example returns a cluster.yaml with all fields. All but the necessary ones are comments.
func Example() string { return exampleFile }

package sitefile

import _ "embed"

// Example is a bundle.yaml with all fields. All but the necessary ones are comments.
//
//go:embed example.yaml
var Example []byte
